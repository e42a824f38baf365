"""The SASL settings of listeners: mechanisms, credentials in sasl.jaas.config, lifetimes.

As in Kafka, the credentials of a listener are in
`listener.name.<listener>.<mechanism>.sasl.jaas.config`, both names in lower case.
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from lograft.model.listeners import SecurityProtocol
from lograft.model.settings.jaas import MODULES, JaasEntry, parse_jaas
from lograft.model.settings.keys import ConfigKey, ConfigType
from lograft.model.settings.oauthbearer import find_oauthbearer_problems

if TYPE_CHECKING:
    from lograft.model.settings.broker import BrokerConfig

#: The mechanisms that a listener may enable.
SERVER_MECHANISMS: Final = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER")
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


def find_sasl_problems(config: "BrokerConfig") -> Iterator[tuple[tuple[str, ...], str]]:
    """Yields the settings and the problem of each SASL listener that this node could not open."""
    for endpoint in config.listeners:
        if endpoint.security.uses_sasl:
            yield from _find_listener_problems(config, endpoint.name, endpoint.security)


def _find_listener_problems(
    config: "BrokerConfig", listener: str, security: SecurityProtocol
) -> Iterator[tuple[tuple[str, ...], str]]:
    prefix = f"listener.name.{listener.lower()}."
    names = (f"{prefix}{ENABLED_MECHANISMS}", ENABLED_MECHANISMS)
    mechanisms = enabled_mechanisms(config, listener)
    unsupported = [name for name in mechanisms if name not in SERVER_MECHANISMS]
    if unsupported or not mechanisms:
        enabled = ", ".join(unsupported) or "no mechanism"
        yield (
            names,
            f"listener {listener} uses {security.name}, but {ENABLED_MECHANISMS} has {enabled}:"
            f" set it to one or more of {', '.join(SERVER_MECHANISMS)}",
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
        if mechanism == "OAUTHBEARER":
            yield from find_oauthbearer_problems(config, listener)
