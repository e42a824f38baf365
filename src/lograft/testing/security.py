"""Security of a test cluster: listeners that authenticate clients and nodes, and users.

Clients and brokers use the listener SASL with the mechanism of the cluster, controllers
authenticate to each other with PLAIN. Nothing is encrypted, so that packet captures are readable.
"""

import hashlib
from collections.abc import Iterable
from typing import Final

from lograft.model.settings.jaas import PLAIN_MODULE, SCRAM_MODULE
from lograft.security.scram_credentials import (
    ITERATIONS_MIN,
    SALT_BYTES,
    ScramCredential,
    ScramMechanism,
    credential_of,
    make_salt,
    salt_password,
)

#: The user of the nodes.
NODE: Final = "node"
#: A user who may do everything, in clusters with an authorizer.
ADMIN: Final = "admin"
LISTENER: Final = "SASL"
MECHANISMS: Final = {"plain": "PLAIN", "scram": "SCRAM-SHA-512"}


class ClusterSecurity:
    """`kind`: "plain" or "scram"; `users`: besides the node's user and `admin`."""

    def __init__(self, kind: str, users: Iterable[str] = ()) -> None:
        if kind not in MECHANISMS:
            raise ValueError(f"security is {kind!r}, but must be one of {', '.join(MECHANISMS)}")
        self.kind = kind
        self.mechanism = MECHANISMS[kind]
        self.users = list(dict.fromkeys((ADMIN, *users)))
        if NODE in self.users or not all(name.replace("-", "_").isidentifier() for name in users):
            raise ValueError(
                f"user names must be identifiers and must not be {NODE!r}, the nodes' own user"
            )

    def properties(self) -> dict[str, str]:
        """Returns the settings of all nodes, except their listeners."""
        controller = "listener.name.controller.plain.sasl.jaas.config"
        inside = f"listener.name.{LISTENER.lower()}.{self.mechanism.lower()}.sasl.jaas.config"
        own = f'username="{NODE}" password="{password_of(NODE)}"'
        known = (NODE, *self.users)
        accepted = " ".join(f'user_{name}="{password_of(name)}"' for name in known)
        inside_entry = (
            f"{PLAIN_MODULE} required {own} {accepted};"
            if self.kind == "plain"
            else f"{SCRAM_MODULE} required {own};"
        )
        return {
            "listener.security.protocol.map": f"{LISTENER}:SASL_PLAINTEXT"
            ",CONTROLLER:SASL_PLAINTEXT",
            "inter.broker.listener.name": LISTENER,
            "sasl.enabled.mechanisms": self.mechanism,
            "sasl.mechanism.inter.broker.protocol": self.mechanism,
            "sasl.mechanism.controller.protocol": "PLAIN",
            "listener.name.controller.sasl.enabled.mechanisms": "PLAIN",
            controller: f'{PLAIN_MODULE} required {own} user_{NODE}="{password_of(NODE)}";',
            inside: inside_entry,
            "super.users": f"User:{NODE};User:{ADMIN}",
        }

    def credentials(self) -> tuple[ScramCredential, ...]:
        """Returns the SCRAM users that exist from the start."""
        if self.kind != "scram":
            return ()
        return tuple(_credential(name) for name in (NODE, *self.users))

    def client_settings(self, user: str, bootstrap_servers: str) -> dict[str, str]:
        if user not in self.users:
            raise ValueError(
                f"the cluster has no user {user!r}, only {', '.join(self.users)}: name it in"
                " Cluster(users=[…])"
            )
        return {
            "bootstrap.servers": bootstrap_servers,
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": self.mechanism,
            "sasl.username": user,
            "sasl.password": password_of(user),
        }


def password_of(user: str) -> str:
    """Returns the password of a user of a test cluster, which is no secret."""
    return f"{user}-password"


def _credential(user: str) -> ScramCredential:
    mechanism = ScramMechanism.SCRAM_SHA_512
    salt = make_salt(hashlib.sha256(user.encode()).digest(), SALT_BYTES)
    return credential_of(
        user,
        mechanism,
        salted_password=salt_password(mechanism, password_of(user), salt, ITERATIONS_MIN),
        salt=salt,
        iterations=ITERATIONS_MIN,
    )
