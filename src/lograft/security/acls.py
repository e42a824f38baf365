"""ACLs and filters of ACLs, with the numbers of Kafka's protocol and metadata records.

Values only. `AclIndex` finds the ACLs of a resource, `StandardAuthorizer` decides.
"""

from enum import IntEnum
from functools import lru_cache
from ipaddress import IPv6Address, ip_address
from typing import Final, NamedTuple

from lograft.security.authorization import Operation, ResourceType

#: The name that stands for all resources of a type, and the host that stands for all hosts.
WILDCARD: Final = "*"
#: The principal that stands for all users.
ALL_USERS: Final = "User:*"
#: The operation that includes all others, in ACLs only.
ALL_OPERATIONS: Final = 2
#: In filters: any value. In requests of newer clients, an unknown number is treated as `UNKNOWN`.
UNKNOWN: Final = 0
ANY: Final = 1


class PatternType(IntEnum):
    """How the name of an ACL matches resources; ANY and MATCH occur in filters only."""

    ANY = 1
    #: Every pattern that matches the name: literal, prefixed or wildcard.
    MATCH = 2
    LITERAL = 3
    PREFIXED = 4


class AclPermission(IntEnum):
    DENY = 2
    ALLOW = 3


class Acl(NamedTuple):
    """The fields have the numbers of Kafka's enums, since a log may contain newer ones."""

    resource_type: int
    name: str
    pattern_type: int
    #: "User:alice".
    principal: str
    #: An address as Java writes it, or "*".
    host: str
    operation: int
    permission: int


class AclFilter(NamedTuple):
    """Selects ACLs: None and ANY match everything."""

    resource_type: int = ANY
    name: str | None = None
    pattern_type: int = PatternType.ANY
    principal: str | None = None
    host: str | None = None
    operation: int = ANY
    permission: int = ANY

    def matches(self, acl: Acl) -> bool:
        return (
            self.resource_type in (ANY, acl.resource_type)
            and self._matches_name(acl)
            and self.principal in (None, acl.principal)
            and self.host in (None, acl.host)
            and self.operation in (ANY, acl.operation)
            and self.permission in (ANY, acl.permission)
        )

    def _matches_name(self, acl: Acl) -> bool:
        if self.pattern_type not in (PatternType.ANY, PatternType.MATCH, acl.pattern_type):
            return False
        if self.name is None:
            return True
        if self.pattern_type != PatternType.MATCH:
            return self.name == acl.name
        if acl.pattern_type == PatternType.PREFIXED:
            return self.name.startswith(acl.name)
        return acl.name in (self.name, WILDCARD)


def describe_acl(acl: Acl) -> str:
    """Returns the ACL as a line of text: ALLOW User:alice READ TOPIC PREFIXED orders- host *"""
    permission = name_of_number(AclPermission, acl.permission)
    kind = name_of_number(ResourceType, acl.resource_type)
    pattern = name_of_number(PatternType, acl.pattern_type)
    operation = operation_name(acl.operation)
    return f"{permission} {acl.principal} {operation} {kind} {pattern} {acl.name} host {acl.host}"


def operation_name(number: int) -> str:
    return "ALL" if number == ALL_OPERATIONS else name_of_number(Operation, number)


def name_of_number(kind: type[IntEnum], number: int) -> str:
    """Returns the number of a value that only newer versions have."""
    return kind(number).name if number in list(kind) else str(number)


@lru_cache(maxsize=1_000)
def acl_host(host: str) -> str:
    """Returns an address in the form that ACLs have: that of Java, which does not shorten IPv6
    addresses. Host names, which occur in simulations, are returned unchanged."""
    try:
        address = ip_address(host.partition("%")[0])
    except ValueError:
        return host
    if not isinstance(address, IPv6Address):
        return str(address)
    if address.ipv4_mapped is not None:
        return str(address.ipv4_mapped)
    return ":".join(f"{int(group, 16):x}" for group in address.exploded.split(":"))
