"""The SASL settings of listeners: mechanisms, credentials in sasl.jaas.config, lifetimes.

As in Kafka, the credentials of a listener are in
`listener.name.<listener>.<mechanism>.sasl.jaas.config`, both names in lower case. For listeners
between nodes, they include the user name and the password with which this node logs in to the other
nodes.
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from lograft.model.errors import InvalidConfig
from lograft.model.listeners import SecurityProtocol
from lograft.model.settings.jaas import MODULES, JaasEntry, parse_jaas
from lograft.model.settings.kerberos import (
    SERVICE_NAME,
    find_kerberos_problems,
    kerberos_login,
    service_name,
)
from lograft.model.settings.keys import ConfigKey, ConfigType
from lograft.model.settings.oauthbearer import find_oauthbearer_problems

if TYPE_CHECKING:
    from lograft.model.settings.broker import BrokerConfig

#: The mechanisms that a listener may enable.
SERVER_MECHANISMS: Final = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER", "GSSAPI")
#: The mechanisms with which a node may authenticate to another one.
NODE_MECHANISMS: Final = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "GSSAPI")
BETWEEN_BROKERS: Final = "sasl.mechanism.inter.broker.protocol"
TO_CONTROLLERS: Final = "sasl.mechanism.controller.protocol"
JAAS_CONFIG: Final = "sasl.jaas.config"
ENABLED_MECHANISMS: Final = "sasl.enabled.mechanisms"
_REAUTH: Final = ConfigKey("connections.max.reauth.ms", ConfigType.LONG, "0")


def mechanism_setting(mechanism: str, name: str) -> str:
    """Returns the name of a mechanism's setting, without the prefix of a listener."""
    return f"{mechanism.lower()}.{name}"


def enabled_mechanisms(config: "BrokerConfig", listener: str) -> tuple[str, ...]:
    """Returns the mechanisms that clients of the listener may use, in order."""
    mechanisms = config.value("sasl.enabled.mechanisms", listener=listener)
    assert isinstance(mechanisms, tuple)
    return tuple(dict.fromkeys(mechanisms))


def jaas_entry(config: "BrokerConfig", listener: str, mechanism: str) -> JaasEntry | None:
    """Returns the login module of a mechanism; None if it is not configured."""
    name = mechanism_setting(mechanism, JAAS_CONFIG)
    text = config.listener_text(name, listener=listener)
    return None if text is None else parse_jaas(text, setting=name)


def max_reauth_ms(config: "BrokerConfig", listener: str, mechanism: str) -> int:
    """Returns after how many milliseconds clients have to authenticate again; 0: never."""
    name = mechanism_setting(mechanism, "connections.max.reauth.ms")
    text = config.listener_text(name, listener=listener)
    if text is None:
        text = config.text("connections.max.reauth.ms", listener=listener)
    value = _REAUTH.parse(text)
    assert isinstance(value, int)
    return max(value, 0)


def login_mechanism(config: "BrokerConfig", listener: str) -> str:
    """Returns the mechanism with which this node logs in to a listener of other nodes."""
    to_controllers = listener in config.controller_listener_names
    text = config.text(TO_CONTROLLERS if to_controllers else BETWEEN_BROKERS)
    assert text is not None, "it has a default"
    return text


def find_sasl_problems(config: "BrokerConfig") -> Iterator[tuple[tuple[str, ...], str]]:
    """Yields the settings and the problem of each SASL listener that this node could not open or
    log in to."""
    for endpoint in config.listeners:
        if endpoint.security.uses_sasl:
            yield from find_listener_problems(config, endpoint.name, endpoint.security)
    peers = [config.controller_listener_names[0]]
    if config.is_broker:
        peers.append(config.inter_broker_listener_name)
    for listener in peers:
        security = config.listener_security.get(listener)
        if security is not None and security.uses_sasl:
            yield from _find_login_problems(config, listener, security)


def _find_login_problems(
    config: "BrokerConfig", listener: str, security: SecurityProtocol
) -> Iterator[tuple[tuple[str, ...], str]]:
    to_controllers = listener in config.controller_listener_names
    setting = TO_CONTROLLERS if to_controllers else BETWEEN_BROKERS
    mechanism = login_mechanism(config, listener)
    if mechanism not in NODE_MECHANISMS:
        yield (
            (setting,),
            f"nodes connect to listener {listener} with {security.name}, but {setting} is"
            f" {mechanism}: set it to one of {', '.join(NODE_MECHANISMS)}",
        )
        return
    if to_controllers and mechanism.startswith("SCRAM-") and _has_other_controllers(config):
        yield (
            (setting,),
            f"{setting} is {mechanism}, but this node is one of several controllers: a controller"
            " reads the SCRAM users from the metadata log, which it cannot do before the"
            " controllers have elected a leader. Set it to PLAIN on the controllers, or use SSL"
            " with client certificates; brokers may use SCRAM",
        )
        return
    enabled = enabled_mechanisms(config, listener)
    if not to_controllers and mechanism not in enabled:
        yield (
            (setting, ENABLED_MECHANISMS),
            f"{setting} is {mechanism}, which {ENABLED_MECHANISMS} of listener {listener} does not"
            f" contain ({', '.join(enabled)}): brokers could not authenticate to each other",
        )
    name = f"listener.name.{listener.lower()}.{mechanism_setting(mechanism, JAAS_CONFIG)}"
    entry = jaas_entry(config, listener, mechanism)
    if entry is not None and entry.module != MODULES[mechanism]:
        yield (name, setting), f"{name} must name the login module of {mechanism}"
    elif mechanism == "GSSAPI":
        try:
            kerberos_login(entry, service_name(config, listener))
        except InvalidConfig as error:
            yield (name, SERVICE_NAME, setting), str(error)
    elif entry is None or not entry.option("username") or not entry.option("password"):
        yield (
            (name, setting),
            f"this node has no user to log in to listener {listener} of other nodes: set {name} to"
            f' {MODULES[mechanism]} required username="NAME" password="…";',
        )


def _has_other_controllers(config: "BrokerConfig") -> bool:
    """Whether this node is a controller, and not the only one."""
    if not config.is_controller:
        return False
    if config.controller_quorum_voters:
        return len(config.controller_quorum_voters) > 1
    own = (*config.controller_listeners, *config.advertised_controller_listeners)
    servers = config.controller_quorum_bootstrap_servers
    return len(servers) > 1 or not any(
        endpoint.port == server.port and endpoint.host in ("", "0.0.0.0", "::", server.host)
        for endpoint in own
        for server in servers
    )


def find_listener_problems(
    config: "BrokerConfig", listener: str, security: SecurityProtocol
) -> Iterator[tuple[tuple[str, ...], str]]:
    """Yields the settings and the problem of a SASL listener that could not be opened."""
    prefix = f"listener.name.{listener.lower()}."
    names = (f"{prefix}{ENABLED_MECHANISMS}", ENABLED_MECHANISMS)
    mechanisms = enabled_mechanisms(config, listener)
    unsupported = [name for name in mechanisms if name not in SERVER_MECHANISMS]
    if unsupported or not mechanisms:
        enabled = ", ".join(unsupported) or "no mechanism"
        yield (
            names,
            f"listener {listener} uses {security.name}, but {ENABLED_MECHANISMS}"
            f" contains {enabled}: set it to one or more of {', '.join(SERVER_MECHANISMS)}",
        )
        return
    for mechanism in mechanisms:
        setting = f"{prefix}{mechanism_setting(mechanism, JAAS_CONFIG)}"
        entry = jaas_entry(config, listener, mechanism)
        if entry is None:
            if mechanism == "PLAIN":
                yield (
                    (setting, *names),
                    f"listener {listener} has no users for PLAIN: set {setting} to"
                    f' {MODULES["PLAIN"]} required user_NAME="password";',
                )
        elif entry.module != MODULES[mechanism]:
            yield (
                (setting, *names),
                f"{setting} must name the login module of {mechanism}, {MODULES[mechanism]}",
            )
        if mechanism == "GSSAPI":
            yield from find_kerberos_problems(config, listener, entry)
        if mechanism == "OAUTHBEARER":
            yield from find_oauthbearer_problems(config, listener)
