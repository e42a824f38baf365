"""The results are those of KerberosShortNamer in Apache Kafka 4.3.1, except that rules which fail
there at every login are rejected when they are configured."""

import pytest

from lograft.model.errors import InvalidConfig
from lograft.model.kerberos_names import NameRejected, parse_rules, shorten

REALM = "R"


@pytest.mark.parametrize(
    ("rule", "name", "user"),
    [
        ("DEFAULT", "alice@R", "alice"),
        ("DEFAULT", "kafka/h@R", "kafka"),
        ("DEFAULT", "alice", "alice"),
        ("RULE:[1:$1](App.*)s/App(.*)/$1/gL", "AppService@R", "service"),
        ("RULE:[2:$1@$0](.*@R)s/@.*//", "kafka/h@R", "kafka"),
        ("RULE:[1:$1@$0](.*@R)s/@R//U", "bob@R", "BOB"),
        ("RULE:[1:$1$1]s/b/x/g", "bob@R", "xoxxox"),
        ("RULE:[1:$1$1]s/b/x/", "bob@R", "xobbob"),
        ("RULE:[1:$1]/L", "BOB@R", "bob"),
        ("RULE:[1:$1]L", "BOB@R", "bob"),
        ("RULE:[1:$1]", "bob@OTHER", "bob"),
        ("RULE:[2:$2;$1]", "kafka/h.x@R", "h.x;kafka"),
        (r"RULE:[2:$1$2$0]s/h/\$/", "kafka/h@R", "kafka$R"),
        ("RULE:[1:$1]s/b//gL", "BOBb@R", "bob"),
        (r"RULE:[1:$1]s/o/\\/", "bob@R", "b\\b"),
        ("RULE:[1:$1]s/(b)|(o)/[$1$2]/g", "bob@R", "[b][o][b]"),
    ],
)
def test_rules_shorten_names(rule: str, name: str, user: str) -> None:
    assert shorten(name, parse_rules([rule]), REALM) == user


@pytest.mark.parametrize(
    ("rule", "name"),
    [
        ("DEFAULT", "alice@OTHER"),
        ("DEFAULT", "a/b/c@R"),
        ("DEFAULT", "a@b@R"),
        ("RULE:[1:$1@$0]", "bob@OTHER"),
        ("RULE:[3:$3]", "kafka/h@R"),
        ("RULE:[1:$1](bobby)", "bob@R"),
    ],
)
def test_names_that_no_rule_shortens_are_rejected(rule: str, name: str) -> None:
    with pytest.raises(NameRejected):
        shorten(name, parse_rules([rule]), REALM)


def test_the_first_rule_that_applies_decides() -> None:
    rules = parse_rules(["RULE:[2:$2]", "RULE:[1:$1](bob)s/b/d/", "DEFAULT"])
    names = ("kafka/h@R", "bob@R", "eve@R")
    assert [shorten(name, rules, REALM) for name in names] == ["h", "dob", "eve"]


@pytest.mark.parametrize(
    "rule",
    [
        "",
        "RULE",
        "DEFAULT/L",
        "DEFAULTL",
        "DEFAULT x",
        "RULE:[:x]",
        "RULE:[1:$1](b",
        "RULE:[1:$2]",
        "RULE:[1:$x]",
        "RULE:[1:$]",
        "RULE:[1:$12]",
        "RULE:[1:$1]s/b/$1/",
        "RULE:[1:$1]s/o/$/",
        "RULE:[1:$1](*)",
        "RULE:[2:a](b)DEFAULT",
    ],
)
def test_invalid_rules_are_rejected(rule: str) -> None:
    with pytest.raises(InvalidConfig, match=r"sasl\.kerberos\.principal\.to\.local\.rules"):
        parse_rules(["DEFAULT", rule])
