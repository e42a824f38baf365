"""The Kerberos settings of a listener (the key of the node, and the names of users) and of a login.

As in Kafka, the key is described by the options of Krb5LoginModule in
`listener.name.<listener>.gssapi.sasl.jaas.config`. The module is not loaded: MIT's Kerberos library
reads the keytab and krb5.conf.
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final, NamedTuple

from lograft.model.errors import InvalidConfig
from lograft.model.kerberos_names import SETTING as RULES
from lograft.model.kerberos_names import Rule, parse_rules
from lograft.model.settings.jaas import KERBEROS_MODULE, JaasEntry

if TYPE_CHECKING:
    from lograft.model.settings.broker import BrokerConfig

SERVICE_NAME: Final = "sasl.kerberos.service.name"
_EXAMPLE: Final = (
    f'{KERBEROS_MODULE} required useKeyTab=true storeKey=true keyTab="/etc/lograft/node.keytab"'
    ' principal="kafka/host@REALM";'
)


class KerberosSettings(NamedTuple):
    #: The principal of the node: service/host@REALM.
    principal: str
    keytab_path: str
    rules: tuple[Rule, ...]


def kerberos_settings(
    config: "BrokerConfig", listener: str, entry: JaasEntry | None
) -> KerberosSettings:
    """`entry` is the login module of the listener for GSSAPI. Raises InvalidConfig."""
    setting = f"listener.name.{listener.lower()}.gssapi.sasl.jaas.config"
    principal = keytab_path = None
    if entry is not None:
        principal, keytab_path = entry.option("principal"), entry.option("keyTab")
    if not principal or not keytab_path:
        raise InvalidConfig(
            f"listener {listener} enables GSSAPI, but {setting} has no principal and keyTab:"
            f" set it to {_EXAMPLE} or enable another mechanism in sasl.enabled.mechanisms"
        )
    rules = config.value(RULES, listener=listener)
    assert isinstance(rules, tuple)
    return KerberosSettings(principal, keytab_path.removeprefix("file://"), parse_rules(rules))


class KerberosLogin(NamedTuple):
    """How a client gets its tickets."""

    #: The first part of the principals of servers: kafka for kafka/host@REALM.
    service: str
    #: Without a keytab, the tickets of a cache are used.
    principal: str | None
    keytab_path: str | None
    #: None: that of the environment.
    cache_path: str | None


def service_name(config: "BrokerConfig", listener: str) -> str | None:
    """Returns the first part of the principals of nodes, as this node expects it."""
    name = config.value(SERVICE_NAME, listener=listener)
    assert name is None or isinstance(name, str)
    return name


def kerberos_login(entry: JaasEntry | None, service: str | None) -> KerberosLogin:
    """`entry` is the client's sasl.jaas.config, `service` its sasl.kerberos.service.name. Raises
    InvalidConfig."""
    named = None if entry is None else entry.option("serviceName")
    if service is not None and named is not None and service != named:
        raise InvalidConfig(
            f"{SERVICE_NAME} and serviceName in sasl.jaas.config differ: remove one"
        )
    service = service or named
    if not service:
        raise InvalidConfig(f"GSSAPI requires {SERVICE_NAME}, which is kafka in most clusters")
    if entry is None:
        return KerberosLogin(service, None, None, None)
    keytab_path = cache_path = None
    if (entry.option("useKeyTab") or "").lower() == "true":
        keytab_path = entry.option("keyTab")
        if keytab_path is None or entry.option("principal") is None:
            raise InvalidConfig("useKeyTab=true in sasl.jaas.config requires keyTab and principal")
        keytab_path = keytab_path.removeprefix("file://")
    else:
        cache_path = entry.option("ticketCache")
    return KerberosLogin(service, entry.option("principal"), keytab_path, cache_path)


def find_kerberos_problems(
    config: "BrokerConfig", listener: str, entry: JaasEntry | None
) -> Iterator[tuple[tuple[str, ...], str]]:
    try:
        kerberos_settings(config, listener, entry)
    except InvalidConfig as error:
        yield (f"listener.name.{listener.lower()}.gssapi.sasl.jaas.config", RULES), str(error)
