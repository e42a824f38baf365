"""Decisions, case by case; tests/golden and tests/compatibility compare many with Kafka's own."""

from uuid import UUID

import pytest

from lograft.security.acls import ALL_OPERATIONS, Acl, AclPermission, PatternType
from lograft.security.authorization import (
    CLUSTER_NAME,
    Need,
    Operation,
    Permission,
    ResourceType,
)
from lograft.security.standard_authorizer import (
    IMPLIED_BY,
    AuthorizerNotReady,
    RuleKind,
    StandardAuthorizer,
)

ALLOW, DENY = AclPermission.ALLOW, AclPermission.DENY
LITERAL, PREFIXED = PatternType.LITERAL, PatternType.PREFIXED
READ, WRITE, DESCRIBE = Operation.READ, Operation.WRITE, Operation.DESCRIBE
TOPIC = ResourceType.TOPIC
HOST = "10.0.0.1"


def acl(
    name: str = "t",
    operation: int = READ,
    permission: AclPermission = ALLOW,
    *,
    principal: str = "User:a",
    host: str = "*",
    pattern: PatternType = LITERAL,
    resource_type: ResourceType = TOPIC,
) -> Acl:
    return Acl(resource_type, name, pattern, principal, host, operation, permission)


def authorizer_with(
    *acls: Acl, super_users: tuple[str, ...] = (), allow_if_no_acl: bool = False
) -> StandardAuthorizer:
    authorizer = StandardAuthorizer(super_users, allow_if_no_acl=allow_if_no_acl)
    authorizer.update({UUID(int=number): each for number, each in enumerate(acls)})
    authorizer.complete_load()
    return authorizer


def may(
    authorizer: StandardAuthorizer,
    operation: Operation = READ,
    name: str = "t",
    *,
    principal: str = "User:a",
    host: str = HOST,
) -> bool:
    (allowed,) = authorizer.authorize(principal, host, [Need(operation, TOPIC, name)])
    return allowed


@pytest.mark.parametrize(
    ("acls", "allowed"),
    [
        ([], False),
        ([acl()], True),
        ([acl("u")], False),
        ([acl("*")], True),
        ([acl("*", pattern=PREFIXED)], False),
        ([acl(resource_type=ResourceType.GROUP)], False),
        ([acl(principal="User:b")], False),
        ([acl(principal="User:*")], True),
        ([acl(principal="Group:a")], False),
        ([acl(principal="User:A")], False),
        ([acl(host=HOST)], True),
        ([acl(host="10.0.0.2")], False),
        ([acl(operation=WRITE)], False),
        ([acl(operation=ALL_OPERATIONS)], True),
        # A denial wins, however general it is and however specific the permission.
        ([acl(), acl(permission=DENY)], False),
        ([acl(), acl("*", permission=DENY)], False),
        ([acl("*"), acl(permission=DENY)], False),
        ([acl(), acl(principal="User:*", permission=DENY)], False),
        ([acl(), acl(host=HOST, permission=DENY)], False),
        ([acl(), acl(operation=ALL_OPERATIONS, permission=DENY)], False),
        ([acl(), acl("*", operation=ALL_OPERATIONS, permission=DENY)], False),
        # Denials that do not apply.
        ([acl(), acl(host="10.0.0.2", permission=DENY)], True),
        ([acl(), acl(operation=WRITE, permission=DENY)], True),
        ([acl(), acl(principal="User:b", permission=DENY)], True),
        ([acl(permission=DENY)], False),
    ],
)
def test_decision(acls: list[Acl], allowed: bool) -> None:
    assert may(authorizer_with(*acls)) is allowed


@pytest.mark.parametrize(
    ("prefix", "allowed"),
    [("l", True), ("log", True), ("logs", True), ("logs-", False), ("og", False), ("Log", False)],
)
def test_prefixes(prefix: str, allowed: bool) -> None:
    assert may(authorizer_with(acl(prefix, pattern=PREFIXED)), name="logs") is allowed
    denied = authorizer_with(acl("*"), acl(prefix, pattern=PREFIXED, permission=DENY))
    assert may(denied, name="logs") is not allowed


def test_literal_name_is_not_a_prefix() -> None:
    authorizer = authorizer_with(acl("log"))
    assert may(authorizer, name="log")
    assert not may(authorizer, name="logs")


@pytest.mark.parametrize("operation", Operation)
@pytest.mark.parametrize("needed", Operation)
def test_implied_operations(operation: Operation, needed: Operation) -> None:
    """An ACL that allows an operation allows those that it implies; a denial does not."""
    implies = operation == needed or operation in IMPLIED_BY.get(needed, ())
    assert may(authorizer_with(acl(operation=operation)), needed) is implies
    denied = authorizer_with(
        acl(operation=ALL_OPERATIONS), acl(operation=operation, permission=DENY)
    )
    assert may(denied, needed) is (operation != needed)


def test_operations_that_imply_others() -> None:
    assert {int(key): sorted(value) for key, value in IMPLIED_BY.items()} == {
        DESCRIBE: [READ, WRITE, Operation.DELETE, Operation.ALTER, DESCRIBE],
        Operation.DESCRIBE_CONFIGS: [Operation.DESCRIBE_CONFIGS, Operation.ALTER_CONFIGS],
    }


def test_super_users_may_do_everything() -> None:
    authorizer = authorizer_with(
        acl("*", ALL_OPERATIONS, DENY, principal="User:*"), super_users=("User:root",)
    )
    assert may(authorizer, principal="User:root")
    assert not may(authorizer, principal="User:roo")
    assert not may(authorizer, principal="Group:root")


def test_resources_without_acls() -> None:
    authorizer = authorizer_with(acl("t", principal="User:b"), allow_if_no_acl=True)
    assert may(authorizer, name="u")
    # This one has ACLs, but none for the principal.
    assert not may(authorizer, name="t")
    assert not may(authorizer_with(), name="u")


def test_before_the_acls_are_loaded_only_super_users_are_allowed() -> None:
    authorizer = StandardAuthorizer(["User:root"], allow_if_no_acl=True)
    assert may(authorizer, principal="User:root")
    with pytest.raises(AuthorizerNotReady):
        may(authorizer)
    with pytest.raises(AuthorizerNotReady):
        authorizer.authorize_any("User:a", HOST, Permission(READ, TOPIC))
    authorizer.complete_load()
    assert may(authorizer)


def test_changes_apply_to_the_next_decision() -> None:
    authorizer = authorizer_with(acl())
    assert may(authorizer)
    version = authorizer.version
    authorizer.update({UUID(int=0): None, UUID(int=7): None})
    assert not may(authorizer)
    assert authorizer.version > version
    assert len(authorizer) == 0
    authorizer.update({UUID(int=0): acl("u")})
    authorizer.update({UUID(int=0): acl("t", pattern=PREFIXED)})
    assert may(authorizer, name="t2")
    assert not may(authorizer, name="u")


def test_equal_acls_are_removed_one_by_one() -> None:
    """A log may contain an ACL more than once."""
    for pattern in (LITERAL, PREFIXED):
        authorizer = authorizer_with(acl(pattern=pattern), acl(pattern=pattern))
        authorizer.update({UUID(int=0): None})
        assert may(authorizer)
        authorizer.update({UUID(int=1): None})
        assert not may(authorizer)


@pytest.mark.parametrize(
    ("acls", "kind", "number"),
    [
        ([], RuleKind.NO_ACLS, None),
        ([acl(principal="User:b")], RuleKind.NO_MATCH, None),
        ([acl("*"), acl("t", pattern=PREFIXED), acl()], RuleKind.ACL, 2),
        ([acl("*"), acl("t", pattern=PREFIXED)], RuleKind.ACL, 1),
        ([acl(), acl("*", permission=DENY)], RuleKind.ACL, 1),
    ],
)
def test_rule_that_decides(acls: list[Acl], kind: RuleKind, number: int | None) -> None:
    rule = authorizer_with(*acls).explain("User:a", HOST, Need(READ, TOPIC, "t"))
    assert rule.kind is kind
    assert rule.acl == (None if number is None else acls[number])


@pytest.mark.parametrize(
    ("acls", "allowed"),
    [
        ([], False),
        ([acl("x")], True),
        ([acl("x", pattern=PREFIXED)], True),
        ([acl("*")], True),
        # As in Kafka, implied operations count only on the wildcard.
        ([acl("x", WRITE)], False),
        ([acl("x", ALL_OPERATIONS)], True),
        ([acl("x", principal="User:b")], False),
        ([acl("x", principal="User:*")], True),
        ([acl("x", host="10.0.0.2")], False),
        ([acl("x"), acl("x", permission=DENY)], False),
        ([acl("x"), acl("x", pattern=PREFIXED, permission=DENY)], False),
        ([acl("xy"), acl("x", pattern=PREFIXED, permission=DENY)], False),
        ([acl("xy", pattern=PREFIXED), acl("x", pattern=PREFIXED, permission=DENY)], False),
        ([acl("x", pattern=PREFIXED), acl("xy", pattern=PREFIXED, permission=DENY)], True),
        ([acl("x", pattern=PREFIXED), acl("x", permission=DENY)], True),
        ([acl("x"), acl("*", permission=DENY)], False),
        ([acl("*"), acl("*", permission=DENY)], False),
        ([acl("*"), acl("x", permission=DENY)], True),
        ([acl("x"), acl("y", permission=DENY)], True),
    ],
)
def test_decision_about_any_resource(acls: list[Acl], allowed: bool) -> None:
    authorizer = authorizer_with(*acls)
    for _ in range(2):
        assert authorizer.authorize_any("User:a", HOST, Permission(READ, TOPIC)) is allowed


def test_cluster_has_a_name() -> None:
    authorizer = authorizer_with(
        acl(CLUSTER_NAME, Operation.CLUSTER_ACTION, resource_type=ResourceType.CLUSTER)
    )
    need = Need(Operation.CLUSTER_ACTION, ResourceType.CLUSTER, CLUSTER_NAME)
    assert authorizer.authorize("User:a", HOST, [need]) == [True]
