"""confluent-kafka's admin client: topics, partitions, settings, records; against both servers."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException, TopicCollection, TopicPartition
from confluent_kafka.admin import (  # type: ignore[attr-defined]
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
    NewTopic,
    OffsetSpec,
    ResourceType,
)

from tests.compatibility.librdkafka import (
    ANSWER_SECONDS_MAX,
    admin_of,
    consumer_of,
    create_topic,
    error_code,
    outcome,
    produce,
    read,
    values_of,
)
from tests.compatibility.servers import NODE_ID, Server

pytestmark = pytest.mark.clients
NewName = Callable[[], str]


@pytest.fixture(scope="module")
def admin(server: Server) -> Iterator[AdminClient]:
    with admin_of(server.bootstrap) as admin:
        yield admin


def configs_of(admin: AdminClient, kind: ResourceType, name: str) -> dict[str, ConfigEntry]:
    (entries,) = outcome(admin.describe_configs([ConfigResource(kind, name)])).values()
    found: dict[str, ConfigEntry] = entries
    return found


def change(admin: AdminClient, topic: str, name: str, value: str | None) -> None:
    operation = AlterConfigOpType.DELETE if value is None else AlterConfigOpType.SET
    entry = ConfigEntry(name, value or "", incremental_operation=operation)
    resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=[entry])
    outcome(admin.incremental_alter_configs([resource]))


def test_create_list_and_delete(admin: AdminClient, new_topic: NewName) -> None:
    topic = new_topic()
    outcome(admin.create_topics([NewTopic(topic, num_partitions=3, replication_factor=1)]))
    described = admin.list_topics(topic, timeout=10).topics[topic]
    assert sorted(described.partitions) == [0, 1, 2]
    assert {(p.leader, *p.replicas, *p.isrs) for p in described.partitions.values()} == {
        (NODE_ID, NODE_ID, NODE_ID)
    }
    outcome(admin.delete_topics([topic]))
    assert topic not in admin.list_topics(timeout=10).topics


def test_a_deleted_topic_comes_back_empty(
    server: Server, admin: AdminClient, new_topic: NewName
) -> None:
    topic = new_topic()
    create_topic(server.bootstrap, topic)
    produce(server.bootstrap, topic, [b"old"] * 5)
    outcome(admin.delete_topics([topic]))
    create_topic(server.bootstrap, topic)
    produce(server.bootstrap, topic, [b"new"])
    assert values_of(read(server.bootstrap, topic)) == [b"new"]


def test_creating_twice_is_an_error(admin: AdminClient, new_topic: NewName) -> None:
    new = NewTopic(new_topic(), num_partitions=1, replication_factor=1)
    outcome(admin.create_topics([new]))
    with pytest.raises(KafkaException) as raised:
        outcome(admin.create_topics([new]))
    assert error_code(raised.value) == KafkaError.TOPIC_ALREADY_EXISTS


def test_validate_only_creates_nothing(admin: AdminClient, new_topic: NewName) -> None:
    topic = new_topic()
    new = NewTopic(topic, num_partitions=1, replication_factor=1)
    outcome(admin.create_topics([new], validate_only=True))
    assert topic not in admin.list_topics(timeout=10).topics


@pytest.mark.parametrize(
    ("name", "partitions", "replicas", "configs", "expected"),
    [
        ("bad name!", 1, 1, {}, KafkaError.TOPIC_EXCEPTION),
        ("x" * 250, 1, 1, {}, KafkaError.TOPIC_EXCEPTION),
        ("too-many-replicas", 1, 3, {}, KafkaError.INVALID_REPLICATION_FACTOR),
        ("unknown-config", 1, 1, {"no.such.setting": "1"}, KafkaError.INVALID_CONFIG),
        ("bad-number", 1, 1, {"retention.ms": "soon"}, KafkaError.INVALID_CONFIG),
        ("bad-choice", 1, 1, {"cleanup.policy": "burn"}, KafkaError.INVALID_CONFIG),
        ("below-range", 1, 1, {"segment.bytes": "1"}, KafkaError.INVALID_CONFIG),
    ],
)
def test_bad_topics_are_refused(
    admin: AdminClient,
    name: str,
    partitions: int,
    replicas: int,
    configs: dict[str, str],
    expected: int,
) -> None:
    new = NewTopic(name, num_partitions=partitions, replication_factor=replicas, config=configs)
    with pytest.raises(KafkaException) as raised:
        outcome(admin.create_topics([new]))
    assert error_code(raised.value) == expected


def test_deleting_what_is_not_there_is_an_error(admin: AdminClient, new_topic: NewName) -> None:
    with pytest.raises(KafkaException) as raised:
        outcome(admin.delete_topics([new_topic()]))
    assert error_code(raised.value) == KafkaError.UNKNOWN_TOPIC_OR_PART


def test_partitions_grow_and_never_shrink(
    server: Server, admin: AdminClient, new_topic: NewName
) -> None:
    topic = new_topic()
    create_topic(server.bootstrap, topic, partitions=2)
    outcome(admin.create_partitions([NewPartitions(topic, 5)]))
    assert len(admin.list_topics(topic, timeout=10).topics[topic].partitions) == 5
    produce(server.bootstrap, topic, [b"in the new one"], partition=4)
    assert values_of(read(server.bootstrap, topic, partition=4)) == [b"in the new one"]
    with pytest.raises(KafkaException) as raised:
        outcome(admin.create_partitions([NewPartitions(topic, 3)]))
    assert error_code(raised.value) == KafkaError.INVALID_PARTITIONS


def test_topic_settings_change_and_return_to_their_default(
    server: Server, admin: AdminClient, new_topic: NewName
) -> None:
    topic = new_topic()
    create_topic(server.bootstrap, topic, configs={"cleanup.policy": "compact"})
    before = configs_of(admin, ResourceType.TOPIC, topic)
    assert before["cleanup.policy"].value == "compact"
    assert not before["cleanup.policy"].is_default
    assert before["retention.ms"].value == "604800000"
    assert before["retention.ms"].is_default
    change(admin, topic, "retention.ms", "60000")
    assert configs_of(admin, ResourceType.TOPIC, topic)["retention.ms"].value == "60000"
    change(admin, topic, "retention.ms", None)
    assert configs_of(admin, ResourceType.TOPIC, topic)["retention.ms"].is_default


def test_a_changed_limit_takes_effect_at_once(
    server: Server, admin: AdminClient, new_topic: NewName
) -> None:
    topic = new_topic()
    create_topic(server.bootstrap, topic)
    change(admin, topic, "max.message.bytes", "1000")
    (refused,) = produce(server.bootstrap, topic, [b"x" * 5000])
    assert refused.error is not None
    assert refused.error.code() == KafkaError.MSG_SIZE_TOO_LARGE


def test_a_bad_setting_is_refused(server: Server, admin: AdminClient, new_topic: NewName) -> None:
    topic = new_topic()
    create_topic(server.bootstrap, topic)
    with pytest.raises(KafkaException) as raised:
        change(admin, topic, "retention.ms", "a while")
    assert error_code(raised.value) == KafkaError.INVALID_CONFIG
    assert configs_of(admin, ResourceType.TOPIC, topic)["retention.ms"].is_default


def test_broker_settings_are_shown(admin: AdminClient) -> None:
    entries = configs_of(admin, ResourceType.BROKER, str(NODE_ID))
    assert entries["node.id"].value == str(NODE_ID)
    assert entries["node.id"].is_read_only
    assert entries["num.partitions"].value == "2"
    assert {"log.retention.hours", "message.max.bytes", "auto.create.topics.enable"} <= set(entries)


def test_delete_records_moves_the_start(
    server: Server, admin: AdminClient, new_topic: NewName
) -> None:
    topic = new_topic()
    create_topic(server.bootstrap, topic)
    produce(server.bootstrap, topic, [f"{number}".encode() for number in range(100)])
    (deleted,) = outcome(admin.delete_records([TopicPartition(topic, 0, 40)])).values()
    assert deleted.low_watermark == 40
    with consumer_of(server.bootstrap) as consumer:
        assert consumer.get_watermark_offsets(TopicPartition(topic, 0), timeout=10) == (40, 100)
    assert read(server.bootstrap, topic, offset=40)[0].value() == b"40"
    with pytest.raises(KafkaException) as raised:
        outcome(admin.delete_records([TopicPartition(topic, 0, 101)]))
    assert error_code(raised.value) == KafkaError.OFFSET_OUT_OF_RANGE


def test_list_offsets(server: Server, admin: AdminClient, new_topic: NewName) -> None:
    topic = new_topic()
    create_topic(server.bootstrap, topic)
    stamps = [1_700_000_000_000 + number for number in (5, 9, 7)]
    produce(server.bootstrap, topic, [b"a", b"b", b"c"], timestamps_ms=stamps)
    partition = TopicPartition(topic, 0)
    spec: Any = OffsetSpec
    found = [
        outcome(admin.list_offsets({partition: which})).popitem()[1].offset
        for which in (spec.earliest(), spec.latest(), spec.max_timestamp())
    ]
    assert found == [0, 3, 1]


def test_describe_cluster_and_topics(
    server: Server, admin: AdminClient, new_topic: NewName
) -> None:
    cluster = admin.describe_cluster().result(ANSWER_SECONDS_MAX)
    assert [node.id for node in cluster.nodes] == [NODE_ID]
    assert cluster.cluster_id
    assert cluster.controller.id == NODE_ID
    assert f"{cluster.nodes[0].host}:{cluster.nodes[0].port}" == server.bootstrap
    topic = new_topic()
    create_topic(server.bootstrap, topic, partitions=2)
    (described,) = outcome(admin.describe_topics(TopicCollection([topic]))).values()
    assert described.name == topic
    assert [partition.id for partition in described.partitions] == [0, 1]
    assert str(described.topic_id) != "AAAAAAAAAAAAAAAAAAAAAA"
