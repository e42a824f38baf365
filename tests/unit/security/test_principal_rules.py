"""What rules do is compared with Kafka in tests/golden/test_kafka_principals.py."""

import pytest

from lograft.model.errors import InvalidConfig
from lograft.security.principal_rules import PrincipalRules


def test_patterns_match_whole_names() -> None:
    """A name that only contains the pattern belongs to somebody else."""
    rules = PrincipalRules("RULE:CN=admin/admin/")
    assert rules.name_of("CN=admin") == "admin"
    assert rules.name_of("OU=x,CN=admin") is None
    assert rules.name_of("CN=admin2") is None


def test_a_name_without_a_rule_has_no_principal() -> None:
    assert PrincipalRules("").name_of("CN=a") is None
    assert PrincipalRules("DEFAULT").name_of("CN=a") == "CN=a"


@pytest.mark.parametrize(
    ("rules", "reason"),
    [
        ("nonsense", "the rule 'nonsense' is invalid at 'nonsense'"),
        ("RULE:(/x/", "is not a valid regular expression"),
        ("RULE:CN=a/$1/", "refers to a group that its pattern does not have"),
        ("RULE:CN=(a)/$x/", "refers to a group that its pattern does not have"),
    ],
)
def test_invalid_rules_are_rejected(rules: str, reason: str) -> None:
    with pytest.raises(InvalidConfig, match=r"ssl\.principal\.mapping\.rules: ") as found:
        PrincipalRules(rules)
    assert reason in str(found.value)
