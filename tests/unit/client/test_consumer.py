"""The consumer on simulated clusters: every record exactly once and in order, also when leaders
die, and correct positions."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import pytest

from lograft.client.consumer import Consumer
from lograft.client.consuming.fetch_collector import Polled
from lograft.client.errors import NoPosition, OffsetOutOfRange, SerializationFailed, WrongUse
from lograft.client.producer import Producer
from lograft.client.serializers import json_deserializer
from lograft.client.types import OffsetAndMetadata, TopicPartition
from lograft.model.settings.broker import broker_config
from lograft.testing import VirtualCluster
from tests.support.scenarios import scenario

Scenario = Callable[[VirtualCluster, Consumer], Awaitable[None]]

T0 = TopicPartition("t", 0)
T1 = TopicPartition("t", 1)


def play(
    scenario: Scenario, settings: dict[str, Any] | None = None, *, nodes: int = 1, seed: int = 3
) -> None:
    async def main(cluster: VirtualCluster) -> None:
        admin = cluster.test_client("admin")
        await admin.create_topic("t", partitions=2, replication_factor=nodes)
        async with make_consumer(cluster, settings) as consumer:
            await scenario(cluster, consumer)

    properties = {
        "offsets.topic.replication.factor": str(nodes),
        "offsets.topic.num.partitions": "2",
    }
    VirtualCluster(nodes=nodes, seed=seed, properties=properties).play(main)


def make_consumer(cluster: VirtualCluster, settings: dict[str, Any] | None = None) -> Consumer:
    servers = ",".join(map(str, cluster.bootstrap()))
    defaults = {"bootstrap.servers": servers, "auto.offset.reset": "earliest"}
    return Consumer({**defaults, **(settings or {})}, runtime=cluster.client_runtime())


async def write(cluster: VirtualCluster, values: Sequence[bytes], partition: int = 0) -> None:
    servers = ",".join(map(str, cluster.bootstrap()))
    async with Producer(
        {"bootstrap.servers": servers, "batch.size": 200}, runtime=cluster.client_runtime()
    ) as producer:
        for value in values:
            await producer.enqueue("t", value, partition=partition)


async def read(consumer: Consumer, count: int) -> list[bytes]:
    values: list[bytes] = []
    async for record in consumer:
        values.append(record.value)
        if len(values) == count:
            break
    return values


def numbers(count: int, first: int = 0) -> list[bytes]:
    return [b"%d" % i for i in range(first, first + count)]


@scenario(play)
async def test_records_are_returned_in_order_with_their_metadata(
    cluster: VirtualCluster, consumer: Consumer, /
) -> None:
    await write(cluster, numbers(500))
    consumer.assign([T0])
    assert await read(consumer, 500) == numbers(500)
    assert await consumer.position(T0) == 500
    consumer.seek(T0, 7)
    polled = await consumer.poll(max_records=1)
    (record,) = polled[T0]
    assert (record.topic, record.partition, record.offset, record.key) == ("t", 0, 7, None)
    assert record.timestamp_type == 0
    assert record.leader_epoch >= 0
    assert await consumer.position(T0) == 8


@scenario(play)
async def test_positions_advance_with_returned_records_not_with_fetches(
    cluster: VirtualCluster, consumer: Consumer, /
) -> None:
    await write(cluster, numbers(100))
    consumer.assign([T0])
    assert await read(consumer, 3) == numbers(3)
    assert await consumer.position(T0) == 3
    assert [record.value for record in (await consumer.poll(max_records=2))[T0]] == numbers(
        2, first=3
    )
    assert await read(consumer, 95) == numbers(95, first=5)


@scenario(play)
async def test_seek_discards_fetched_records_inside_a_loop(
    cluster: VirtualCluster, consumer: Consumer, /
) -> None:
    await write(cluster, numbers(50))
    consumer.assign([T0])
    offsets: list[int] = []
    async for record in consumer:
        offsets.append(record.offset)
        if record.offset == 5 and len(offsets) < 10:
            consumer.seek(T0, 40)
        if record.offset == 42:
            break
    assert offsets == [0, 1, 2, 3, 4, 5, 40, 41, 42]
    consumer.seek_to_beginning()
    assert await read(consumer, 2) == numbers(2)
    consumer.seek_to_end(T0)
    assert await consumer.position(T0) == 50
    assert await consumer.poll(timeout_ms=1_000) == {}


@scenario(play)
async def test_paused_partitions_return_no_records_and_lose_none(
    cluster: VirtualCluster, consumer: Consumer, /
) -> None:
    await write(cluster, numbers(10))
    await write(cluster, numbers(10, first=10), partition=1)
    consumer.assign([T0, T1])
    while not (await consumer.poll(max_records=1)).get(T0):
        pass
    consumer.pause(T0)
    assert consumer.paused() == {T0}
    rest: list[bytes] = []
    while polled := await consumer.poll(timeout_ms=2_000):
        assert set(polled) == {T1}
        rest += [record.value for record in polled[T1]]
    assert rest[-1] == b"19"
    consumer.resume(T0)
    assert await read(consumer, 9) == numbers(9, first=1)


@scenario(play, {"max.partition.fetch.bytes": 1000})
async def test_partitions_take_turns(cluster: VirtualCluster, consumer: Consumer, /) -> None:
    await write(cluster, numbers(400))
    await write(cluster, numbers(400), partition=1)
    consumer.assign([T0, T1])
    counts = {T0: 0, T1: 0}
    while sum(counts.values()) < 800:
        for partition, records in (await consumer.poll(max_records=20)).items():
            counts[partition] += len(records)
        # Neither partition waits until the other has been read to the end.
        assert abs(counts[T0] - counts[T1]) <= 400
    assert counts == {T0: 400, T1: 400}


@scenario(play)
async def test_lookups_of_first_last_and_timestamp_offsets(
    cluster: VirtualCluster, consumer: Consumer, /
) -> None:
    servers = ",".join(map(str, cluster.bootstrap()))
    async with Producer(bootstrap_servers=servers, runtime=cluster.client_runtime()) as producer:
        for i in range(10):
            await producer.send("t", b"v", partition=0, timestamp_ms=1_000 + 100 * i)
    assert await consumer.beginning_offsets([T0, T1]) == {T0: 0, T1: 0}
    assert await consumer.end_offsets([T0, T1]) == {T0: 10, T1: 0}
    found = await consumer.offsets_for_times({T0: 1_250, T1: 5})
    assert found[T1] is None
    first = found[T0]
    assert first is not None
    assert (first.offset, first.timestamp_ms) == (3, 1_300)
    assert (await consumer.offsets_for_times({T0: 9_999}))[T0] is None


@scenario(play, {"auto.offset.reset": "none"})
async def test_start_positions_by_reset_policy(
    cluster: VirtualCluster, consumer: Consumer, /
) -> None:
    await write(cluster, numbers(10))
    consumer.assign([T0])
    with pytest.raises(NoPosition, match=r"t-0: there is no committed offset.*seek"):
        await consumer.poll()
    with pytest.raises(NoPosition):
        await consumer.position(T0)
    consumer.seek(T0, 4)
    assert await read(consumer, 1) == [b"4"]
    consumer.seek(T0, 11)
    with pytest.raises(OffsetOutOfRange, match="t-0 at offset 11"):
        await consumer.poll()
    async with make_consumer(cluster, {"auto.offset.reset": "latest"}) as latest:
        latest.assign([T0])
        assert await latest.position(T0) == 10
        latest.seek(T0, 11)
        assert await latest.poll(timeout_ms=3_000) == {}
        assert await latest.position(T0) == 10
    async with make_consumer(cluster, {"auto.offset.reset": "by_duration:PT1H"}) as by_duration:
        by_duration.assign([T0, T1])
        assert await by_duration.position(T0) == 0
        assert await by_duration.position(T1) == 0


@scenario(play, {"auto.offset.reset": "by_duration:PT1M"})
async def test_reset_by_duration_starts_at_the_first_recent_record(
    cluster: VirtualCluster, consumer: Consumer, /
) -> None:
    await write(cluster, numbers(10))
    await asyncio.sleep(120)
    await write(cluster, numbers(5, first=10))
    consumer.assign([T0])
    assert await consumer.position(T0) == 10
    await asyncio.sleep(120)
    consumer.assign([])
    consumer.assign([T0])
    # No record is that recent: it starts at the end.
    assert await consumer.position(T0) == 15


@scenario(play, {"request.timeout.ms": 3000}, nodes=3)
async def test_every_record_is_returned_once_when_leaders_die(
    cluster: VirtualCluster, consumer: Consumer, /
) -> None:
    consumer.assign([T0])
    reading = asyncio.ensure_future(read(consumer, 300))
    servers = ",".join(map(str, cluster.bootstrap()))
    async with Producer(
        {"bootstrap.servers": servers, "request.timeout.ms": 3_000},
        runtime=cluster.client_runtime("writer"),
    ) as producer:
        for i in range(300):
            await producer.enqueue("t", b"%d" % i, partition=0)
            if i in (80, 190):
                victim = cluster.leader_of("t", 0)
                cluster.kill(victim)
                cluster.loop.call_later_ns(3_000_000_000, cluster.boot, victim)
            await asyncio.sleep(0.05)
    assert await reading == numbers(300)


@scenario(play, {"value.deserializer": json_deserializer})
async def test_a_record_that_cannot_be_deserialized_can_be_skipped(
    cluster: VirtualCluster, consumer: Consumer, /
) -> None:
    await write(cluster, [b'{"a":1}', b"[2]", b"{", b'"after"'])
    consumer.assign([T0])
    polled = await consumer.poll()
    assert [record.value for record in polled[T0]] == [{"a": 1}, [2]]
    for _ in range(2):
        with pytest.raises(SerializationFailed, match=r"value of t-0 at offset 2.*seek to 3"):
            await consumer.poll()
    assert await consumer.position(T0) == 2
    consumer.seek(T0, 3)
    async for record in consumer:
        assert record.value == "after"
        break


@scenario(play, {"group.id": "g", "enable.auto.commit": "false"})
async def test_the_next_consumer_starts_at_the_committed_offsets(
    cluster: VirtualCluster, consumer: Consumer, /
) -> None:
    await write(cluster, numbers(20))
    consumer.assign([T0])
    await read(consumer, 7)
    assert await consumer.committed([T0]) == {T0: None}
    await consumer.commit()
    committed = (await consumer.committed([T0]))[T0]
    assert committed is not None
    assert committed.offset == 7
    await consumer.commit({T0: OffsetAndMetadata(5, "a note")})
    async with make_consumer(cluster, {"group.id": "g"}) as second:
        committed = (await second.committed([T0]))[T0]
        assert committed is not None
        assert committed[:2] == (5, "a note")
        second.assign([T0])
        assert await read(second, 1) == [b"5"]
    # It has committed its position when it was closed.
    committed = (await consumer.committed([T0]))[T0]
    assert committed is not None
    assert committed.offset == 6
    await asyncio.wait_for(consumer.commit_nowait({T0: 9}), 10)
    committed = (await consumer.committed([T0]))[T0]
    assert committed is not None
    assert committed.offset == 9


@scenario(play, {"group.id": "g"})
async def test_positions_are_committed_periodically(
    cluster: VirtualCluster, consumer: Consumer, /
) -> None:
    await write(cluster, numbers(20))
    consumer.assign([T0])
    await read(consumer, 20)
    assert await consumer.committed([T0]) == {T0: None}
    assert await consumer.poll(timeout_ms=6_000) == {}
    await asyncio.sleep(1)
    committed = (await consumer.committed([T0]))[T0]
    assert committed is not None
    assert committed.offset == 20


@scenario(play)
async def test_columns_contain_the_same_records(
    cluster: VirtualCluster, consumer: Consumer, /
) -> None:
    await write(cluster, numbers(300))
    await write(cluster, numbers(40), partition=1)
    consumer.assign([T0, T1])
    # The rest of a slice whose first records were polled is returned as columns.
    first = (await consumer.poll(max_records=3)).popitem()[1]
    rows = [(record.partition, record.offset, record.value) for record in first]
    while len(rows) < 340:
        table = await consumer.fetch_arrow()
        rows += list(
            zip(
                table.column("partition").to_pylist(),
                table.column("offset").to_pylist(),
                table.column("value").to_pylist(),
                strict=True,
            )
        )
    expected = [(0, i, b"%d" % i) for i in range(300)] + [(1, i, b"%d" % i) for i in range(40)]
    assert sorted(rows) == expected
    empty = await consumer.fetch_arrow(timeout_ms=100, with_headers=True)
    assert empty.num_rows == 0
    assert "headers" in empty.column_names
    assert await consumer.position(T0) == 300


@scenario(play)
async def test_wrong_uses_are_rejected(cluster: VirtualCluster, consumer: Consumer, /) -> None:
    with pytest.raises(WrongUse, match="call assign"):
        await consumer.poll()
    consumer.assign([T0])
    waiting = asyncio.ensure_future(consumer.poll())
    await asyncio.sleep(1)
    with pytest.raises(WrongUse, match="another task"):
        await consumer.poll()
    with pytest.raises(WrongUse, match="t-1 is not assigned"):
        consumer.seek(T1, 0)
    with pytest.raises(WrongUse, match=r"set group\.id"):
        await consumer.commit()
    await consumer.close()
    with pytest.raises(WrongUse, match="closed"):
        await waiting
    async for _ in consumer:
        raise AssertionError("a closed consumer returned records")


@scenario(play, {"request.timeout.ms": 3000}, nodes=3)
async def test_reading_continues_where_a_log_was_truncated(
    cluster: VirtualCluster, consumer: Consumer, /
) -> None:
    admin = cluster.test_client("admin")
    await admin.create_topic(
        "u",
        replication_factor=2,
        configs={"unclean.leader.election.enable": "true", "min.insync.replicas": "1"},
    )
    partition = TopicPartition("u", 0)
    leader = cluster.leader_of("u", 0)
    await admin.produce("u", 0, numbers(10))
    consumer.assign([partition])
    assert await read(consumer, 10) == numbers(10)
    follower = next(
        node
        for info in (await consumer.partitions_for("u")).partitions
        for node in info.replicas
        if node != leader
    )
    # Wait until the follower's high watermark covers the ten records.
    await asyncio.sleep(5)
    cluster.kill(follower)
    await admin.produce("u", 0, numbers(5, first=10), acks=1)
    await asyncio.sleep(15)
    assert await read(consumer, 5) == numbers(5, first=10)
    assert await consumer.position(partition) == 15
    cluster.kill(leader)
    await cluster.start(follower)
    await admin.produce("u", 0, [b"diverging"])
    assert await read(consumer, 1) == [b"diverging"]
    assert await consumer.position(partition) == 11


@scenario(play)
async def test_compacted_offsets_are_skipped(
    cluster: VirtualCluster, consumer: Consumer, /
) -> None:
    await cluster.test_client("admin").create_topic(
        "c",
        configs={
            "cleanup.policy": "compact",
            "min.cleanable.dirty.ratio": "0.01",
            "segment.ms": "5000",
        },
    )
    servers = ",".join(map(str, cluster.bootstrap()))
    async with Producer(
        {"bootstrap.servers": servers, "batch.size": 300}, runtime=cluster.client_runtime()
    ) as producer:
        for i in range(60):
            await producer.send("c", b"%d" % i, key=b"%d" % (i % 7))
        # Rolls a new segment, so that the cleaner can clean the previous one.
        await asyncio.sleep(10)
        await producer.send("c", b"last", key=b"last")
    partition = TopicPartition("c", 0)
    consumer.assign([partition])
    kept: list[int] = []
    while kept != [*range(53, 60), 60]:
        await asyncio.sleep(10)
        consumer.seek_to_beginning()
        kept = []
        while await consumer.position(partition) < 61:
            for record in (await consumer.poll(max_records=3))[partition]:
                kept.append(record.offset)
    consumer.seek(partition, 5)
    rows: list[int] = []
    while len(rows) < 8:
        rows += (await consumer.fetch_arrow()).column("offset").to_pylist()
    assert rows == kept


def test_the_replica_in_the_same_rack_is_preferred_while_it_is_online() -> None:
    async def main(cluster: VirtualCluster) -> None:
        await cluster.test_client("admin").create_topic("t", partitions=1, replication_factor=3)
        leader = cluster.leader_of("t", 0)
        near = 1 + leader % 3
        settings = {"client.rack": f"rack{near}", "request.timeout.ms": 3_000}
        async with make_consumer(cluster, settings) as consumer:
            consumer.assign([T0])
            await write(cluster, numbers(10))
            assert await read(consumer, 10) == numbers(10)
            assert consumer.preferred_replica(T0) == near
            await write(cluster, numbers(10, first=10))
            assert await read(consumer, 10) == numbers(10, first=10)
            cluster.kill(near)
            await write(cluster, numbers(10, first=20))
            assert await read(consumer, 10) == numbers(10, first=20)
            assert consumer.preferred_replica(T0) != near

    selector = "org.apache.kafka.common.replica.RackAwareReplicaSelector"
    cluster = VirtualCluster(nodes=3, seed=5, properties={"replica.selector.class": selector})
    for node_id, host in cluster.hosts.items():
        host.config = broker_config({**host.config.raw, "broker.rack": f"rack{node_id}"})
    cluster.play(main)


class Recording:
    def __init__(self) -> None:
        self.committed: list[int] = []

    def on_consume(self, records: Polled) -> Polled:
        return {
            partition: [record._replace(value=record.value + b"!") for record in batch]
            for partition, batch in records.items()
        }

    def on_commit(self, offsets: Any) -> None:
        self.committed += [committed.offset for committed in offsets.values()]


class Failing:
    def on_consume(self, records: Polled) -> Polled:
        raise RuntimeError("on purpose")

    def on_commit(self, offsets: Any) -> None:
        raise RuntimeError("on purpose")


class ReturningNone(Failing):
    """Returns no records from on_consume."""

    def on_consume(self, records: Polled) -> Any:
        return None


def test_interceptors_get_records_and_commits_and_failing_ones_are_ignored() -> None:
    recording = Recording()

    async def scenario(cluster: VirtualCluster, consumer: Consumer) -> None:
        await write(cluster, numbers(3))
        consumer.assign([T0])
        assert await read(consumer, 2) == [b"0!", b"1!"]
        assert [record.value for record in (await consumer.poll())[T0]] == [b"2!"]
        await consumer.commit()
        assert recording.committed == [3]

    play(
        scenario, {"group.id": "g", "interceptor.classes": [Failing(), ReturningNone(), recording]}
    )
