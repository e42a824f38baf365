"""The settings of StandardAuthorizer. Kafka's table of settings lacks them, since authorizers read
theirs from the configuration file. They cannot be changed while the node runs.
"""

from collections.abc import Iterator, Mapping
from typing import Final

STANDARD_AUTHORIZER: Final = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
SUPER_USERS: Final = "super.users"
ALLOW_EVERYONE: Final = "allow.everyone.if.no.acl.found"
AUTHORIZER_SETTINGS: Final = frozenset({SUPER_USERS, ALLOW_EVERYONE})


def super_users(properties: Mapping[str, str]) -> frozenset[str]:
    """Returns the principals that are allowed everything: "User:admin"."""
    entries = (entry.strip() for entry in properties.get(SUPER_USERS, "").split(";"))
    return frozenset(entry for entry in entries if entry)


def allows_everyone_without_acl(properties: Mapping[str, str]) -> bool:
    return properties.get(ALLOW_EVERYONE, "").strip().lower() == "true"


def find_authorizer_problems(properties: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """Yields the name of an invalid setting, and the problem."""
    for entry in sorted(super_users(properties)):
        if ":" not in entry:
            yield (
                SUPER_USERS,
                f"{SUPER_USERS} contains {entry!r}: write principals as type and name, separated by"
                " semicolons, for example User:admin;User:CN=broker",
            )
    value = properties.get(ALLOW_EVERYONE, "").strip().lower()
    if value not in ("", "true", "false"):
        yield (ALLOW_EVERYONE, f"{ALLOW_EVERYONE} must be true or false, not {value!r}")
