"""aiokafka: producer, consumer by assignment, admin; against Lograft and Apache Kafka."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, NewPartitions, NewTopic, RecordsToDelete
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType
from aiokafka.errors import KafkaError, MessageSizeTooLargeError, TopicAlreadyExistsError

from tests.compatibility.servers import Server
from tests.support.scenarios import scenario

pytestmark = pytest.mark.clients
NewName = Callable[[], str]
VALUES = [f"value {number} ".encode() * 10 for number in range(300)]
ANSWER_SECONDS_MAX = 30


@asynccontextmanager
async def started(client: Any) -> AsyncIterator[Any]:
    """They all start with start(), but admin stops with close() and the others with stop()."""
    await client.start()
    try:
        yield client
    finally:
        await (client.close() if isinstance(client, AIOKafkaAdminClient) else client.stop())


def admin_of(server: Server) -> Any:
    return started(AIOKafkaAdminClient(bootstrap_servers=server.bootstrap))


async def create(server: Server, topic: str, *, partitions: int = 1, **configs: str) -> None:
    async with admin_of(server) as admin:
        named = {name.replace("_", "."): value for name, value in configs.items()}
        await admin.create_topics([NewTopic(topic, partitions, 1, topic_configs=named)])


async def send_all(server: Server, topic: str, values: list[bytes], **settings: Any) -> list[int]:
    producer = AIOKafkaProducer(bootstrap_servers=server.bootstrap, linger_ms=5, **settings)
    async with started(producer):
        sent = [await producer.send(topic, value, partition=0) for value in values]
        return [(await answer).offset for answer in sent]


async def read(server: Server, topic: str, count: int, *, offset: int = 0) -> list[Any]:
    consumer = AIOKafkaConsumer(bootstrap_servers=server.bootstrap, group_id=None)
    async with started(consumer):
        partition = TopicPartition(topic, 0)
        consumer.assign([partition])
        consumer.seek(partition, offset)
        return [await consumer.getone() for _record in range(count)]


@pytest.mark.parametrize("codec", [None, "gzip", "snappy", "lz4", "zstd"])
@scenario()
async def test_every_codec(server: Server, new_topic: NewName, codec: str | None) -> None:
    topic = new_topic()
    await create(server, topic)
    offsets = await send_all(server, topic, VALUES, compression_type=codec)
    assert offsets == list(range(len(VALUES)))
    assert [record.value for record in await read(server, topic, len(VALUES))] == VALUES


@pytest.mark.parametrize(
    "settings",
    [{"acks": 1}, {"acks": "all"}, {"enable_idempotence": True, "max_batch_size": 400}],
    ids=["leader", "all", "idempotent"],
)
@scenario()
async def test_acknowledgements(
    server: Server, new_topic: NewName, settings: dict[str, Any]
) -> None:
    topic = new_topic()
    await create(server, topic)
    assert await send_all(server, topic, VALUES, **settings) == list(range(len(VALUES)))
    assert [record.value for record in await read(server, topic, len(VALUES))] == VALUES


@scenario()
async def test_headers_nulls_and_seeks(server: Server, new_topic: NewName) -> None:
    topic = new_topic()
    await create(server, topic)
    async with started(AIOKafkaProducer(bootstrap_servers=server.bootstrap)) as producer:
        for number in range(10):
            await producer.send_and_wait(
                topic,
                None if number == 3 else b"v%d" % number,
                key=b"k",
                partition=0,
                timestamp_ms=1000 * number + 1000,
                headers=[("n", b"%d" % number)],
            )
    records = await read(server, topic, 7, offset=3)
    assert [record.value for record in records] == [None, *(b"v%d" % n for n in range(4, 10))]
    assert records[0].headers == (("n", b"3"),)
    partition = TopicPartition(topic, 0)
    consumer = AIOKafkaConsumer(bootstrap_servers=server.bootstrap, group_id=None)
    async with started(consumer):
        assert await consumer.beginning_offsets([partition]) == {partition: 0}
        assert await consumer.end_offsets([partition]) == {partition: 10}
        found = await consumer.offsets_for_times({partition: 4500})
        assert found[partition].offset == 4


@scenario()
async def test_a_reader_at_the_end_gets_the_next_message(
    server: Server, new_topic: NewName
) -> None:
    topic = new_topic()
    await create(server, topic)
    await send_all(server, topic, VALUES[:5])
    consumer = AIOKafkaConsumer(bootstrap_servers=server.bootstrap, group_id=None)
    async with started(consumer):
        partition = TopicPartition(topic, 0)
        consumer.assign([partition])
        await consumer.seek_to_end(partition)
        assert await consumer.position(partition) == 5
        waiting = asyncio.ensure_future(consumer.getone())
        await send_all(server, topic, [b"next"])
        record = await waiting
    assert (record.offset, record.value) == (5, b"next")


@scenario()
async def test_admin(server: Server, new_topic: NewName) -> None:
    topic = new_topic()
    await create(server, topic, retention_ms="99999")
    await send_all(server, topic, VALUES)
    async with admin_of(server) as admin:
        refused = await admin.create_topics([NewTopic(topic, 1, 1)])
        assert refused.topic_errors[0][1] == TopicAlreadyExistsError.errno
        await admin.create_partitions({topic: NewPartitions(3)})
        (described,) = await admin.describe_topics([topic])
        assert len(described["partitions"]) == 3
        asked = ConfigResource(ConfigResourceType.TOPIC, topic)
        assert "99999" in repr(await admin.describe_configs([asked]))
        await admin.delete_records({TopicPartition(topic, 0): RecordsToDelete(200)})
        assert (await read(server, topic, 1, offset=200))[0].offset == 200
        await admin.delete_topics([topic])
        assert topic not in await admin.list_topics()


@scenario()
async def test_a_message_too_large(server: Server, new_topic: NewName) -> None:
    topic = new_topic()
    await create(server, topic, max_message_bytes="4000")
    with pytest.raises(KafkaError) as raised:
        await send_all(server, topic, [b"x" * 8000])
    assert isinstance(raised.value, MessageSizeTooLargeError)
