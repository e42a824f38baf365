"""Our producer on real nodes of both kinds: the same promises on Lograft and on Apache Kafka."""

import asyncio
import threading
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from lograft.client import Producer, TopicPartition, WrongUse, blocking
from lograft.client.types import Acknowledged
from tests.compatibility import librdkafka
from tests.compatibility.servers import Server

pytestmark = pytest.mark.clients
NewName = Callable[[], str]
ANSWER_SECONDS_MAX = 60


def run(work: Coroutine[Any, Any, None]) -> None:
    async def bounded() -> None:
        async with asyncio.timeout(ANSWER_SECONDS_MAX):
            await work

    asyncio.run(bounded())


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
            assert [(await one).offset for one in deliveries] == list(range(300))

    run(scenario())
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
        assert producer.statistics()["records_sent"] == 42
    for partition in (0, 1):
        mine = [one.offset for one in answered if one.partition == partition]
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
