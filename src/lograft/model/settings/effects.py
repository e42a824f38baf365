"""Effects of settings in Lograft: reasons that several settings share, and the checks that use the
`effect` of each setting.

Operators must be able to rely on every setting that Lograft accepts. A setting without effect is
therefore reported, and an unsupported one is rejected by name.
"""

from collections.abc import Mapping
from typing import Final

from lograft.model.errors import InvalidConfig
from lograft.model.settings.keys import (
    ConfigKey,
    Effect,
    NoEffect,
    PartlyUsed,
    Unsupported,
    Used,
    split_list,
)

JAVA_POLICY: Final = Unsupported("policies are not enforced, since Java classes are not loaded")
GROUPS_NOT_SERVED: Final = PartlyUsed(
    ("share", "streams"), "share groups and streams groups are not implemented yet"
)
JAVA_CLASS: Final = Unsupported("Java classes are not loaded")
NEEDS_MECHANISM: Final = NoEffect(
    "it needs the prefix of a listener and a mechanism, in lower case:"
    " listener.name.<listener>.<mechanism>.sasl.jaas.config"
)
NOT_PER_LISTENER: Final = NoEffect("it cannot be set for a single listener")
NO_JAVA_REPORTERS: Final = NoEffect(
    "Java classes are not loaded; metrics are served over HTTP (lograft.http.listeners)"
)
NO_METRIC_SAMPLES: Final = NoEffect(
    "metrics are counters, gauges and histograms without windows of samples or recording levels"
)
NO_PURGATORY: Final = NoEffect("delayed requests are completed directly; there is no purgatory")
KERBEROS_LIBRARY: Final = NoEffect(
    "the Kerberos library gets and renews tickets by itself, from the keytab"
)
NO_OAUTHBEARER: Final = NoEffect(
    "nodes verify tokens of clients, but do not retrieve tokens for themselves"
)
NO_SHARE_GROUPS: Final = NoEffect("share groups are not implemented yet")
NO_STREAMS_GROUPS: Final = NoEffect("streams groups are not implemented yet")
NO_THREAD_POOL: Final = NoEffect("one event loop serves all requests; there is no thread pool")
NO_TIERED_STORAGE: Final = NoEffect("tiered storage is not implemented yet")
OPENSSL: Final = NoEffect("it configures Java's TLS implementation; Lograft uses OpenSSL")
TIERED_STORAGE: Final = Unsupported(
    "tiered storage is not implemented yet, so segments stay on the broker's own disks"
)
#: The log line for settings without effect, at startup and when they change.
NO_EFFECT_WARNING: Final = (
    "these settings have no effect in Lograft (see docs/settings.md for the reasons): %s"
)
#: Values that turn a setting off.
TURNED_OFF: Final = (None, "", (), False)


def check_supported(keys: Mapping[str, ConfigKey], values: Mapping[str, str]) -> None:
    """Raises InvalidConfig for the first setting that requires a function that Lograft lacks."""
    for name, text in values.items():
        key = keys.get(name)
        if key is not None and not is_supported(key, text):
            assert isinstance(key.effect, Unsupported)
            raise InvalidConfig(
                f"{name} is not supported by Lograft: {key.effect.reason}. Remove the setting"
            )


def is_supported(key: ConfigKey, text: str | None) -> bool:
    """Returns whether Lograft implements the value, or the value turns the setting off. Invalid
    values are rejected or skipped for another reason."""
    return (
        not isinstance(key.effect, Unsupported)
        or not key.is_valid(text)
        or key.is_default(text)
        or key.parse(text) in TURNED_OFF
    )


def find_without_effect(
    keys: Mapping[str, ConfigKey], values: Mapping[str, str]
) -> tuple[str, ...]:
    """Returns the settings that differ from their default and have no effect, in order; for a list
    that is partly used, `name=items`."""
    names = []
    for name, text in values.items():
        key = keys.get(name)
        if key is None or not key.is_valid(text) or key.is_default(text):
            continue
        match key.effect:
            case NoEffect():
                names.append(name)
            case PartlyUsed(unused):
                items = [item for item in split_list(text) if item in unused]
                if items:
                    names.append(f"{name}={','.join(items)}")
            case Used() | Unsupported():
                pass
    return tuple(sorted(names))


def describe_effect(effect: Effect) -> str | None:
    """Returns the sentence that DescribeConfigs adds to the documentation of a setting."""
    match effect:
        case Used():
            return None
        case PartlyUsed(items, reason):
            return f"No effect in Lograft of {' and '.join(items)}: {reason}."
        case NoEffect(reason):
            return f"No effect in Lograft: {reason}."
        case Unsupported(reason):
            return f"Not supported by Lograft: {reason}."
