"""The configs of groups and of client metrics, which belong to no broker or topic.

A group's config defaults to the broker's config of the same meaning (`group.<its name>`) and must
stay within the broker's limits (`group.<kind>.min.…`, `group.<kind>.max.…`).
"""

import re
from collections.abc import Collection, Mapping
from typing import Final

from lograft.model.errors import ErrorCode, InvalidConfig, Rejected
from lograft.model.patterns import InvalidPattern, compile_pattern
from lograft.model.settings.broker import BrokerConfig
from lograft.model.settings.broker_table import BROKER_CONFIGS
from lograft.model.settings.effects import NO_SHARE_GROUPS, NO_STREAMS_GROUPS
from lograft.model.settings.keys import (
    Between,
    ConfigKey,
    ConfigSource,
    ConfigType,
    ListOf,
    OneOf,
    table_of,
)
from lograft.model.settings.resolution import (
    ConfigEntry,
    Synonym,
    broker_synonyms,
    describe_override,
    with_effect,
)

INT, STRING, BOOLEAN, LIST = (
    ConfigType.INT,
    ConfigType.STRING,
    ConfigType.BOOLEAN,
    ConfigType.LIST,
)

SHARE, STREAMS = NO_SHARE_GROUPS, NO_STREAMS_GROUPS
ISOLATION: Final = ("read_committed", "read_uncommitted")

# fmt: off
GROUP_CONFIGS: Final = table_of((
    ConfigKey("consumer.assignment.interval.ms", INT, "1000", Between(0)),
    ConfigKey("consumer.heartbeat.interval.ms", INT, "5000", Between(1)),
    ConfigKey("consumer.session.timeout.ms", INT, "45000", Between(1)),
    ConfigKey("share.assignment.interval.ms", INT, "1000", Between(0), effect=SHARE),
    ConfigKey("share.auto.offset.reset", STRING, "latest", effect=SHARE),
    ConfigKey("share.delivery.count.limit", INT, "5", Between(2), effect=SHARE),
    ConfigKey("share.heartbeat.interval.ms", INT, "5000", Between(1), effect=SHARE),
    ConfigKey("share.isolation.level", STRING, "read_uncommitted", OneOf(ISOLATION), effect=SHARE),
    ConfigKey("share.partition.max.record.locks", INT, "2000", Between(100), effect=SHARE),
    ConfigKey("share.record.lock.duration.ms", INT, "30000", Between(1000), effect=SHARE),
    ConfigKey("share.renew.acknowledge.enable", BOOLEAN, "true", effect=SHARE),
    ConfigKey("share.session.timeout.ms", INT, "45000", Between(1), effect=SHARE),
    ConfigKey("streams.assignment.interval.ms", INT, "1000", Between(0), effect=STREAMS),
    ConfigKey("streams.heartbeat.interval.ms", INT, "5000", Between(1), effect=STREAMS),
    ConfigKey("streams.initial.rebalance.delay.ms", INT, "3000", Between(0), effect=STREAMS),
    ConfigKey("streams.num.standby.replicas", INT, "0", Between(0), effect=STREAMS),
    ConfigKey("streams.session.timeout.ms", INT, "45000", Between(1), effect=STREAMS),
))
CLIENT_METRICS_CONFIGS: Final = table_of((
    ConfigKey("interval.ms", INT, "300000"),
    ConfigKey("match", LIST, "", ListOf()),
    ConfigKey("metrics", LIST, "", ListOf()),
))
# fmt: on

CLIENT_METRICS_DOCS: Final = {
    "interval.ms": "Interval at which clients push their metrics.",
    "match": "Selects clients by <name>=<regular expression>; all entries must match.",
    "metrics": "Prefixes of the metric names to push; * selects all metrics, empty selects none.",
}

INTERVAL_MS_MIN: Final = 100
INTERVAL_MS_MAX: Final = 3_600_000
#: Client attributes by which a client metrics subscription can select clients.
MATCH_KEYS: Final = frozenset(
    {
        "client_id",
        "client_instance_id",
        "client_software_name",
        "client_software_version",
        "client_source_address",
        "client_source_port",
    }
)
_OFFSET_RESET: Final = re.compile(r"earliest|latest|by_duration:P.+", re.IGNORECASE)


def check_group_configs(values: Mapping[str, str], config: BrokerConfig) -> None:
    for name, text in values.items():
        key = GROUP_CONFIGS.get(name)
        if key is None:
            raise Rejected(ErrorCode.INVALID_CONFIG, f"Unknown group configuration {name}.")
        value = _parse_value(key, text)
        if name == "share.auto.offset.reset" and not _OFFSET_RESET.fullmatch(text.strip()):
            raise Rejected(
                ErrorCode.INVALID_CONFIG,
                f"Invalid value {text} for configuration {name}: use earliest, latest or"
                " by_duration:<ISO 8601 duration>.",
            )
        if isinstance(value, int):
            _check_limits(name, value, config)
    for kind in ("consumer", "share", "streams"):
        _check_heartbeats(kind, values, config)


def check_client_metrics_configs(values: Mapping[str, str]) -> None:
    for name, text in values.items():
        key = CLIENT_METRICS_CONFIGS.get(name)
        if key is None:
            raise Rejected(
                ErrorCode.INVALID_REQUEST, f"Unknown client metrics configuration {name}."
            )
        value = _parse_value(key, text)
        if isinstance(value, int) and not INTERVAL_MS_MIN <= value <= INTERVAL_MS_MAX:
            raise Rejected(
                ErrorCode.INVALID_REQUEST,
                f"Invalid value {value} for configuration {name}: it must be between"
                f" {INTERVAL_MS_MIN} and {INTERVAL_MS_MAX}.",
            )
        if name == "match" and isinstance(value, tuple):
            for pattern in value:
                _check_match(pattern)


def describe_group(
    overrides: Mapping[str, str], broker: BrokerConfig, *, names: Collection[str] | None = None
) -> list[ConfigEntry]:
    """All configs of a group, or those in `names`."""
    return [
        describe_override(
            key,
            overrides.get(key.name),
            source=ConfigSource.GROUP,
            synonyms=broker_synonyms(f"group.{key.name}", broker)
            or (Synonym(key.name, key.default, ConfigSource.DEFAULT),),
        )
        for key in GROUP_CONFIGS.values()
        if names is None or key.name in names
    ]


def describe_client_metrics(
    overrides: Mapping[str, str], *, names: Collection[str] | None = None
) -> list[ConfigEntry]:
    return [
        describe_override(key, overrides.get(key.name), source=ConfigSource.CLIENT_METRICS)
        for key in CLIENT_METRICS_CONFIGS.values()
        if names is None or key.name in names
    ]


def group_documentation(name: str) -> str | None:
    """The documentation of the broker's config that the group's config overrides."""
    from lograft.model.settings.broker_docs import BROKER_DOCS

    return with_effect(BROKER_DOCS.get(f"group.{name}"), GROUP_CONFIGS.get(name))


def client_metrics_documentation(name: str) -> str | None:
    return with_effect(CLIENT_METRICS_DOCS.get(name), CLIENT_METRICS_CONFIGS.get(name))


def _parse_value(key: ConfigKey, text: str) -> object:
    try:
        return key.parse(text)
    except InvalidConfig as error:
        raise Rejected(ErrorCode.INVALID_CONFIG, str(error)) from None


def _check_limits(name: str, value: int, config: BrokerConfig) -> None:
    kind, _, rest = name.partition(".")
    rest = rest.removeprefix("num.")
    for bound, relation, is_broken in (
        ("min", "at least", int.__lt__),
        ("max", "at most", int.__gt__),
    ):
        setting = f"group.{kind}.{bound}.{rest}"
        limit = config.value(setting) if setting in BROKER_CONFIGS else None
        if isinstance(limit, int) and is_broken(value, limit):
            raise Rejected(
                ErrorCode.INVALID_CONFIG, f"{name}={value} must be {relation} {setting}={limit}."
            )


def _check_heartbeats(kind: str, values: Mapping[str, str], config: BrokerConfig) -> None:
    names = (f"{kind}.heartbeat.interval.ms", f"{kind}.session.timeout.ms")
    heartbeat_ms, session_ms = (
        int(values.get(name) or config.text(f"group.{name}") or 0) for name in names
    )
    if heartbeat_ms >= session_ms:
        raise Rejected(
            ErrorCode.INVALID_CONFIG,
            f"{names[0]} ({heartbeat_ms}) must be less than {names[1]} ({session_ms}).",
        )


def _check_match(text: str) -> None:
    if text.count("=") != 1 or (split := split_match(text))[0] not in MATCH_KEYS:
        raise Rejected(
            ErrorCode.INVALID_CONFIG,
            f"Invalid client match pattern '{text}': use <name>=<regular expression>, where name is"
            f" one of {', '.join(sorted(MATCH_KEYS))}.",
        )
    try:
        compile_pattern(split[1])
    except InvalidPattern as error:
        raise Rejected(
            ErrorCode.INVALID_CONFIG,
            f"Invalid client match pattern '{text}': {error}. Regular expressions use RE2 syntax,"
            " without lookahead and backreferences.",
        ) from None


def split_match(text: str) -> tuple[str, str]:
    name, _, expression = text.partition("=")
    return name.strip(), expression.strip()
