"""The Kerberos settings of a listener: the key of the node, and the names of users.

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

MECHANISM: Final = "GSSAPI"
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


def find_kerberos_problems(
    config: "BrokerConfig", listener: str, entry: JaasEntry | None
) -> Iterator[tuple[tuple[str, ...], str]]:
    try:
        kerberos_settings(config, listener, entry)
    except InvalidConfig as error:
        yield (f"listener.name.{listener.lower()}.gssapi.sasl.jaas.config", RULES), str(error)
