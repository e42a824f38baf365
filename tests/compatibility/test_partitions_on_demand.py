"""Topics that grow when a producer writes beyond their last partition, as seen by clients (setting
`auto.create.partitions.max`). Lograft only, Kafka has no such setting."""

import asyncio
from collections.abc import Callable

import pytest
from confluent_kafka import KafkaError, KafkaException, Producer
from confluent_kafka.admin import NewPartitions  # type: ignore[attr-defined]

from lograft import client
from lograft.client import Admin, BrokerError, ConfigChange, topic_resource
from tests.compatibility import librdkafka
from tests.compatibility.servers import Server

pytestmark = pytest.mark.clients
NewName = Callable[[], str]
LIMIT = "auto.create.partitions.max"
SECONDS_MAX = 30


@pytest.fixture
def topic(server: Server, new_topic: NewName) -> str:
    """Starts with one partition and grows to three: the setting is changed after the topic is
    created."""
    if server.kind != "lograft":
        pytest.skip("Kafka has no partitions on demand")
    name = new_topic()
    librdkafka.create_topic(server.bootstrap, name)

    async def allow_growth() -> None:
        async with Admin(bootstrap_servers=server.bootstrap) as admin:
            resource = topic_resource(name)
            await admin.alter_configs({resource: [ConfigChange(LIMIT, "3")]})
            described = await admin.describe_configs([resource], names=[LIMIT])
            assert described[resource][LIMIT].value == "3"

    asyncio.run(allow_growth())
    return name


def send(server: Server, topic: str, partition: int) -> int:
    async def scenario() -> int:
        async with client.Producer(bootstrap_servers=server.bootstrap) as producer:
            return (await producer.send(topic, b"v", partition=partition)).offset

    return asyncio.run(scenario())


def partitions_of(server: Server, topic: str) -> int:
    listed = librdkafka.admin_of(server.bootstrap).list_topics(topic, timeout=SECONDS_MAX)
    return len(listed.topics[topic].partitions)


def test_our_producer_lets_a_topic_grow(server: Server, topic: str) -> None:
    assert send(server, topic, 2) == 0
    assert partitions_of(server, topic) == 3
    with pytest.raises(BrokerError, match=rf"limit of 3 .*increase {LIMIT}"):
        send(server, topic, 3)
    assert partitions_of(server, topic) == 3


def test_librdkafka_sends_to_known_partitions_only(server: Server, topic: str) -> None:
    """It compares the number with its metadata before it sends anything."""
    producer = Producer({"bootstrap.servers": server.bootstrap})
    producer.list_topics(topic, timeout=SECONDS_MAX)
    delivered: list[int | None] = []

    def produce(partition: int) -> None:
        producer.produce(
            topic,
            b"v",
            partition=partition,
            on_delivery=lambda error, message: delivered.append(message.partition()),
        )
        assert producer.flush(SECONDS_MAX) == 0

    produce(0)
    with pytest.raises(KafkaException) as found:
        produce(1)
    assert found.value.args[0].code() == KafkaError._UNKNOWN_PARTITION
    assert partitions_of(server, topic) == 1
    # It can add the partition with an admin client, and then needs new metadata.
    admin = librdkafka.admin_of(server.bootstrap)
    librdkafka.outcome(admin.create_partitions([NewPartitions(topic, 2)]))
    while len(producer.list_topics(topic, timeout=SECONDS_MAX).topics[topic].partitions) < 2:
        pass
    produce(1)
    assert delivered == [0, 1]
