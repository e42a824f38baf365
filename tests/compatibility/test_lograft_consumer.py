"""Lograft's consumer on nodes of both kinds: the same records, offsets and timestamps from Lograft
and from Apache Kafka, for every producer."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from confluent_kafka import Producer as ForeignProducer
from confluent_kafka import TopicPartition as ForeignPartition

from lograft.client import (
    Consumer,
    ConsumerRecord,
    NoPosition,
    OffsetOutOfRange,
    Producer,
    RangeReader,
    TopicPartition,
)
from lograft.client.consuming.range_reader import RangeEndUnavailable, RangeStartDeleted
from tests.compatibility.librdkafka import admin_of, create_topic, outcome, produce
from tests.compatibility.servers import Server
from tests.support.scenarios import scenario

pytestmark = [pytest.mark.clients, pytest.mark.conformance]
NewName = Callable[[], str]
ANSWER_SECONDS_MAX = 60
HOUR_MS = 3_600_000
#: Long ago, so that the clocks of the brokers do not matter.
THEN_MS = 1_600_000_000_000


def consumer_of(server: Server, **settings: Any) -> Consumer:
    given = {"bootstrap_servers": server.bootstrap, "auto_offset_reset": "earliest"}
    return Consumer(**{**given, **settings})


async def read(consumer: Consumer, count: int) -> list[ConsumerRecord]:
    records: list[ConsumerRecord] = []
    async for record in consumer:
        records.append(record)
        if len(records) == count:
            break
    return records


def values(records: list[ConsumerRecord]) -> list[bytes | None]:
    return [record.value for record in records]


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
@scenario()
async def test_records_of_a_foreign_producer_in_every_codec(
    server: Server, new_topic: NewName, codec: str
) -> None:
    topic = new_topic()
    create_topic(server.bootstrap, topic)
    wanted: list[bytes | None] = [b"value %d " % number * 5 for number in range(300)]
    wanted[7] = None
    produce(
        server.bootstrap,
        topic,
        wanted,
        keys=[b"k%d" % number if number % 3 else None for number in range(300)],
        headers=[("one", b"1"), ("none", None)],
        timestamps_ms=[THEN_MS + number for number in range(300)],
        settings={"compression.type": codec},
    )

    async with consumer_of(server, max_partition_fetch_bytes=4_000) as consumer:
        consumer.assign([TopicPartition(topic, 0)])
        records = await read(consumer, 300)
        assert values(records) == wanted
        assert [record.offset for record in records] == list(range(300))
        assert records[1].key == b"k1"
        assert records[3].key is None
        assert list(records[5].headers) == [("one", b"1"), ("none", None)]
        assert [record.timestamp_ms - THEN_MS for record in records] == list(range(300))
        assert {record.timestamp_type for record in records} == {0}
        consumer.seek_to_beginning()
        rows: list[tuple[Any, ...]] = []
        while len(rows) < 300:
            table = await consumer.fetch_arrow(with_headers=True)
            rows += [
                (row["key"], row["value"], row["offset"], row["headers"], row["timestamp"])
                for row in table.to_pylist()
            ]
        assert [row[:3] for row in rows] == [
            (record.key, record.value, record.offset) for record in records
        ]
        assert rows[5][3] == [{"key": "one", "value": b"1"}, {"key": "none", "value": None}]
        assert [round(row[4].timestamp() * 1000) for row in rows] == [
            record.timestamp_ms for record in records
        ]


@scenario()
async def test_places_and_times(server: Server, new_topic: NewName) -> None:
    topic = new_topic()
    first, second = TopicPartition(topic, 0), TopicPartition(topic, 1)
    create_topic(server.bootstrap, topic, partitions=2)
    produce(
        server.bootstrap,
        topic,
        [b"%d" % number for number in range(20)],
        timestamps_ms=[THEN_MS + number * HOUR_MS for number in range(20)],
    )

    async with consumer_of(server) as consumer:
        assert await consumer.beginning_offsets([first, second]) == {first: 0, second: 0}
        assert await consumer.end_offsets([first, second]) == {first: 20, second: 0}
        found = await consumer.offsets_for_times({first: THEN_MS + 4 * HOUR_MS - 1, second: 0})
        assert found[second] is None
        place = found[first]
        assert place is not None
        assert (place.offset, place.timestamp_ms) == (4, THEN_MS + 4 * HOUR_MS)
        consumer.assign([first])
        consumer.seek(first, place.offset)
        assert values(await read(consumer, 2)) == [b"4", b"5"]
        consumer.seek_to_end(first)
        assert await consumer.position(first) == 20
        consumer.seek(first, 999)
        assert values(await read(consumer, 1)) == [b"0"]
        info = await consumer.partitions_for(topic)
        assert [part.partition for part in info.partitions] == [0, 1]
        assert (await consumer.topics())[topic].id == info.id

    async with consumer_of(server, auto_offset_reset="none") as strict:
        strict.assign([first])
        with pytest.raises(NoPosition):
            await strict.poll()
        strict.seek(first, 999)
        with pytest.raises(OffsetOutOfRange):
            await strict.poll()

    async with consumer_of(server, auto_offset_reset="by_duration:P1D") as recent:
        # All records are older than a day.
        recent.assign([first])
        assert await recent.position(first) == 20


@scenario()
async def test_pausing_and_following(server: Server, new_topic: NewName) -> None:
    topic = new_topic()
    first, second = TopicPartition(topic, 0), TopicPartition(topic, 1)
    create_topic(server.bootstrap, topic, partitions=2)

    async with (
        consumer_of(server) as consumer,
        Producer(bootstrap_servers=server.bootstrap) as producer,
    ):
        consumer.assign([first, second])
        for number in range(5):
            await producer.send(topic, b"%d" % number, partition=number % 2)
            (record,) = await read(consumer, 1)
            assert (record.partition, record.value) == (number % 2, b"%d" % number)
        consumer.pause(first)
        await producer.send(topic, b"held", partition=0)
        await producer.send(topic, b"goes", partition=1)
        assert values(await read(consumer, 1)) == [b"goes"]
        assert await consumer.poll(timeout_ms=100) == {}
        consumer.resume(first)
        assert values(await read(consumer, 1)) == [b"held"]
        assert consumer.lag(first) == 0


def transact(server: Server, topic: str, name: str, values: list[bytes], *, commits: bool) -> None:
    producer = ForeignProducer({"bootstrap.servers": server.bootstrap, "transactional.id": name})
    producer.init_transactions(ANSWER_SECONDS_MAX)
    producer.begin_transaction()
    for value in values:
        producer.produce(topic, value=value, partition=0)
    producer.flush(ANSWER_SECONDS_MAX)
    if commits:
        producer.commit_transaction(ANSWER_SECONDS_MAX)
    else:
        producer.abort_transaction(ANSWER_SECONDS_MAX)


@scenario()
async def test_only_what_was_committed(server: Server, new_topic: NewName) -> None:
    topic = new_topic()
    first = TopicPartition(topic, 0)
    create_topic(server.bootstrap, topic)
    produce(server.bootstrap, topic, [b"plain"])
    transact(server, topic, f"{topic}-a", [b"yes 1", b"yes 2"], commits=True)
    transact(server, topic, f"{topic}-b", [b"no 1", b"no 2"], commits=False)
    transact(server, topic, f"{topic}-b", [b"yes 3"], commits=True)
    produce(server.bootstrap, topic, [b"last"])
    committed = [b"plain", b"yes 1", b"yes 2", b"yes 3", b"last"]
    everything = [b"plain", b"yes 1", b"yes 2", b"no 1", b"no 2", b"yes 3", b"last"]
    open_one = ForeignProducer(
        {"bootstrap.servers": server.bootstrap, "transactional.id": f"{topic}-c"}
    )
    open_one.init_transactions(ANSWER_SECONDS_MAX)
    open_one.begin_transaction()
    open_one.produce(topic, value=b"undecided", partition=0)
    open_one.flush(ANSWER_SECONDS_MAX)

    async with consumer_of(server, isolation_level="read_committed") as careful:
        careful.assign([first])
        assert values(await read(careful, 5)) == committed
        assert await careful.poll(timeout_ms=200) == {}
        end = (await careful.end_offsets([first]))[first]
        assert await careful.position(first) == end
        careful.seek_to_beginning()
        rows: list[bytes] = []
        while len(rows) < 5:
            rows += (await careful.fetch_arrow()).column("value").to_pylist()
        assert rows == committed
        async with RangeReader(
            bootstrap_servers=server.bootstrap, isolation_level="read_committed"
        ) as reader:
            batches = [batch async for batch in reader.read(topic, 0, start=0, end=end)]
            found = [value for each in batches for value in each.column("value").to_pylist()]
            assert found == committed
            with pytest.raises(RangeEndUnavailable):
                async for _ in reader.read(topic, 0, start=0, end=end + 1):
                    pass
        open_one.commit_transaction(ANSWER_SECONDS_MAX)
        assert values(await read(careful, 1)) == [b"undecided"]
    async with consumer_of(server) as hasty:
        hasty.assign([first])
        assert values(await read(hasty, 8)) == [*everything, b"undecided"]


@scenario()
async def test_what_was_deleted_is_gone(server: Server, new_topic: NewName) -> None:
    topic = new_topic()
    first = TopicPartition(topic, 0)
    create_topic(server.bootstrap, topic)
    produce(server.bootstrap, topic, [b"%d" % number for number in range(10)])
    admin = admin_of(server.bootstrap)  # must outlive its futures
    outcome(admin.delete_records([ForeignPartition(topic, 0, 6)]))

    async with consumer_of(server) as consumer:
        assert await consumer.beginning_offsets([first]) == {first: 6}
        consumer.assign([first])
        consumer.seek(first, 2)
        assert values(await read(consumer, 1)) == [b"6"]
    async with RangeReader(bootstrap_servers=server.bootstrap) as reader:
        with pytest.raises(RangeStartDeleted) as caught:
            async for _ in reader.read(topic, 0, start=2, end=10):
                pass
        assert caught.value.log_start == 6
        batches = [batch async for batch in reader.read(topic, 0, start=6, end=9)]
        assert sum(batch.num_rows for batch in batches) == 3


@scenario()
async def test_positions_without_a_membership(server: Server, new_topic: NewName) -> None:
    topic = new_topic()
    first = TopicPartition(topic, 0)
    create_topic(server.bootstrap, topic)
    produce(server.bootstrap, topic, [b"%d" % number for number in range(10)])

    async with consumer_of(server, group_id=f"{topic}-group") as consumer:
        consumer.assign([first])
        assert values(await read(consumer, 3)) == [b"0", b"1", b"2"]
        assert await consumer.committed([first]) == {first: None}
    async with consumer_of(server, group_id=f"{topic}-group") as consumer:
        # Closing has committed the offsets of the returned records.
        place = (await consumer.committed([first]))[first]
        assert place is not None
        assert place.offset == 3
        consumer.assign([first])
        assert values(await read(consumer, 1)) == [b"3"]
        await asyncio.wait_for(consumer.commit_nowait({first: 8}), ANSWER_SECONDS_MAX)
        place = (await consumer.committed([first]))[first]
        assert place is not None
        assert place.offset == 8
