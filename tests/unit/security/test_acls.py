import pytest

from lograft.security.acls import ANY, Acl, AclFilter, AclPermission, PatternType, acl_host
from lograft.security.authorization import Operation, ResourceType

LITERAL, PREFIXED = PatternType.LITERAL, PatternType.PREFIXED


def topic_acl(name: str, pattern: PatternType = LITERAL) -> Acl:
    return Acl(
        ResourceType.TOPIC,
        name,
        pattern,
        "User:a",
        "*",
        Operation.READ,
        AclPermission.ALLOW,
    )


@pytest.mark.parametrize(
    ("pattern", "name", "selected"),
    [
        (PatternType.ANY, None, ["log", "logs", "*", "log-prefix"]),
        (PatternType.ANY, "log", ["log", "log-prefix"]),
        (PatternType.MATCH, "logs", ["logs", "*", "log-prefix"]),
        (PatternType.MATCH, "other", ["*"]),
        (LITERAL, "logs", ["logs"]),
        (LITERAL, None, ["log", "logs", "*"]),
        (PREFIXED, "logs", []),
        (PREFIXED, "log", ["log-prefix"]),
        (PREFIXED, None, ["log-prefix"]),
    ],
)
def test_filter_selects_names(pattern: PatternType, name: str | None, selected: list[str]) -> None:
    acls = {name: topic_acl(name) for name in ("log", "logs", "*")}
    acls["log-prefix"] = topic_acl("log", PREFIXED)
    filtered = AclFilter(ResourceType.TOPIC, name, pattern)
    assert [key for key, acl in acls.items() if filtered.matches(acl)] == selected


@pytest.mark.parametrize(
    ("change", "matches"),
    [
        ({}, True),
        ({"resource_type": ResourceType.GROUP}, False),
        ({"principal": "User:a"}, True),
        ({"principal": "User:b"}, False),
        ({"host": "*"}, True),
        ({"host": "10.0.0.1"}, False),
        ({"operation": Operation.READ}, True),
        ({"operation": Operation.WRITE}, False),
        ({"permission": AclPermission.ALLOW}, True),
        ({"permission": AclPermission.DENY}, False),
    ],
)
def test_filter_selects_fields(change: dict[str, object], matches: bool) -> None:
    filtered = AclFilter(ANY)._replace(**change)  # type: ignore[arg-type]
    assert filtered.matches(topic_acl("t")) == matches


@pytest.mark.parametrize(
    ("host", "expected"),
    [
        ("10.0.0.1", "10.0.0.1"),
        ("::1", "0:0:0:0:0:0:0:1"),
        ("fe80::a%eth0", "fe80:0:0:0:0:0:0:a"),
        ("::ffff:10.0.0.1", "10.0.0.1"),
        ("node-1", "node-1"),
        ("", ""),
    ],
)
def test_hosts_are_written_as_java_writes_them(host: str, expected: str) -> None:
    assert acl_host(host) == expected
