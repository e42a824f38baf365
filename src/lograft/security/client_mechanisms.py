"""The credentials of a client, read from its settings, and the exchange of each mechanism.

To add a mechanism: write its `ClientExchange`, and add it to `start_exchange` and to the names in
`CLIENT_MECHANISMS`.
"""

from dataclasses import dataclass
from typing import Final

from lograft.model.errors import InvalidConfig
from lograft.model.settings.jaas import MODULES, JaasEntry, parse_jaas
from lograft.security.client_sasl import ClientExchange
from lograft.security.plain_client import PlainClientExchange
from lograft.security.scram_client import ScramClientExchange
from lograft.security.scram_credentials import ScramMechanism

PASSWORD_MECHANISMS: Final = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
CLIENT_MECHANISMS: Final = (*PASSWORD_MECHANISMS, "OAUTHBEARER", "GSSAPI")


@dataclass(frozen=True, slots=True)
class Credentials:
    user: str
    password: str
    #: Whether these are a delegation token's id and HMAC.
    token_auth: bool = False

    def __repr__(self) -> str:
        return f"Credentials(user={self.user!r}, password=[hidden])"

    def __post_init__(self) -> None:
        """Raises InvalidConfig for names and passwords that no mechanism can send."""
        if not self.user or not self.password:
            raise InvalidConfig("the user name and the password for SASL must not be empty")
        if "\0" in self.user or "\0" in self.password:
            raise InvalidConfig(
                "the user name and the password for SASL must not contain the character NUL"
            )


def jaas_credentials(text: str, mechanism: str, *, setting: str) -> Credentials | None:
    """Returns the credentials in an entry of sasl.jaas.config; None if it has none. Raises
    InvalidConfig without the value, since it is secret."""
    entry = jaas_entry_of(text, mechanism, setting=setting)
    user, password = entry.option("username"), entry.option("password")
    if user is None or password is None:
        return None
    token_auth = (entry.option("tokenauth") or "").lower() == "true"
    return Credentials(user, password, token_auth)


def jaas_entry_of(text: str, mechanism: str, *, setting: str) -> JaasEntry:
    """Returns the entry of sasl.jaas.config, which must name the login module of the mechanism.
    Raises InvalidConfig without the value, since it is secret."""
    entry = parse_jaas(text, setting=setting)
    if entry.module != MODULES[mechanism]:
        raise InvalidConfig(
            f"{setting} names the login module {entry.module}, but {mechanism} requires"
            f" {MODULES[mechanism]}"
        )
    return entry


def start_exchange(mechanism: str, credentials: Credentials, *, nonce: bytes) -> ClientExchange:
    """`mechanism`: one of `PASSWORD_MECHANISMS`; `nonce`: random bytes, as many as
    `scram.NONCE_BYTES`."""
    if mechanism == "PLAIN":
        return PlainClientExchange(credentials.user, credentials.password)
    return ScramClientExchange(
        ScramMechanism[mechanism.replace("-", "_")],
        credentials.user,
        credentials.password,
        nonce=nonce,
        token_auth=credentials.token_auth,
    )
