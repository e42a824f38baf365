import pytest

from lograft.model.errors import InvalidConfig
from lograft.model.settings.authorizer import (
    STANDARD_AUTHORIZER,
    allows_everyone_without_acl,
    super_users,
)
from lograft.model.settings.broker import broker_config, unknown_settings
from tests.unit.model.settings.test_broker import COMBINED

AUTHORIZED = COMBINED | {"authorizer.class.name": STANDARD_AUTHORIZER}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", set()),
        (" ; ", set()),
        ("User:a", {"User:a"}),
        (" User:CN=a, O=b ; User:c;", {"User:CN=a, O=b", "User:c"}),
    ],
)
def test_super_users_are_separated_by_semicolons(text: str, expected: set[str]) -> None:
    config = broker_config(AUTHORIZED | {"super.users": text})
    assert super_users(config.raw) == expected
    assert super_users(COMBINED) == set()


@pytest.mark.parametrize(
    ("text", "expected"), [("", False), ("false", False), (" TRUE ", True), ("true", True)]
)
def test_everyone_may_be_allowed_without_acls(text: str, expected: bool) -> None:
    config = broker_config(AUTHORIZED | {"allow.everyone.if.no.acl.found": text})
    assert allows_everyone_without_acl(config.raw) is expected
    assert not allows_everyone_without_acl(COMBINED)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"super.users": "User:a;bob"}, "super.users contains 'bob': write principals as"),
        ({"allow.everyone.if.no.acl.found": "yes"}, "must be true or false, not 'yes'"),
        (
            {"authorizer.class.name": "kafka.security.authorizer.AclAuthorizer"},
            "authorizer.class.name: String must be one of: .*StandardAuthorizer",
        ),
    ],
)
def test_invalid_settings_are_rejected(settings: dict[str, str], message: str) -> None:
    with pytest.raises(InvalidConfig, match=message):
        broker_config(AUTHORIZED | settings)


def test_settings_of_the_authorizer_are_unknown_without_one() -> None:
    settings = {"super.users": "User:a", "allow.everyone.if.no.acl.found": "true"}
    assert unknown_settings(broker_config(AUTHORIZED | settings)) == ()
    assert unknown_settings(broker_config(COMBINED | settings)) == tuple(sorted(settings))
