import pytest

from lograft.model.errors import InvalidConfig
from lograft.model.settings.jaas import parse_jaas
from lograft.model.settings.kerberos import (
    KerberosLogin,
    KerberosSettings,
    kerberos_login,
    kerberos_settings,
)
from lograft.model.settings.sasl import jaas_entry
from tests.unit.model.settings.test_sasl import config

PREFIX = "listener_name_outside_"
JAAS = f"{PREFIX}gssapi_sasl_jaas_config"
MODULE = "com.sun.security.auth.module.Krb5LoginModule required"
KEY = f'{MODULE} useKeyTab=true keyTab="/etc/node.keytab" principal="kafka/h@R";'


def settings_of(**changes: str | None) -> KerberosSettings:
    node = config(**{f"{PREFIX}sasl_enabled_mechanisms": "GSSAPI", JAAS: KEY, **changes})
    return kerberos_settings(node, "OUTSIDE", jaas_entry(node, "OUTSIDE", "GSSAPI"))


def test_the_key_is_that_of_the_login_module() -> None:
    settings = settings_of()
    assert (settings.principal, settings.keytab_path) == ("kafka/h@R", "/etc/node.keytab")
    assert [rule.text for rule in settings.rules] == ["DEFAULT"]


def test_a_listener_may_have_rules_of_its_own() -> None:
    settings = settings_of(
        sasl_kerberos_principal_to_local_rules="DEFAULT",
        listener_name_outside_sasl_kerberos_principal_to_local_rules="RULE:[1:$1]/L,DEFAULT",
    )
    assert [rule.text for rule in settings.rules] == ["RULE:[1:$1]/L", "DEFAULT"]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({JAAS: None}, "OUTSIDE enables GSSAPI, but .* has no principal and keyTab: set it to com"),
        ({JAAS: f'{MODULE} keyTab="/etc/node.keytab";'}, "has no principal and keyTab"),
        ({JAAS: f'{MODULE} principal="kafka/h@R";'}, "has no principal and keyTab"),
        ({JAAS: KEY.replace(MODULE, "x.PlainLoginModule required")}, "login module .* supported"),
        (
            {"sasl_kerberos_principal_to_local_rules": "RULE:[1:$2]"},
            r"Invalid value RULE:\[1:\$2\] for configuration sasl\.kerberos\.principal",
        ),
    ],
)
def test_settings_that_cannot_work_are_rejected(changes: dict[str, str], message: str) -> None:
    with pytest.raises(InvalidConfig, match=message):
        settings_of(**changes)


@pytest.mark.parametrize(
    ("options", "service", "login"),
    [
        (None, "kafka", KerberosLogin("kafka", None, None, None)),
        ("serviceName=kafka", None, KerberosLogin("kafka", None, None, None)),
        (
            'serviceName=kafka useKeyTab=true keyTab="/etc/alice.keytab" principal="alice@R"',
            "kafka",
            KerberosLogin("kafka", "alice@R", "/etc/alice.keytab", None),
        ),
        (
            'useTicketCache=true ticketCache="/tmp/tickets"',
            "kafka",
            KerberosLogin("kafka", None, None, "/tmp/tickets"),
        ),
    ],
)
def test_logins_of_clients(options: str | None, service: str | None, login: KerberosLogin) -> None:
    entry = None if options is None else parse_jaas(f"{MODULE} {options};", setting="x")
    assert kerberos_login(entry, service) == login


@pytest.mark.parametrize(
    ("options", "service", "message"),
    [
        ("", None, "requires sasl.kerberos.service.name"),
        ("serviceName=kafka", "broker", "differ: remove one"),
        ('useKeyTab=true keyTab="x"', "kafka", "requires keyTab and principal"),
        ("useKeyTab=true principal=x", "kafka", "requires keyTab and principal"),
    ],
)
def test_logins_that_cannot_work_are_rejected(
    options: str, service: str | None, message: str
) -> None:
    entry = parse_jaas(f"{MODULE} {options};", setting="x")
    with pytest.raises(InvalidConfig, match=message):
        kerberos_login(entry, service)
