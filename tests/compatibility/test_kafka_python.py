"""kafka-python: producer, consumer by assignment, admin; against Lograft and Apache Kafka."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer, OffsetSpec, TopicPartition
from kafka.admin import ConfigResource, ConfigResourceType
from kafka.errors import (
    InvalidConfigurationError,
    MessageSizeTooLargeError,
    TopicAlreadyExistsError,
)

from tests.compatibility.servers import NODE_ID, Server

pytestmark = pytest.mark.clients
NewName = Callable[[], str]
ANSWER_SECONDS_MAX = 30
VALUES = [f"value {number} ".encode() * 10 for number in range(200)]


@pytest.fixture(scope="module")
def admin(server: Server) -> Iterator[Any]:
    client = KafkaAdminClient(bootstrap_servers=server.bootstrap)
    yield client
    client.close()


def send_all(server: Server, topic: str, values: list[bytes], **settings: Any) -> list[int]:
    producer = KafkaProducer(bootstrap_servers=server.bootstrap, linger_ms=5, **settings)
    try:
        answers = [producer.send(topic, value=value, partition=0) for value in values]
        return [answer.get(ANSWER_SECONDS_MAX).offset for answer in answers]
    finally:
        producer.close()


def read(server: Server, topic: str, count: int, *, offset: int = 0) -> list[Any]:
    consumer = KafkaConsumer(bootstrap_servers=server.bootstrap, group_id=None)
    partition = TopicPartition(topic, 0)
    records: list[Any] = []
    try:
        consumer.assign([partition])
        consumer.seek(partition, offset)
        for _poll in range(60):
            for found in consumer.poll(timeout_ms=500).values():
                records += found
            if len(records) >= count:
                break
        return records
    finally:
        consumer.close()


@pytest.mark.parametrize("codec", [None, "gzip"])  # its other codecs need additional packages
def test_what_was_sent_is_read(
    server: Server, admin: Any, new_topic: NewName, codec: str | None
) -> None:
    topic = new_topic()
    admin.create_topics({topic: {"num_partitions": 1}})
    offsets = send_all(server, topic, VALUES, compression_type=codec)
    assert offsets == list(range(len(VALUES)))
    assert [record.value for record in read(server, topic, len(VALUES))] == VALUES


@pytest.mark.parametrize(
    "settings",
    [
        {"acks": 1, "enable_idempotence": False, "max_in_flight_requests_per_connection": 1},
        {"acks": "all", "enable_idempotence": False, "max_in_flight_requests_per_connection": 1},
        {"enable_idempotence": True, "batch_size": 512},
    ],
    ids=["leader", "all", "idempotent"],
)
def test_acknowledgements(
    server: Server, admin: Any, new_topic: NewName, settings: dict[str, Any]
) -> None:
    topic = new_topic()
    admin.create_topics({topic: {"num_partitions": 1}})
    assert send_all(server, topic, VALUES, **settings) == list(range(len(VALUES)))
    assert [record.value for record in read(server, topic, len(VALUES))] == VALUES


def test_keys_headers_and_nulls(server: Server, admin: Any, new_topic: NewName) -> None:
    topic = new_topic()
    admin.create_topics({topic: {"num_partitions": 1}})
    headers = [("a", b"1"), ("b", b"")]
    producer = KafkaProducer(bootstrap_servers=server.bootstrap)
    producer.send(topic, key=b"k", value=None, headers=headers, partition=0).get(ANSWER_SECONDS_MAX)
    producer.send(topic, key=None, value=b"v", timestamp_ms=12345, partition=0).get(
        ANSWER_SECONDS_MAX
    )
    producer.close()
    tombstone, plain = read(server, topic, 2)
    assert (tombstone.key, tombstone.value, list(tombstone.headers)) == (b"k", None, headers)
    assert (plain.key, plain.value, plain.timestamp) == (None, b"v", 12345)


def test_offsets_and_times(server: Server, admin: Any, new_topic: NewName) -> None:
    topic = new_topic()
    admin.create_topics({topic: {"num_partitions": 1}})
    partition = TopicPartition(topic, 0)
    producer = KafkaProducer(bootstrap_servers=server.bootstrap)
    for stamp_ms in (1000, 2000, 3000):
        producer.send(topic, b"x", partition=0, timestamp_ms=stamp_ms).get(ANSWER_SECONDS_MAX)
    producer.close()
    consumer = KafkaConsumer(bootstrap_servers=server.bootstrap, group_id=None)
    assert consumer.beginning_offsets([partition]) == {partition: 0}
    assert consumer.end_offsets([partition]) == {partition: 3}
    assert consumer.offsets_for_times({partition: 1500})[partition].offset == 1
    assert consumer.offsets_for_times({partition: 3001})[partition] is None
    consumer.assign([partition])
    consumer.seek_to_end(partition)
    assert consumer.position(partition) == 3
    consumer.close()
    found = admin.list_partition_offsets({partition: OffsetSpec.LATEST})
    assert found[partition].offset == 3


def test_admin_errors_have_their_names(server: Server, admin: Any, new_topic: NewName) -> None:
    topic = new_topic()
    admin.create_topics({topic: {"num_partitions": 1, "configs": {"max.message.bytes": "5000"}}})
    with pytest.raises(TopicAlreadyExistsError):
        admin.create_topics({topic: {"num_partitions": 1}})
    with pytest.raises(InvalidConfigurationError):
        admin.create_topics({new_topic(): {"configs": {"retention.ms": "long"}}})
    with pytest.raises(MessageSizeTooLargeError):
        send_all(server, topic, [b"x" * 9000])


def test_admin_settings_partitions_records(server: Server, admin: Any, new_topic: NewName) -> None:
    topic = new_topic()
    admin.create_topics({topic: {"num_partitions": 1}})
    send_all(server, topic, VALUES)
    resource = ConfigResource(ConfigResourceType.TOPIC, topic, {"retention.ms": "12345"})
    admin.alter_configs([resource])
    asked = ConfigResource(ConfigResourceType.TOPIC, topic)
    assert "12345" in repr(admin.describe_configs([asked]))
    admin.create_partitions({topic: 4})
    (described,) = admin.describe_topics([topic])
    assert len(described["partitions"]) == 4
    partition = TopicPartition(topic, 0)
    assert "150" in repr(admin.delete_records({partition: 150}))
    assert read(server, topic, 50, offset=150)[0].offset == 150
    admin.delete_topics([topic])
    assert topic not in admin.list_topics()


def test_admin_sees_the_cluster(server: Server, admin: Any) -> None:
    cluster = admin.describe_cluster()
    assert cluster["controller_id"] == NODE_ID
    assert len(cluster["brokers"]) == 1
    assert "log_dir" in repr(admin.describe_log_dirs())
    assert str(NODE_ID) in repr(admin.describe_metadata_quorum())
