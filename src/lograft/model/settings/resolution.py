"""The values that DescribeConfigs returns: for a topic, a broker or its loggers, every setting with
its value, the source of the value, and the value that would apply without that source (synonyms).

Pure functions of the explicit values. The rules are Kafka's, observed on a Kafka broker.
"""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from lograft.model.settings.broker import BrokerConfig, base_name, find_key
from lograft.model.settings.broker_table import BROKER_CONFIGS, DYNAMIC_BROKER_CONFIGS
from lograft.model.settings.dynamic import value_problem
from lograft.model.settings.effects import describe_effect
from lograft.model.settings.keys import ConfigKey, ConfigSource, ConfigType
from lograft.model.settings.topic import TOPIC_CONFIGS, TOPIC_SYNONYMS, broker_text_for_topic

#: Broker settings with the same meaning in several units, highest precedence first.
_UNIT_FAMILIES: Final = (
    ("log.flush.interval.ms", "log.flush.scheduler.interval.ms"),
    ("log.retention.ms", "log.retention.minutes", "log.retention.hours"),
    ("log.roll.jitter.ms", "log.roll.jitter.hours"),
    ("log.roll.ms", "log.roll.hours"),
)
_BROKER_SYNONYMS: Final = {
    **{name: family for family in _UNIT_FAMILIES for name in family},
    # The scheduler's interval is the default of the log's, not the other way round.
    "log.flush.scheduler.interval.ms": ("log.flush.scheduler.interval.ms",),
}


@dataclass(frozen=True, slots=True)
class Synonym:
    name: str
    value: str | None
    source: ConfigSource


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigEntry:
    name: str
    #: None if there is no value, and for everything sensitive.
    value: str | None
    source: ConfigSource
    synonyms: tuple[Synonym, ...] = ()
    is_sensitive: bool = False
    read_only: bool = False
    type: ConfigType = ConfigType.UNKNOWN


def describe_topic(
    overrides: Mapping[str, str], broker: BrokerConfig, *, names: Collection[str] | None = None
) -> list[ConfigEntry]:
    """Returns all settings of a topic, or those in `names`; internal ones only if overridden."""
    values = _effective_values(broker)
    entries = []
    for key in TOPIC_CONFIGS.values():
        if names is not None and key.name not in names:
            continue
        override = overrides.get(key.name)
        if key.internal and override is None:
            continue
        synonyms: tuple[Synonym, ...] = ()
        if TOPIC_SYNONYMS.get(key.name):
            synonyms = broker_synonyms(TOPIC_SYNONYMS[key.name][0][0], broker)
        if override is not None:
            synonyms = (Synonym(key.name, override, ConfigSource.DYNAMIC_TOPIC), *synonyms)
            text: str | None = override
        else:
            text = broker_text_for_topic(key.name, values) or key.default
        entries.append(
            ConfigEntry(
                name=key.name,
                value=_displayed_value(key, text),
                source=synonyms[0].source if synonyms else ConfigSource.DEFAULT,
                synonyms=synonyms,
                type=key.type,
            )
        )
    return entries


def describe_override(
    key: ConfigKey,
    override: str | None,
    *,
    source: ConfigSource,
    synonyms: tuple[Synonym, ...] = (),
) -> ConfigEntry:
    """Returns a setting whose own value, if any, has the given `source`, otherwise `synonyms`."""
    text = synonyms[0].value if synonyms else key.default
    if override is not None:
        text = override
        synonyms = (Synonym(key.name, override, source), *synonyms)
    return ConfigEntry(
        name=key.name,
        value=_displayed_value(key, text),
        source=synonyms[0].source if synonyms else ConfigSource.DEFAULT,
        synonyms=synonyms,
        type=key.type,
    )


def describe_broker(
    broker: BrokerConfig, *, names: Collection[str] | None = None
) -> list[ConfigEntry]:
    """Returns all settings of this broker, including unknown names of its file and of the dynamic
    settings."""
    values = _effective_values(broker)
    known = [key.name for key in BROKER_CONFIGS.values() if not key.internal]
    extra = sorted(set(values) - set(known))
    return [
        _broker_entry(name, values, broker_synonyms(name, broker))
        for name in (*known, *extra)
        if names is None or name in names
    ]


def describe_cluster_default(
    dynamic_default: Mapping[str, str], *, names: Collection[str] | None = None
) -> list[ConfigEntry]:
    """Returns the dynamic settings for all brokers (the broker resource with the empty name), as
    they were written. Like Kafka, omits those that no broker can apply."""
    return [
        ConfigEntry(
            name=name,
            value=None if _is_sensitive(find_key(name)) else text,
            source=ConfigSource.DYNAMIC_DEFAULT_BROKER,
            synonyms=(_synonym(name, text, ConfigSource.DYNAMIC_DEFAULT_BROKER),),
            is_sensitive=_is_sensitive(find_key(name)),
            read_only=name not in DYNAMIC_BROKER_CONFIGS,
            type=key.type if (key := find_key(name)) else ConfigType.UNKNOWN,
        )
        for name, text in sorted(dynamic_default.items())
        if (names is None or name in names)
        and value_problem(name, text, whole_cluster=True) is None
    ]


def describe_loggers(
    levels: Mapping[str, str], *, names: Collection[str] | None = None
) -> list[ConfigEntry]:
    return [
        ConfigEntry(name=name, value=level, source=ConfigSource.DYNAMIC_BROKER_LOGGER)
        for name, level in sorted(levels.items())
        if names is None or name in names
    ]


def topic_documentation(name: str) -> str | None:
    """Returns the documentation of a topic setting with its effect; loads the texts on first
    use."""
    from lograft.model.settings.topic_docs import TOPIC_DOCS

    return with_effect(TOPIC_DOCS.get(name), TOPIC_CONFIGS.get(name))


def broker_documentation(name: str) -> str | None:
    """Returns the same for a broker setting, with or without the prefix of a listener."""
    from lograft.model.settings.broker_docs import BROKER_DOCS

    return with_effect(BROKER_DOCS.get(base_name(name)), find_key(name))


def with_effect(text: str | None, key: ConfigKey | None) -> str | None:
    note = describe_effect(key.effect) if key is not None else None
    return " ".join(part for part in (text, note) if part) or None


def _effective_values(broker: BrokerConfig) -> dict[str, str]:
    return {**broker.raw, **broker.dynamic_default, **broker.dynamic_broker}


def _is_sensitive(key: ConfigKey | None) -> bool:
    """An unknown setting may be a password."""
    return key is None or key.is_sensitive


def _synonym(name: str, text: str, source: ConfigSource) -> Synonym:
    return Synonym(name, None if _is_sensitive(find_key(name)) else text, source)


def _broker_entry(
    name: str, values: Mapping[str, str], synonyms: tuple[Synonym, ...]
) -> ConfigEntry:
    key = find_key(name)
    text = values.get(name, key.default if key else None)
    return ConfigEntry(
        name=name,
        value=_displayed_value(key, text),
        source=synonyms[0].source if synonyms else ConfigSource.DEFAULT,
        synonyms=synonyms,
        is_sensitive=_is_sensitive(key),
        read_only=name not in DYNAMIC_BROKER_CONFIGS,
        type=key.type if key else ConfigType.UNKNOWN,
    )


def _displayed_value(key: ConfigKey | None, text: str | None) -> str | None:
    if key is None or key.is_sensitive or text is None:
        return None
    if not key.is_valid(text):
        return text  # A stored value that is skipped.
    value = key.parse(text)
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, tuple):
        return ",".join(value)
    if isinstance(value, int):
        return str(value)
    return _java_double(value) if isinstance(value, float) else text.strip()


def _java_double(value: float) -> str:
    """Returns the number as Java formats it: 1000000.0, 1.0E7, 1.7976931348623157E308."""
    if value in (float("inf"), float("-inf")):
        return "Infinity" if value > 0 else "-Infinity"
    if value == 0 or 1e-3 <= abs(value) < 1e7:
        return repr(value)
    mantissa, _, exponent = f"{value:.16e}".partition("e")
    # The shortest text that is parsed as the same number.
    for precision in range(1, 17):
        shorter = f"{value:.{precision}e}"
        if float(shorter) == value:
            mantissa, _, exponent = shorter.partition("e")
            break
    return f"{mantissa}E{int(exponent)}"


def broker_synonyms(name: str, broker: BrokerConfig) -> tuple[Synonym, ...]:
    """Returns every source that sets the setting or its relatives, highest precedence first,
    starting with the first one that has the setting's own name: a value in another unit does not
    count as a source of this one (Kafka's rule)."""
    synonyms: list[Synonym] = []
    layers: Iterable[tuple[Mapping[str, str], ConfigSource]] = (
        (broker.dynamic_broker, ConfigSource.DYNAMIC_BROKER),
        (broker.dynamic_default, ConfigSource.DYNAMIC_DEFAULT_BROKER),
        (broker.raw, ConfigSource.STATIC_BROKER),
    )
    relatives = _relatives(name)
    for layer, source in layers:
        synonyms += [
            _synonym(relative, layer[relative], source)
            for relative in relatives
            if relative in layer
        ]
    for relative in relatives:
        key = BROKER_CONFIGS.get(relative)
        if key is not None and key.default is not None:
            synonyms.append(_synonym(relative, key.default, ConfigSource.DEFAULT))
    for position, synonym in enumerate(synonyms):
        if synonym.name == name:
            return tuple(synonyms[position:])
    return ()


def _relatives(name: str) -> tuple[str, ...]:
    base = base_name(name)
    if base != name:
        return (name, base)
    return _BROKER_SYNONYMS.get(name, (name,))
