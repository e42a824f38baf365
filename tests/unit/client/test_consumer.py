"""The consumer on simulated clusters: every record once and in order, whatever happens to leaders;
positions that are where they should be."""

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
        async with consumer_of(cluster, settings) as one:
            await scenario(cluster, one)

    alone = {"offsets.topic.replication.factor": str(nodes), "offsets.topic.num.partitions": "2"}
    VirtualCluster(nodes=nodes, seed=seed, properties=alone).play(main)


def consumer_of(cluster: VirtualCluster, settings: dict[str, Any] | None = None) -> Consumer:
    servers = ",".join(map(str, cluster.bootstrap()))
    given = {"bootstrap.servers": servers, "auto.offset.reset": "earliest", **(settings or {})}
    return Consumer(given, runtime=cluster.client_runtime())


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
async def test_records_come_in_order_with_all_that_is_known_of_them(
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
async def test_positions_move_with_what_the_program_gets_not_with_what_is_fetched(
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
async def test_seeking_drops_what_was_fetched_even_in_the_middle_of_a_loop(
    cluster: VirtualCluster, consumer: Consumer, /
) -> None:
    await write(cluster, numbers(50))
    consumer.assign([T0])
    seen: list[int] = []
    async for record in consumer:
        seen.append(record.offset)
        if record.offset == 5 and len(seen) < 10:
            consumer.seek(T0, 40)
        if record.offset == 42:
            break
    assert seen == [0, 1, 2, 3, 4, 5, 40, 41, 42]
    consumer.seek_to_beginning()
    assert await read(consumer, 2) == numbers(2)
    consumer.seek_to_end(T0)
    assert await consumer.position(T0) == 50
    assert await consumer.poll(timeout_ms=1_000) == {}


@scenario(play)
async def test_paused_partitions_give_nothing_and_lose_nothing(
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
async def test_partitions_get_their_turns(cluster: VirtualCluster, consumer: Consumer, /) -> None:
    await write(cluster, numbers(400))
    await write(cluster, numbers(400), partition=1)
    consumer.assign([T0, T1])
    counts = {T0: 0, T1: 0}
    while sum(counts.values()) < 800:
        for one, records in (await consumer.poll(max_records=20)).items():
            counts[one] += len(records)
        # Neither waits until the other has been read to its end.
        assert abs(counts[T0] - counts[T1]) <= 400
    assert counts == {T0: 400, T1: 400}


@scenario(play)
async def test_offsets_by_time_and_the_ends(cluster: VirtualCluster, consumer: Consumer, /) -> None:
    servers = ",".join(map(str, cluster.bootstrap()))
    async with Producer(bootstrap_servers=servers, runtime=cluster.client_runtime()) as producer:
        for i in range(10):
            await producer.send("t", b"v", partition=0, timestamp_ms=1_000 + 100 * i)
    assert await consumer.beginning_offsets([T0, T1]) == {T0: 0, T1: 0}
    assert await consumer.end_offsets([T0, T1]) == {T0: 10, T1: 0}
    found = await consumer.offsets_for_times({T0: 1_250, T1: 5})
    assert found[T1] is None
    place = found[T0]
    assert place is not None
    assert (place.offset, place.timestamp_ms) == (3, 1_300)
    assert (await consumer.offsets_for_times({T0: 9_999}))[T0] is None


@scenario(play, {"auto.offset.reset": "none"})
async def test_where_a_consumer_begins(cluster: VirtualCluster, consumer: Consumer, /) -> None:
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
    async with consumer_of(cluster, {"auto.offset.reset": "latest"}) as late:
        late.assign([T0])
        assert await late.position(T0) == 10
        late.seek(T0, 11)
        assert await late.poll(timeout_ms=3_000) == {}
        assert await late.position(T0) == 10
    async with consumer_of(cluster, {"auto.offset.reset": "by_duration:PT1H"}) as hour:
        hour.assign([T0, T1])
        assert await hour.position(T0) == 0
        assert await hour.position(T1) == 0


@scenario(play, {"auto.offset.reset": "by_duration:PT1M"})
async def test_a_duration_reaches_back_so_far(
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
    # Nothing is so young: what comes from now on is.
    assert await consumer.position(T0) == 15


@scenario(play, {"request.timeout.ms": 3000}, nodes=3)
async def test_leaders_die_and_every_record_comes_once(
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
async def test_what_cannot_be_deserialized_is_named_and_can_be_skipped(
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
async def test_committed_offsets_are_where_the_next_consumer_begins(
    cluster: VirtualCluster, consumer: Consumer, /
) -> None:
    await write(cluster, numbers(20))
    consumer.assign([T0])
    await read(consumer, 7)
    assert await consumer.committed([T0]) == {T0: None}
    await consumer.commit()
    place = (await consumer.committed([T0]))[T0]
    assert place is not None
    assert place.offset == 7
    await consumer.commit({T0: OffsetAndMetadata(5, "a note")})
    async with consumer_of(cluster, {"group.id": "g"}) as second:
        place = (await second.committed([T0]))[T0]
        assert place is not None
        assert place[:2] == (5, "a note")
        second.assign([T0])
        assert await read(second, 1) == [b"5"]
    # It has committed what it got when it was closed.
    found = (await consumer.committed([T0]))[T0]
    assert found is not None
    assert found.offset == 6
    await asyncio.wait_for(consumer.commit_nowait({T0: 9}), 10)
    found = (await consumer.committed([T0]))[T0]
    assert found is not None
    assert found.offset == 9


@scenario(play, {"group.id": "g"})
async def test_positions_are_committed_from_time_to_time(
    cluster: VirtualCluster, consumer: Consumer, /
) -> None:
    await write(cluster, numbers(20))
    consumer.assign([T0])
    await read(consumer, 20)
    assert await consumer.committed([T0]) == {T0: None}
    assert await consumer.poll(timeout_ms=6_000) == {}
    await asyncio.sleep(1)
    found = (await consumer.committed([T0]))[T0]
    assert found is not None
    assert found.offset == 20


@scenario(play)
async def test_columns_hold_what_records_hold(
    cluster: VirtualCluster, consumer: Consumer, /
) -> None:
    await write(cluster, numbers(300))
    await write(cluster, numbers(40), partition=1)
    consumer.assign([T0, T1])
    # A slice that has been begun with records goes on with columns.
    first = (await consumer.poll(max_records=3)).popitem()[1]
    rows = [(one.partition, one.offset, one.value) for one in first]
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
async def test_one_task_at_a_time_and_not_before_or_after_its_life(
    cluster: VirtualCluster, consumer: Consumer, /
) -> None:
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
        raise AssertionError("a closed consumer has records")


@scenario(play, {"request.timeout.ms": 3000}, nodes=3)
async def test_a_log_that_was_cut_is_read_on_from_where_it_was_cut(
    cluster: VirtualCluster, consumer: Consumer, /
) -> None:
    admin = cluster.test_client("admin")
    await admin.create_topic(
        "u",
        replication_factor=2,
        configs={"unclean.leader.election.enable": "true", "min.insync.replicas": "1"},
    )
    place = TopicPartition("u", 0)
    leader = cluster.leader_of("u", 0)
    await admin.produce("u", 0, numbers(10))
    consumer.assign([place])
    assert await read(consumer, 10) == numbers(10)
    other = next(
        node
        for part in (await consumer.partitions_for("u")).partitions
        for node in part.replicas
        if node != leader
    )
    # Until the follower knows of the last ten: they are committed there too.
    await asyncio.sleep(5)
    cluster.kill(other)
    await admin.produce("u", 0, numbers(5, first=10), acks=1)
    await asyncio.sleep(15)
    assert await read(consumer, 5) == numbers(5, first=10)
    assert await consumer.position(place) == 15
    cluster.kill(leader)
    await cluster.start(other)
    await admin.produce("u", 0, [b"another ten"])
    assert await read(consumer, 1) == [b"another ten"]
    assert await consumer.position(place) == 11


@scenario(play)
async def test_what_compaction_has_taken_out_is_passed_over(
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
        # Into a new segment, so that the one before can be cleaned.
        await asyncio.sleep(10)
        await producer.send("c", b"last", key=b"last")
    place = TopicPartition("c", 0)
    consumer.assign([place])
    kept: list[int] = []
    while kept != [*range(53, 60), 60]:
        await asyncio.sleep(10)
        consumer.seek_to_beginning()
        kept = []
        while await consumer.position(place) < 61:
            for record in (await consumer.poll(max_records=3))[place]:
                kept.append(record.offset)
    consumer.seek(place, 5)
    rows: list[int] = []
    while len(rows) < 8:
        rows += (await consumer.fetch_arrow()).column("offset").to_pylist()
    assert rows == kept


def test_the_replica_in_ones_own_rack_is_read_while_it_is_there() -> None:
    async def main(cluster: VirtualCluster) -> None:
        await cluster.test_client("admin").create_topic("t", partitions=1, replication_factor=3)
        leader = cluster.leader_of("t", 0)
        near = 1 + leader % 3
        settings = {"client.rack": f"rack{near}", "request.timeout.ms": 3_000}
        async with consumer_of(cluster, settings) as consumer:
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


class Seeing:
    def __init__(self) -> None:
        self.committed: list[int] = []

    def on_consume(self, records: Polled) -> Polled:
        return {
            one: [record._replace(value=record.value + b"!") for record in some]
            for one, some in records.items()
        }

    def on_commit(self, offsets: Any) -> None:
        self.committed += [place.offset for place in offsets.values()]


class Broken:
    def on_consume(self, records: Polled) -> Polled:
        raise RuntimeError("on purpose")

    def on_commit(self, offsets: Any) -> None:
        raise RuntimeError("on purpose")


class Forgetful(Broken):
    """Forgets to return what it was given."""

    def on_consume(self, records: Polled) -> Any:
        return None


def test_interceptors_see_everything_and_break_nothing() -> None:
    seeing = Seeing()

    async def scenario(cluster: VirtualCluster, consumer: Consumer) -> None:
        await write(cluster, numbers(3))
        consumer.assign([T0])
        assert await read(consumer, 2) == [b"0!", b"1!"]
        assert [record.value for record in (await consumer.poll())[T0]] == [b"2!"]
        await consumer.commit()
        assert seeing.committed == [3]

    play(scenario, {"group.id": "g", "interceptor.classes": [Broken(), Forgetful(), seeing]})
