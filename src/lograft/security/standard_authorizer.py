"""The decisions of Kafka's StandardAuthorizer.

A principal may perform an operation on a resource if a rule allows it and none denies it. Rules are
the ACLs whose pattern, principal, host and operation match; without any ACL for the resource,
`allow.everyone.if.no.acl.found` decides. Super users may do everything.

The owner of the metadata image reports every change of the ACLs with `update`; decisions are cached
until the next one. `version` changes with them, so that others can cache what follows from
decisions.
"""

from collections.abc import Iterable, Mapping, Sequence
from enum import Enum
from typing import Final, NamedTuple
from uuid import UUID

from lograft.model.errors import LograftError
from lograft.security.acl_index import AclIndex
from lograft.security.acls import (
    ALL_OPERATIONS,
    ALL_USERS,
    WILDCARD,
    Acl,
    AclPermission,
    PatternType,
    acl_host,
    describe_acl,
)
from lograft.security.authorization import Need, Operation, Permission

#: ACLs of these operations allow one that is implied; they do not deny it.
IMPLIED_BY: Final[Mapping[int, frozenset[int]]] = {
    Operation.DESCRIBE: frozenset(
        (
            Operation.DESCRIBE,
            Operation.READ,
            Operation.WRITE,
            Operation.DELETE,
            Operation.ALTER,
        )
    ),
    Operation.DESCRIBE_CONFIGS: frozenset((Operation.DESCRIBE_CONFIGS, Operation.ALTER_CONFIGS)),
}
#: As in Kafka, the name of an unspecified resource.
_ANY_NAME: Final = "hardcode"
#: Cached decisions. When it is reached, all are discarded.
DECISIONS_MAX: Final = 100_000


class AuthorizerNotReady(LograftError):
    """The ACLs have not been read from the metadata log yet."""


class RuleKind(Enum):
    SUPER_USER = "super user"
    ACL = "ACL"
    #: No ACL for the resource: allow.everyone.if.no.acl.found decides.
    NO_ACLS = "no ACL for the resource"
    #: The resource has ACLs, but none of them matches.
    NO_MATCH = "no matching ACL"


class Rule(NamedTuple):
    """What decided."""

    kind: RuleKind
    is_allowed: bool
    acl: Acl | None = None

    def __str__(self) -> str:
        return self.kind.value if self.acl is None else describe_acl(self.acl)


class StandardAuthorizer:
    """Decides for one node. `complete_load` is called when the image contains the committed ACLs;
    before that, only super users are allowed anything."""

    __slots__ = ("_acls", "_allow_if_no_acl", "_decisions", "_is_loaded", "super_users", "version")

    def __init__(self, super_users: Iterable[str] = (), *, allow_if_no_acl: bool = False) -> None:
        """`allow_if_no_acl`: allow.everyone.if.no.acl.found."""
        self.super_users = frozenset(super_users)
        self._allow_if_no_acl = allow_if_no_acl
        self._acls = AclIndex()
        self._is_loaded = False
        #: Increases with every change.
        self.version = 0
        #: By principal, host, operation, resource type and name; None: any resource.
        self._decisions: dict[tuple[str, str, int, int, str | None], bool] = {}

    def __len__(self) -> int:
        return len(self._acls)

    def update(self, changes: Mapping[UUID, Acl | None]) -> None:
        """None: the ACL was removed."""
        for acl_id, acl in changes.items():
            if acl is None:
                self._acls.remove(acl_id)
            else:
                self._acls.put(acl_id, acl)
        self._forget()

    def complete_load(self) -> None:
        self._is_loaded = True
        self._forget()

    def _forget(self) -> None:
        self.version += 1
        self._decisions.clear()

    def authorize(self, principal: str, host: str, needs: Sequence[Need]) -> list[bool]:
        """Raises AuthorizerNotReady."""
        decisions = self._decisions
        results = []
        for need in needs:
            key = (principal, host, need.operation, need.resource_type, need.name)
            allowed = decisions.get(key)
            if allowed is None:
                allowed = self._cache(key, self.explain(principal, host, need).is_allowed)
            results.append(allowed)
        return results

    def authorize_any(self, principal: str, host: str, permission: Permission) -> bool:
        """Raises AuthorizerNotReady. As in Kafka, an operation that another one implies is not
        considered here."""
        key = (principal, host, permission.operation, permission.resource_type, None)
        allowed = self._decisions.get(key)
        if allowed is None:
            allowed = self._cache(key, self._is_allowed_on_any(principal, host, permission))
        return allowed

    def explain(self, principal: str, host: str, need: Need) -> Rule:
        """Returns the rule that decides. Raises AuthorizerNotReady."""
        if principal in self.super_users:
            return Rule(RuleKind.SUPER_USER, True)
        if not self._is_loaded:
            raise AuthorizerNotReady("The node has not read the ACLs yet.")
        hosts = (acl_host(host), WILDCARD)
        principals = (principal,) if principal == ALL_USERS else (principal, ALL_USERS)
        allowing = IMPLIED_BY.get(need.operation, frozenset((need.operation,)))
        allowed_by: Acl | None = None
        has_acls = False
        for pattern in self._acls.find(need.resource_type, need.name):
            has_acls = True
            for name in principals:
                for acl in pattern.get(name, {}).values():
                    if acl.host not in hosts:
                        continue
                    if acl.permission == AclPermission.ALLOW:
                        if allowed_by is None and (
                            acl.operation in allowing or acl.operation == ALL_OPERATIONS
                        ):
                            allowed_by = acl
                    elif acl.operation in (need.operation, ALL_OPERATIONS):
                        return Rule(RuleKind.ACL, False, acl)
        if allowed_by is not None:
            return Rule(RuleKind.ACL, True, allowed_by)
        if has_acls:
            return Rule(RuleKind.NO_MATCH, False)
        return Rule(RuleKind.NO_ACLS, self._allow_if_no_acl)

    def describe_rule(self, principal: str, host: str, need: Need) -> str:
        return str(self.explain(principal, host, need))

    def _is_allowed_on_any(self, principal: str, host: str, permission: Permission) -> bool:
        if self.explain(principal, host, Need(*permission, _ANY_NAME)).is_allowed:
            return True
        hosts = (acl_host(host), WILDCARD)
        allowed: list[Acl] = []
        denied: set[str] = set()
        denied_prefixes: set[str] = set()
        for acl in self._acls.of_type(permission.resource_type):
            if (
                acl.host not in hosts
                or acl.principal not in (principal, ALL_USERS)
                or acl.operation not in (permission.operation, ALL_OPERATIONS)
            ):
                continue
            if acl.permission == AclPermission.ALLOW:
                allowed.append(acl)
            elif acl.pattern_type == PatternType.PREFIXED:
                denied_prefixes.add(acl.name)
            elif acl.name == WILDCARD:
                return False
            else:
                denied.add(acl.name)
        # An ACL counts unless everything that it allows is denied.
        return any(
            (acl.pattern_type == PatternType.LITERAL and acl.name == WILDCARD)
            or not (
                (acl.pattern_type == PatternType.LITERAL and acl.name in denied)
                or any(acl.name[:end] in denied_prefixes for end in range(1, len(acl.name) + 1))
            )
            for acl in allowed
        )

    def _cache(self, key: tuple[str, str, int, int, str | None], allowed: bool) -> bool:
        if len(self._decisions) >= DECISIONS_MAX:
            self._decisions.clear()
        self._decisions[key] = allowed
        return allowed
