"""Lograft's producer on nodes of both kinds: the same guarantees on Lograft and on Apache Kafka."""

import asyncio
import threading
from collections.abc import Callable
from typing import Any

import pytest
from confluent_kafka import Message
from confluent_kafka import Producer as ConfluentProducer

from lograft.client import (
    BrokerError,
    InvalidTopic,
    Producer,
    RecordTooLarge,
    TimedOut,
    TopicPartition,
    WrongUse,
    blocking,
)
from lograft.client.types import Acknowledged
from tests.compatibility import librdkafka
from tests.compatibility.servers import Server
from tests.support.scenarios import run_in_asyncio, scenario

pytestmark = [pytest.mark.clients, pytest.mark.conformance]
NewName = Callable[[], str]
ANSWER_SECONDS_MAX = 60


def values_of(server: Server, topic: str, partition: int = 0) -> list[bytes | None]:
    return librdkafka.values_of(librdkafka.read(server.bootstrap, topic, partition=partition))


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_records_arrive_in_order_in_every_codec(
    server: Server, new_topic: NewName, codec: str
) -> None:
    topic = new_topic()
    librdkafka.create_topic(server.bootstrap, topic)
    values = [b"value %d " % number * 10 for number in range(300)]

    async def scenario() -> None:
        settings = {"bootstrap.servers": server.bootstrap, "compression.type": codec}
        async with Producer(settings, batch_size=2_000) as producer:
            deliveries = await producer.send_many(topic, values)
            assert [(await delivery).offset for delivery in deliveries] == list(range(300))

    run_in_asyncio(scenario)
    assert values_of(server, topic) == values


def test_threads_share_a_producer(server: Server, new_topic: NewName) -> None:
    topic = new_topic()
    librdkafka.create_topic(server.bootstrap, topic, partitions=2)
    answered: list[Acknowledged] = []
    called_back = threading.Semaphore(0)

    def on_done(delivery: blocking.Delivery) -> None:
        answered.append(delivery.result())
        called_back.release()

    def write(producer: blocking.Producer, partition: int) -> None:
        for number in range(20):
            delivery = producer.enqueue(topic, b"%d" % number, partition=partition)
            delivery.add_done_callback(on_done)
        last = producer.enqueue(topic, b"last", partition=partition)
        assert last.result(timeout_ms=60_000).offset == 20

    with blocking.Producer(bootstrap_servers=server.bootstrap) as producer:
        threads = [
            threading.Thread(target=write, args=(producer, partition)) for partition in (0, 1)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        producer.flush()
        for _ in range(40):
            assert called_back.acquire(timeout=60)
        assert producer.metrics().value("record-acknowledged-total") == 42
    for partition in (0, 1):
        mine = [each.offset for each in answered if each.partition == partition]
        assert mine == list(range(20))
        expected = [*(b"%d" % number for number in range(20)), b"last"]
        assert values_of(server, topic, partition) == expected


def test_reading_without_await(server: Server, new_topic: NewName) -> None:
    topic = new_topic()
    librdkafka.create_topic(server.bootstrap, topic)
    with (
        blocking.Producer(bootstrap_servers=server.bootstrap) as producer,
        blocking.Consumer(
            bootstrap_servers=server.bootstrap, group_id=topic, auto_offset_reset="earliest"
        ) as consumer,
    ):
        producer.send_many(topic, [b"%d" % number for number in range(30)])
        producer.flush()
        consumer.subscribe([topic])
        seen = []
        for record in consumer:
            seen.append(record.value)
            if len(seen) == 20:
                break
        consumer.commit()
        partition = TopicPartition(topic, 0)
        assert consumer.position(partition) == 20
        while len(seen) < 30:
            for records in consumer.poll(timeout_ms=60_000).values():
                seen += [record.value for record in records]
        assert seen == [b"%d" % number for number in range(30)]
        refused: list[str] = []

        def elsewhere() -> None:
            try:
                consumer.position(partition)
            except WrongUse as error:
                refused.append(str(error))

        thread = threading.Thread(target=elsewhere)
        thread.start()
        thread.join()
        assert "belongs to thread" in refused[0]


async def outcomes(server: Server, topic: str, **settings: Any) -> list[Acknowledged]:
    async with Producer({"bootstrap.servers": server.bootstrap, **settings}) as producer:
        return [await producer.send(topic, b"%d" % number) for number in range(3)]


@pytest.mark.parametrize("acks", ["0", "1", "all"])
def test_what_an_acknowledgement_tells(server: Server, new_topic: NewName, acks: str) -> None:
    topic = new_topic()
    librdkafka.create_topic(server.bootstrap, topic)

    async def scenario() -> None:
        metadata = await outcomes(server, topic, acks=acks)
        offsets = [-1, -1, -1] if acks == "0" else [0, 1, 2]
        assert [each.offset for each in metadata] == offsets
        assert {each.partition for each in metadata} == {0}

    run_in_asyncio(scenario)
    while len(found := values_of(server, topic)) < 3:
        pass
    assert found == [b"0", b"1", b"2"]


def test_keys_headers_and_times_arrive(server: Server, new_topic: NewName) -> None:
    topic = new_topic()
    librdkafka.create_topic(server.bootstrap, topic)
    headers = [("one", b"1"), ("none", None), ("one", b"again")]

    async def scenario() -> None:
        async with Producer(bootstrap_servers=server.bootstrap) as producer:
            metadata = await producer.send(
                topic, "text", key="key", timestamp_ms=1_700_000_000_123, headers=headers
            )
            assert metadata.timestamp_ms == 1_700_000_000_123
            await producer.send(topic, None, key=b"gone")

    run_in_asyncio(scenario)
    first, second = librdkafka.read(server.bootstrap, topic)
    assert (first.key(), first.value(), first.headers()) == (b"key", b"text", headers)
    assert first.timestamp()[1] == 1_700_000_000_123
    assert (second.key(), second.value()) == (b"gone", None)


@scenario()
async def test_the_brokers_time_is_told_where_the_topic_wants_it(
    server: Server, new_topic: NewName
) -> None:
    topic = new_topic()
    librdkafka.create_topic(
        server.bootstrap, topic, configs={"message.timestamp.type": "LogAppendTime"}
    )

    async with Producer(bootstrap_servers=server.bootstrap) as producer:
        metadata = await producer.send(topic, b"v", timestamp_ms=5)
        assert metadata.timestamp_ms > 1_700_000_000_000


@scenario()
async def test_keys_go_where_java_puts_them(server: Server, new_topic: NewName) -> None:
    topic = new_topic()
    librdkafka.create_topic(server.bootstrap, topic, partitions=8)
    keys = [b"key %d" % number for number in range(60)]
    theirs: dict[bytes | None, int | None] = {}

    def note(_error: object, message: Message) -> None:
        theirs[message.key()] = message.partition()

    other = ConfluentProducer(
        {"bootstrap.servers": server.bootstrap, "partitioner": "murmur2_random"}
    )
    for key in keys:
        other.produce(topic, b"v", key, on_delivery=note)
    assert other.flush(60) == 0

    async with Producer(bootstrap_servers=server.bootstrap) as producer:
        deliveries = await producer.send_many(topic, [b"v"] * len(keys), keys=keys)
        ours = [delivery.partition for delivery in await deliveries]
        assert ours == [theirs[key] for key in keys]


@scenario()
async def test_what_the_topic_refuses_is_told_and_the_rest_goes_on(
    server: Server, new_topic: NewName
) -> None:
    small, compacted = new_topic(), new_topic()
    librdkafka.create_topic(server.bootstrap, small, configs={"max.message.bytes": "1000"})
    librdkafka.create_topic(server.bootstrap, compacted, configs={"cleanup.policy": "compact"})

    async with Producer(
        {"bootstrap.servers": server.bootstrap, "linger.ms": 50}, max_block_ms=3_000
    ) as producer:
        with pytest.raises(RecordTooLarge):
            await producer.send(small, b"v" * 2_000)
        # Too large together, but each is small enough: they are split.
        deliveries = await producer.send_many(small, [b"%03d" % i * 100 for i in range(12)])
        assert [delivery.offset for delivery in await deliveries] == list(range(12))
        with pytest.raises(BrokerError):
            await producer.send(compacted, b"no key")
        assert (await producer.send(compacted, b"v", key=b"k")).offset == 0
        with pytest.raises(InvalidTopic):
            await producer.send("no such/topic", b"v")
        with pytest.raises(TimedOut, match="has 1 partitions, so there is no partition 5"):
            await producer.send(small, b"v", partition=5)


@scenario()
async def test_a_topic_is_made_when_it_is_first_used(server: Server, new_topic: NewName) -> None:
    topic = new_topic()

    async with Producer(bootstrap_servers=server.bootstrap) as producer:
        assert (await producer.send(topic, b"v", partition=1)).offset == 0
        assert await producer.prepare(topic) == 2


def test_lost_connections_lose_and_double_nothing(server: Server, new_topic: NewName) -> None:
    topic = new_topic()
    librdkafka.create_topic(server.bootstrap, topic)

    async def scenario() -> None:
        settings = {"bootstrap.servers": server.bootstrap, "batch.size": 200, "linger.ms": 0}
        async with Producer(settings) as producer:
            deliveries = []
            for number in range(300):
                deliveries.append(await producer.enqueue(topic, b"%d" % number, partition=0))
                if number % 60 == 30:
                    # Between requests and their responses.
                    await asyncio.sleep(0)
                    link = producer._open_core().network.ready_connection(1)
                    if link is not None:
                        link.close("cut by the test")
            assert [(await delivery).offset for delivery in deliveries] == list(range(300))

    run_in_asyncio(scenario)
    assert values_of(server, topic) == [b"%d" % number for number in range(300)]


def test_threads_keep_their_order_when_there_is_little_room(
    server: Server, new_topic: NewName
) -> None:
    topic = new_topic()
    librdkafka.create_topic(server.bootstrap, topic, partitions=2)

    def write(producer: blocking.Producer, partition: int) -> None:
        for number in range(3_000):
            producer.enqueue(topic, b"%d" % number, partition=partition)
        producer.send(topic, b"last", partition=partition)

    with blocking.Producer(
        bootstrap_servers=server.bootstrap, buffer_memory=5_000, batch_size=500
    ) as producer:
        refused = producer.enqueue("no such/topic", b"v")
        threads = [
            threading.Thread(target=write, args=(producer, partition)) for partition in (0, 1)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        with pytest.raises(InvalidTopic):
            refused.result(timeout_ms=60_000)
    expected = [*(b"%d" % number for number in range(3_000)), b"last"]
    for partition in (0, 1):
        assert values_of(server, topic, partition) == expected
