"""The expected lines are the responses of an Apache Kafka 4.3.1 with the same settings."""

import pytest

from lograft.model.settings.broker import BrokerConfig, broker_config, with_dynamic
from lograft.model.settings.broker_table import BROKER_CONFIGS
from lograft.model.settings.keys import ConfigSource, ConfigType
from lograft.model.settings.resolution import (
    ConfigEntry,
    broker_documentation,
    describe_broker,
    describe_cluster_default,
    describe_loggers,
    describe_topic,
    topic_documentation,
)
from lograft.model.settings.topic import TOPIC_CONFIGS


def node() -> BrokerConfig:
    static = broker_config(
        {
            "process.roles": "broker,controller",
            "node.id": "1",
            "controller.quorum.bootstrap.servers": "localhost:39393",
            "listeners": "PLAINTEXT://localhost:39392,CONTROLLER://localhost:39393",
            "controller.listener.names": "CONTROLLER",
            "log.dirs": "/data",
            "log.retention.hours": "24",
            "log.flush.interval.ms": "7000",
            "log.roll.hours": "5",
            "ssl.key.password": "sesame",
            "strange.setting": "9",
            "num.partitions": "2",
        }
    )
    return with_dynamic(
        static,
        default={"log.retention.ms": "90000000", "log.segment.bytes": "1500000"},
        broker={"log.segment.bytes": "1600000"},
    )


def line(entry: ConfigEntry) -> str:
    synonyms = ", ".join(f"{s.source.name}:{s.name}={s.value}" for s in entry.synonyms)
    flags = ("read-only " if entry.read_only else "") + ("secret " if entry.is_sensitive else "")
    return f"{entry.value} {entry.source.name} {flags}{entry.type.name} [{synonyms}]"


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        (
            "segment.bytes",
            "2000000 DYNAMIC_TOPIC INT [DYNAMIC_TOPIC:segment.bytes=2000000,"
            " DYNAMIC_BROKER:log.segment.bytes=1600000,"
            " DYNAMIC_DEFAULT_BROKER:log.segment.bytes=1500000,"
            " DEFAULT:log.segment.bytes=1073741824]",
        ),
        (
            "retention.ms",
            "90000000 DYNAMIC_DEFAULT_BROKER LONG"
            " [DYNAMIC_DEFAULT_BROKER:log.retention.ms=90000000,"
            " STATIC_BROKER:log.retention.hours=24, DEFAULT:log.retention.hours=168]",
        ),
        (
            "flush.ms",
            "7000 STATIC_BROKER LONG [STATIC_BROKER:log.flush.interval.ms=7000,"
            " DEFAULT:log.flush.scheduler.interval.ms=9223372036854775807]",
        ),
        ("segment.ms", "18000000 DEFAULT LONG []"),
        ("leader.replication.throttled.replicas", " DEFAULT LIST []"),
        ("preallocate", "false DEFAULT BOOLEAN [DEFAULT:log.preallocate=false]"),
        (
            "min.cleanable.dirty.ratio",
            "0.5 DEFAULT DOUBLE [DEFAULT:log.cleaner.min.cleanable.ratio=0.5]",
        ),
    ],
)
def test_topic_settings_match_kafka(name: str, expected: str) -> None:
    overrides = {"segment.bytes": "2000000"}
    entries = {entry.name: entry for entry in describe_topic(overrides, node())}
    assert len(entries) == 41
    assert line(entries[name]) == expected


def test_invalid_stored_value_of_a_topic_is_shown() -> None:
    (entry,) = describe_topic({"segment.bytes": "1000"}, node(), names=["segment.bytes"])
    assert (entry.value, entry.source) == ("1000", ConfigSource.DYNAMIC_TOPIC)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("advertised.listeners", "None DEFAULT read-only LIST []"),
        (
            "broker.id",
            "1 STATIC_BROKER read-only INT [STATIC_BROKER:broker.id=1, DEFAULT:broker.id=-1]",
        ),
        ("node.id", "1 STATIC_BROKER read-only INT [STATIC_BROKER:node.id=1]"),
        (
            "log.segment.bytes",
            "1600000 DYNAMIC_BROKER INT [DYNAMIC_BROKER:log.segment.bytes=1600000,"
            " DYNAMIC_DEFAULT_BROKER:log.segment.bytes=1500000,"
            " DEFAULT:log.segment.bytes=1073741824]",
        ),
        ("log.roll.ms", "None DEFAULT LONG []"),
        (
            "log.roll.hours",
            "5 STATIC_BROKER read-only INT [STATIC_BROKER:log.roll.hours=5,"
            " DEFAULT:log.roll.hours=168]",
        ),
        (
            "log.flush.scheduler.interval.ms",
            "9223372036854775807 DEFAULT read-only LONG"
            " [DEFAULT:log.flush.scheduler.interval.ms=9223372036854775807]",
        ),
        (
            "ssl.key.password",
            "None STATIC_BROKER secret PASSWORD [STATIC_BROKER:ssl.key.password=None]",
        ),
        (
            "strange.setting",
            "None STATIC_BROKER read-only secret UNKNOWN [STATIC_BROKER:strange.setting=None]",
        ),
    ],
)
def test_broker_settings_match_kafka(name: str, expected: str) -> None:
    entries = {entry.name: entry for entry in describe_broker(node())}
    assert line(entries[name]) == expected


def test_no_secret_is_returned() -> None:
    assert "sesame" not in repr(describe_broker(node()))


def test_internal_settings_are_hidden() -> None:
    shown = {entry.name for entry in describe_broker(node())}
    assert not shown & {key.name for key in BROKER_CONFIGS.values() if key.internal}
    assert len(shown) == 372


def test_cluster_default_has_only_its_own_values() -> None:
    entries = describe_cluster_default(node().dynamic_default)
    assert [entry.name for entry in entries] == ["log.retention.ms", "log.segment.bytes"]
    assert line(entries[0]) == (
        "90000000 DYNAMIC_DEFAULT_BROKER LONG [DYNAMIC_DEFAULT_BROKER:log.retention.ms=90000000]"
    )


def test_names_select_settings() -> None:
    assert [e.name for e in describe_topic({}, node(), names={"segment.ms", "x"})] == ["segment.ms"]
    assert [e.name for e in describe_broker(node(), names=["node.id"])] == ["node.id"]


def test_logger_levels_are_described() -> None:
    (entry,) = describe_loggers({"lograft.broker": "INFO", "a": "WARN"}, names=["a"])
    assert (entry.name, entry.value, entry.type) == ("a", "WARN", ConfigType.UNKNOWN)
    assert entry.source is ConfigSource.DYNAMIC_BROKER_LOGGER


def test_every_setting_is_documented_in_a_sentence() -> None:
    from_tables = [topic_documentation(name) for name in TOPIC_CONFIGS]
    from_tables += [broker_documentation(name) for name in BROKER_CONFIGS]
    for sentence in from_tables:
        assert sentence
        assert sentence.endswith(".")
    assert topic_documentation("nonsense") is None


@pytest.mark.parametrize(
    ("given", "shown"),
    [
        ("0.50", "0.5"),
        ("1000000", "1000000.0"),
        ("10000000", "1.0E7"),
        ("123456789", "1.23456789E8"),
        ("0.0001", "1.0E-4"),
        ("1.7976931348623157E308", "1.7976931348623157E308"),
        ("1e400", "Infinity"),
    ],
)
def test_numbers_are_formatted_as_in_java(given: str, shown: str) -> None:
    config = with_dynamic(node(), default={}, broker={"log.cleaner.io.max.bytes.per.second": given})
    (entry,) = describe_broker(config, names=["log.cleaner.io.max.bytes.per.second"])
    assert entry.value == shown
