"""The settings of groups and of client metrics, which have no broker or topic of their own.

A group's setting begins as the broker's setting of the same meaning (`group.<its name>`), and must
stay within the broker's limits (`group.<kind>.min.…`, `group.<kind>.max.…`).
"""

import re
from collections.abc import Collection, Mapping
from typing import Final

from lograft.metadata.errors import Refused
from lograft.model.broker_config_table import BROKER_CONFIGS
from lograft.model.broker_configs import BrokerConfig
from lograft.model.config_keys import (
    Between,
    ConfigKey,
    ConfigSource,
    ConfigType,
    ListOf,
    OneOf,
    table_of,
)
from lograft.model.config_resolution import (
    ConfigEntry,
    Synonym,
    broker_synonyms,
    describe_override,
)
from lograft.model.errors import ErrorCode, InvalidConfig

INT, STRING, BOOLEAN, LIST = (
    ConfigType.INT,
    ConfigType.STRING,
    ConfigType.BOOLEAN,
    ConfigType.LIST,
)

ISOLATION_LEVELS: Final = ("read_committed", "read_uncommitted")

# fmt: off
GROUP_CONFIGS: Final = table_of((
    ConfigKey("consumer.assignment.interval.ms", INT, "1000", Between(0)),
    ConfigKey("consumer.heartbeat.interval.ms", INT, "5000", Between(1)),
    ConfigKey("consumer.session.timeout.ms", INT, "45000", Between(1)),
    ConfigKey("share.assignment.interval.ms", INT, "1000", Between(0)),
    ConfigKey("share.auto.offset.reset", STRING, "latest"),
    ConfigKey("share.delivery.count.limit", INT, "5", Between(2)),
    ConfigKey("share.heartbeat.interval.ms", INT, "5000", Between(1)),
    ConfigKey("share.isolation.level", STRING, "read_uncommitted", OneOf(ISOLATION_LEVELS)),
    ConfigKey("share.partition.max.record.locks", INT, "2000", Between(100)),
    ConfigKey("share.record.lock.duration.ms", INT, "30000", Between(1000)),
    ConfigKey("share.renew.acknowledge.enable", BOOLEAN, "true"),
    ConfigKey("share.session.timeout.ms", INT, "45000", Between(1)),
    ConfigKey("streams.assignment.interval.ms", INT, "1000", Between(0)),
    ConfigKey("streams.heartbeat.interval.ms", INT, "5000", Between(1)),
    ConfigKey("streams.initial.rebalance.delay.ms", INT, "3000", Between(0)),
    ConfigKey("streams.num.standby.replicas", INT, "0", Between(0)),
    ConfigKey("streams.session.timeout.ms", INT, "45000", Between(1)),
))
CLIENT_METRICS_CONFIGS: Final = table_of((
    ConfigKey("interval.ms", INT, "300000"),
    ConfigKey("match", LIST, "", ListOf()),
    ConfigKey("metrics", LIST, "", ListOf()),
))
# fmt: on

INTERVAL_MS_MIN: Final = 100
INTERVAL_MS_MAX: Final = 3_600_000
#: What a subscription of client metrics may choose clients by.
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
            raise Refused(ErrorCode.invalid_config, f"There is no group setting {name}.")
        value = _parsed(key, text)
        if name == "share.auto.offset.reset" and not _OFFSET_RESET.fullmatch(text.strip()):
            raise Refused(
                ErrorCode.invalid_config,
                f"{name} is earliest, latest or by_duration:<ISO 8601 duration>, not {text}.",
            )
        if isinstance(value, int):
            _check_limits(name, value, config)


def check_client_metrics_configs(values: Mapping[str, str]) -> None:
    for name, text in values.items():
        key = CLIENT_METRICS_CONFIGS.get(name)
        if key is None:
            raise Refused(
                ErrorCode.invalid_request, f"There is no setting {name} of client metrics."
            )
        value = _parsed(key, text)
        if isinstance(value, int) and not INTERVAL_MS_MIN <= value <= INTERVAL_MS_MAX:
            raise Refused(
                ErrorCode.invalid_request,
                f"{name} lies between {INTERVAL_MS_MIN} and {INTERVAL_MS_MAX}, not at {value}.",
            )
        if name == "match" and isinstance(value, tuple):
            for pattern in value:
                _check_match(pattern)


def describe_group(
    overrides: Mapping[str, str], broker: BrokerConfig, *, names: Collection[str] | None = None
) -> list[ConfigEntry]:
    """All settings of a group, or those in `names`."""
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


def _parsed(key: ConfigKey, text: str) -> object:
    try:
        return key.parse(text)
    except InvalidConfig as error:
        raise Refused(ErrorCode.invalid_config, str(error)) from None


def _check_limits(name: str, value: int, config: BrokerConfig) -> None:
    kind, _, rest = name.partition(".")
    rest = rest.removeprefix("num.")
    for bound, is_broken in (("min", int.__lt__), ("max", int.__gt__)):
        setting = f"group.{kind}.{bound}.{rest}"
        limit = config.value(setting) if setting in BROKER_CONFIGS else None
        if isinstance(limit, int) and is_broken(value, limit):
            raise Refused(
                ErrorCode.invalid_config, f"{name}={value} is beyond {setting}, which is {limit}."
            )


def _check_match(pattern: str) -> None:
    name, equals, expression = pattern.partition("=")
    try:
        re.compile(expression)
    except re.error:
        equals = ""
    if not equals or name.strip() not in MATCH_KEYS:
        raise Refused(
            ErrorCode.invalid_config,
            f"'{pattern}' does not match clients: write <one of {', '.join(sorted(MATCH_KEYS))}>"
            "=<regular expression>.",
        )
