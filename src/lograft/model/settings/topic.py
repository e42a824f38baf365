"""The settings of a topic: Kafka 4.3's table, and `TopicConfig`, their typed form.

The value of a topic setting is its own override, otherwise the broker's setting with the same
meaning (the synonyms below, in order), otherwise the default. `resolve_topic_config` is cheap: the
broker keeps the `TopicConfig` of a topic without overrides, and only the overrides are parsed.

Overrides are checked before they are stored (`validate_topic_configs`). Metadata that another
version of Apache Kafka wrote may nevertheless contain invalid ones, which are skipped individually.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Any, Final

from lograft.model.errors import InvalidConfig
from lograft.model.retention_holds import HOLD_GROUPS
from lograft.model.settings.effects import (
    NO_TIERED_STORAGE,
    TIERED_STORAGE,
    check_supported,
)
from lograft.model.settings.keys import (
    LONG_MAX,
    Between,
    BetweenOr,
    ConfigKey,
    ConfigType,
    ConfigValue,
    ListOf,
    NotEmpty,
    OneOf,
    PartitionModes,
    ThrottledReplicas,
    table_of,
)

if TYPE_CHECKING:
    from lograft.model.settings.broker import BrokerConfig

BOOLEAN, STRING, INT = ConfigType.BOOLEAN, ConfigType.STRING, ConfigType.INT
LONG, DOUBLE, LIST = ConfigType.LONG, ConfigType.DOUBLE, ConfigType.LIST
COMPRESSION_TYPES: Final = ("uncompressed", "zstd", "lz4", "snappy", "gzip", "producer")
REPLICATION_MODES: Final = ("isr", "raft")
SUBSCRIPTION_MODES: Final = ("ptp", "psb")
TIMESTAMP_TYPES: Final = ("CreateTime", "LogAppendTime")
MINUTE_MS: Final = 60_000
HOUR_MS: Final = 3_600_000

# fmt: off
TOPIC_CONFIGS: Final = table_of((
    # Lograft's own: the maximum number of partitions to which the topic grows on demand.
    ConfigKey("auto.create.partitions.max", INT, None, Between(1, 10_000)),
    ConfigKey("cleanup.policy", LIST, "delete", ListOf(("compact", "delete"))),
    ConfigKey("compression.gzip.level", INT, "-1", BetweenOr(1, 9, -1)),
    ConfigKey("compression.lz4.level", INT, "9", Between(1, 17)),
    ConfigKey("compression.type", STRING, "producer", OneOf(COMPRESSION_TYPES)),
    ConfigKey("compression.zstd.level", INT, "3", Between(-131072, 22)),
    ConfigKey("delete.retention.ms", LONG, "86400000", Between(0)),
    ConfigKey("file.delete.delay.ms", LONG, "60000", Between(0)),
    ConfigKey("flush.messages", LONG, "9223372036854775807", Between(1)),
    ConfigKey("flush.ms", LONG, "9223372036854775807", Between(0)),
    ConfigKey("follower.replication.throttled.replicas", LIST, "", ThrottledReplicas()),
    ConfigKey("index.interval.bytes", INT, "4096", Between(0)),
    ConfigKey("internal.segment.bytes", INT, None, None, internal=True),
    ConfigKey("leader.replication.throttled.replicas", LIST, "", ThrottledReplicas()),
    ConfigKey("local.retention.bytes", LONG, "-2", Between(-2), effect=NO_TIERED_STORAGE),
    ConfigKey("local.retention.ms", LONG, "-2", Between(-2), effect=NO_TIERED_STORAGE),
    ConfigKey("max.compaction.lag.ms", LONG, "9223372036854775807", Between(1)),
    ConfigKey("max.message.bytes", INT, "1048588", Between(0)),
    ConfigKey("message.timestamp.after.max.ms", LONG, "3600000", Between(0)),
    ConfigKey("message.timestamp.before.max.ms", LONG, "9223372036854775807", Between(0)),
    ConfigKey("message.timestamp.type", STRING, "CreateTime", OneOf(TIMESTAMP_TYPES)),
    ConfigKey("min.cleanable.dirty.ratio", DOUBLE, "0.5", Between(0, 1)),
    ConfigKey("min.compaction.lag.ms", LONG, "0", Between(0)),
    ConfigKey("min.insync.replicas", INT, "1", Between(1)),
    ConfigKey("preallocate", BOOLEAN, "false"),
    ConfigKey("remote.log.copy.disable", BOOLEAN, "false", effect=NO_TIERED_STORAGE),
    ConfigKey("remote.log.delete.on.disable", BOOLEAN, "false", effect=NO_TIERED_STORAGE),
    ConfigKey("remote.storage.enable", BOOLEAN, "false", effect=TIERED_STORAGE),
    # Lograft's own: how leaders are elected and records are committed, and exceptions by partition.
    ConfigKey("replication.mode", STRING, "isr", OneOf(REPLICATION_MODES)),
    ConfigKey("replication.mode.partitions", LIST, "", PartitionModes()),
    ConfigKey("retention.bytes", LONG, "-1"),
    # Lograft's own: the groups that may keep records beyond their retention, and the limits.
    ConfigKey(HOLD_GROUPS, LIST, "", ListOf()),
    ConfigKey("retention.hold.max.bytes", LONG, "10737418240", Between(-1)),
    ConfigKey("retention.hold.max.ms", LONG, "86400000", Between(0)),
    ConfigKey("retention.ms", LONG, "604800000", Between(-1)),
    ConfigKey("segment.bytes", INT, "1073741824", Between(1048576)),
    ConfigKey("segment.index.bytes", INT, "10485760", Between(4)),
    ConfigKey("segment.jitter.ms", LONG, "0", Between(0)),
    ConfigKey("segment.ms", LONG, "604800000", Between(1)),
    # Lograft's own: the number of groups that may read the topic, and which group if it is only
    # one.
    ConfigKey("subscription.group", STRING, None, NotEmpty()),
    ConfigKey("subscription.mode", STRING, None, OneOf(SUBSCRIPTION_MODES)),
    ConfigKey("unclean.leader.election.enable", BOOLEAN, "false"),
))

#: Topic setting -> the broker settings that are its default, highest precedence first, each with
#: the factor from its unit to the topic's.
TOPIC_SYNONYMS: Final[dict[str, tuple[tuple[str, int], ...]]] = {
    "cleanup.policy": (("log.cleanup.policy", 1),),
    "compression.gzip.level": (("compression.gzip.level", 1),),
    "compression.lz4.level": (("compression.lz4.level", 1),),
    "compression.type": (("compression.type", 1),),
    "compression.zstd.level": (("compression.zstd.level", 1),),
    "delete.retention.ms": (("log.cleaner.delete.retention.ms", 1),),
    "file.delete.delay.ms": (("log.segment.delete.delay.ms", 1),),
    "flush.messages": (("log.flush.interval.messages", 1),),
    "flush.ms": (("log.flush.interval.ms", 1), ("log.flush.scheduler.interval.ms", 1),),
    "index.interval.bytes": (("log.index.interval.bytes", 1),),
    "local.retention.bytes": (("log.local.retention.bytes", 1),),
    "local.retention.ms": (("log.local.retention.ms", 1),),
    "max.compaction.lag.ms": (("log.cleaner.max.compaction.lag.ms", 1),),
    "max.message.bytes": (("message.max.bytes", 1),),
    "message.timestamp.after.max.ms": (("log.message.timestamp.after.max.ms", 1),),
    "message.timestamp.before.max.ms": (("log.message.timestamp.before.max.ms", 1),),
    "message.timestamp.type": (("log.message.timestamp.type", 1),),
    "min.cleanable.dirty.ratio": (("log.cleaner.min.cleanable.ratio", 1),),
    "min.compaction.lag.ms": (("log.cleaner.min.compaction.lag.ms", 1),),
    "min.insync.replicas": (("min.insync.replicas", 1),),
    "preallocate": (("log.preallocate", 1),),
    "retention.bytes": (("log.retention.bytes", 1),),
    "retention.ms": (
        ("log.retention.ms", 1),
        ("log.retention.minutes", MINUTE_MS),
        ("log.retention.hours", HOUR_MS),
    ),
    "segment.bytes": (("log.segment.bytes", 1),),
    "segment.index.bytes": (("log.index.size.max.bytes", 1),),
    "segment.jitter.ms": (("log.roll.jitter.ms", 1), ("log.roll.jitter.hours", HOUR_MS),),
    "segment.ms": (("log.roll.ms", 1), ("log.roll.hours", HOUR_MS),),
    "unclean.leader.election.enable": (("unclean.leader.election.enable", 1),),
}
# fmt: on


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicConfig:
    """All settings of a topic, resolved. A field has the setting's name with _ for the dots; the
    few exceptions are computed from the setting named next to them."""

    #: None: the topic does not grow on demand.
    auto_create_partitions_max: int | None = None
    cleanup_compact: bool = False  # cleanup.policy
    cleanup_delete: bool = True  # cleanup.policy
    compression_gzip_level: int = -1
    compression_lz4_level: int = 9
    compression_type: str = "producer"
    compression_zstd_level: int = 3
    delete_retention_ms: int = 86_400_000
    file_delete_delay_ms: int = 60_000
    flush_messages: int = LONG_MAX
    flush_ms: int = LONG_MAX
    follower_replication_throttled_replicas: tuple[str, ...] = ()
    index_interval_bytes: int = 4096
    leader_replication_throttled_replicas: tuple[str, ...] = ()
    local_retention_bytes: int = -2
    local_retention_ms: int = -2
    max_compaction_lag_ms: int = LONG_MAX
    max_message_bytes: int = 1_048_588
    message_timestamp_after_max_ms: int = HOUR_MS
    message_timestamp_before_max_ms: int = LONG_MAX
    message_timestamp_log_append: bool = False  # message.timestamp.type
    min_cleanable_dirty_ratio: float = 0.5
    min_compaction_lag_ms: int = 0
    min_insync_replicas: int = 1
    preallocate: bool = False
    remote_log_copy_disable: bool = False
    remote_log_delete_on_disable: bool = False
    remote_storage_enable: bool = False
    replication_mode: str = "isr"
    replication_mode_partitions: tuple[str, ...] = ()
    retention_bytes: int = -1
    retention_hold_groups: tuple[str, ...] = ()
    retention_hold_max_bytes: int = 10 << 30
    retention_hold_max_ms: int = 24 * HOUR_MS
    retention_ms: int = 7 * 24 * HOUR_MS
    segment_bytes: int = 1 << 30  # internal.segment.bytes wins where it is set
    segment_index_bytes: int = 10 << 20
    segment_jitter_ms: int = 0
    segment_ms: int = 7 * 24 * HOUR_MS
    #: The group of a topic that is read point to point; None: the first group that reads it.
    subscription_group: str | None = None
    #: None: any number of groups, as in Kafka.
    subscription_mode: str | None = None
    unclean_leader_election_enable: bool = False


#: Settings whose field has another name or type.
_COMPUTED: Final[dict[str, Callable[[Any], dict[str, Any]]]] = {
    "cleanup.policy": lambda items: {
        "cleanup_compact": "compact" in items,
        "cleanup_delete": "delete" in items,
    },
    "message.timestamp.type": lambda kind: {"message_timestamp_log_append": kind != "CreateTime"},
    "internal.segment.bytes": lambda size: {"segment_bytes": size},
}
_FIELDS: Final = frozenset(field.name for field in fields(TopicConfig))
#: Used instead of the broker's default if the stored value is invalid, so that no record is deleted
#: that the invalid value may have protected.
_WITHOUT_DELETION: Final[dict[str, dict[str, Any]]] = {
    "cleanup.policy": {"cleanup_compact": False, "cleanup_delete": False},
    "retention.bytes": {"retention_bytes": -1},
    "retention.ms": {"retention_ms": -1},
}


def topic_fields(values: Mapping[str, str]) -> dict[str, Any]:
    """Returns the TopicConfig fields that the given values set. Unknown names are skipped: a newer
    version may have written them to the metadata log."""
    result: dict[str, Any] = {}
    # The internal one last: it overrides segment.bytes, whatever the order of the overrides.
    for name in sorted(values, key=lambda name: name == "internal.segment.bytes"):
        key = TOPIC_CONFIGS.get(name)
        if key is None:
            continue
        value: ConfigValue = key.parse(values[name])
        if name in _COMPUTED:
            result |= _COMPUTED[name](value)
        else:
            field_name = name.replace(".", "_")
            assert field_name in _FIELDS, field_name
            result[field_name] = value
    return result


def resolve_topic_config(overrides: Mapping[str, str], broker: "BrokerConfig") -> TopicConfig:
    """Returns the configuration of a topic with the stored overrides that are valid."""
    if not overrides:
        return broker.topic_defaults
    try:
        values = topic_fields(overrides)
    except InvalidConfig:
        invalid = find_invalid_overrides(overrides)
        values = topic_fields({n: text for n, text in overrides.items() if n not in invalid})
        for name in invalid:
            values |= _WITHOUT_DELETION.get(name, {})
    return replace(broker.topic_defaults, **values)


def find_invalid_overrides(overrides: Mapping[str, str]) -> dict[str, str]:
    """Returns the names of stored values that are invalid by themselves, with the reasons. For
    example, Kafka 3.9 allowed smaller segments."""
    reasons = {}
    for name, text in overrides.items():
        try:
            topic_fields({name: text})
        except InvalidConfig as error:
            reasons[name] = str(error)
    return reasons


def broker_text_for_topic(name: str, broker_values: Mapping[str, str]) -> str | None:
    """Returns the broker's explicit value for a topic setting, in the topic's unit."""
    for synonym, factor in TOPIC_SYNONYMS.get(name, ()):
        text = broker_values.get(synonym)
        if text is not None:
            if factor == 1 and name != "retention.ms":
                return text
            amount = int(text)
            # Any negative time means "unlimited", whatever its unit.
            return str(amount * factor if amount >= 0 else -1)
    return None


def topic_defaults(broker_values: Mapping[str, str]) -> TopicConfig:
    """Returns the configuration of a topic without overrides on a broker with these values."""
    texts = {
        name: text
        for name in TOPIC_SYNONYMS
        if (text := broker_text_for_topic(name, broker_values)) is not None
    }
    return TopicConfig(**topic_fields(texts))


def validate_topic_configs(overrides: Mapping[str, str], broker: "BrokerConfig") -> TopicConfig:
    """Returns the configuration of a topic with these overrides; raises InvalidConfig."""
    for name in overrides:
        if name not in TOPIC_CONFIGS:
            raise InvalidConfig(f"Unknown topic config name: {name}")
    check_supported(TOPIC_CONFIGS, overrides)
    config = replace(broker.topic_defaults, **topic_fields(overrides))
    if config.min_compaction_lag_ms > config.max_compaction_lag_ms:
        raise InvalidConfig(
            "min.compaction.lag.ms"
            f" ({config.min_compaction_lag_ms}) must not be above max.compaction.lag.ms"
            f" ({config.max_compaction_lag_ms})"
        )
    if config.subscription_group is not None and config.subscription_mode != "ptp":
        raise InvalidConfig("subscription.group requires subscription.mode=ptp")
    return config
