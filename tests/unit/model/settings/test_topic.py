from dataclasses import fields

import pytest

from lograft.model.errors import InvalidConfig
from lograft.model.settings.broker import BrokerConfig, broker_config
from lograft.model.settings.topic import (
    TOPIC_CONFIGS,
    TopicConfig,
    find_invalid_overrides,
    resolve_topic_config,
    topic_fields,
    validate_topic_configs,
)


def broker(**settings: str) -> BrokerConfig:
    return broker_config(
        {
            "process.roles": "broker,controller",
            "node.id": "1",
            "controller.quorum.voters": "1@localhost:9093",
            "listeners": "PLAINTEXT://:9092,CONTROLLER://:9093",
            "controller.listener.names": "CONTROLLER",
        }
        | {name.replace("_", "."): text for name, text in settings.items()}
    )


def test_typed_defaults_match_the_table() -> None:
    texts = {key.name: key.default for key in TOPIC_CONFIGS.values() if key.default is not None}
    assert TopicConfig(**topic_fields(texts)) == TopicConfig()


def test_topics_without_overrides_share_the_defaults() -> None:
    node = broker()
    assert resolve_topic_config({}, node) is node.topic_defaults
    assert node.topic_defaults == TopicConfig()


def test_every_topic_setting_has_a_field() -> None:
    names = {field.name for field in fields(TopicConfig)}
    without_default = {"subscription.mode": "ptp"}
    for key in TOPIC_CONFIGS.values():
        text = without_default.get(key.name, "1") if key.default is None else key.default
        assert topic_fields({key.name: text}).keys() <= names


def test_overrides_are_typed() -> None:
    config = resolve_topic_config(
        {
            "cleanup.policy": "compact,delete",
            "message.timestamp.type": "LogAppendTime",
            "internal.segment.bytes": "100",
            "segment.bytes": "2000000",
            "from.the.future": "1",
        },
        broker(),
    )
    assert (config.cleanup_compact, config.cleanup_delete) == (True, True)
    assert config.message_timestamp_log_append
    assert config.segment_bytes == 100


@pytest.mark.parametrize(
    ("settings", "retention_ms"),
    [
        ({"log_retention_hours": "2"}, 7_200_000),
        ({"log_retention_hours": "2", "log_retention_minutes": "1"}, 60_000),
        ({"log_retention_hours": "2", "log_retention_minutes": "1", "log_retention_ms": "9"}, 9),
        ({"log_retention_hours": "-1"}, -1),
        ({"log_retention_ms": "-1", "log_retention_hours": "2"}, -1),
    ],
)
def test_the_finer_unit_wins(settings: dict[str, str], retention_ms: int) -> None:
    assert broker(**settings).topic_defaults.retention_ms == retention_ms


def test_broker_settings_with_other_names_apply_to_topics() -> None:
    config = broker(
        message_max_bytes="7",
        log_roll_hours="3",
        log_flush_scheduler_interval_ms="11",
        log_cleaner_min_cleanable_ratio="0.1",
        log_index_size_max_bytes="64",
        log_cleanup_policy="",
    ).topic_defaults
    assert config.max_message_bytes == 7
    assert config.segment_ms == 10_800_000
    assert config.flush_ms == 11
    assert config.min_cleanable_dirty_ratio == 0.1
    assert config.segment_index_bytes == 64
    assert not config.cleanup_compact
    assert not config.cleanup_delete


@pytest.mark.parametrize(
    ("overrides", "sentence"),
    [
        ({"foo": "1"}, "Unknown topic config name: foo"),
        ({"replication.mode": "zab"}, "must be one of: isr, raft"),
        ({"replication.mode.partitions": "3:raft,3:isr"}, "each partition once"),
        ({"replication.mode.partitions": "3"}, r"\[partitionId\]:isr"),
        ({"retention.ms": "-2"}, "at least -1"),
        ({"min.compaction.lag.ms": "9", "max.compaction.lag.ms": "8"}, r"\(9\).*\(8\)"),
        ({"remote.storage.enable": "true"}, "tiered storage is not implemented"),
        ({"subscription.mode": "p2p"}, "must be one of: ptp, psb"),
        ({"subscription.mode": "psb", "subscription.group": "g"}, "requires subscription.mode=ptp"),
        ({"subscription.mode": "ptp", "subscription.group": ""}, "non-empty"),
    ],
)
def test_invalid_overrides_are_rejected(overrides: dict[str, str], sentence: str) -> None:
    with pytest.raises(InvalidConfig, match=sentence):
        validate_topic_configs(overrides, broker())


def test_invalid_stored_overrides_are_skipped_individually() -> None:
    overrides = {"segment.bytes": "1000", "segment.ms": "5", "max.message.bytes": "x"}
    config = resolve_topic_config(overrides, broker())
    assert (config.segment_bytes, config.segment_ms) == (1 << 30, 5)
    assert config.max_message_bytes == 1_048_588
    assert find_invalid_overrides(overrides) == {
        "segment.bytes": "Invalid value 1000 for configuration segment.bytes: Value must be at"
        " least 1048576",
        "max.message.bytes": "Invalid value x for configuration max.message.bytes: Not a number of"
        " type INT",
    }


def test_records_whose_retention_is_invalid_are_not_deleted() -> None:
    short = broker(log_retention_ms="1", log_retention_bytes="1")
    times = resolve_topic_config({"retention.ms": "x", "retention.bytes": "y"}, short)
    assert (times.retention_ms, times.retention_bytes) == (-1, -1)
    policy = resolve_topic_config({"cleanup.policy": "archive"}, short)
    assert (policy.cleanup_delete, policy.cleanup_compact) == (False, False)
