"""Sending tables through the producer's buffer: partitions of rows, deliveries and rejected
tables."""

from collections.abc import Awaitable, Callable
from typing import Any

import pyarrow as pa
import pytest

from lograft.client.errors import RecordTooLarge, RecordTooLargeToSend, WrongUse
from lograft.client.producer import Producer
from lograft.client.producing.partitioner import murmur2
from lograft.client.types import OffsetRange
from lograft.testing import VirtualCluster
from tests.support.scenarios import scenario

Scenario = Callable[[VirtualCluster, Producer], Awaitable[None]]


def play(
    scenario: Scenario,
    settings: dict[str, Any] | None = None,
    *,
    nodes: int = 1,
    configs: dict[str, str] | None = None,
) -> None:
    async def main(cluster: VirtualCluster) -> None:
        admin = cluster.test_client("admin")
        await admin.create_topic("t", partitions=3, replication_factor=nodes, configs=configs)
        servers = ",".join(map(str, cluster.bootstrap()))
        async with Producer(
            {"bootstrap.servers": servers, **(settings or {})}, runtime=cluster.client_runtime()
        ) as producer:
            await scenario(cluster, producer)

    VirtualCluster(nodes=nodes, seed=5).play(main)


async def read_values(cluster: VirtualCluster, partition: int) -> list[bytes]:
    return await cluster.test_client("reader").read("t", partition)


@scenario(play, {"batch.size": 500})
async def test_partition_column_determines_partition_and_order_is_kept(
    cluster: VirtualCluster, producer: Producer, /
) -> None:
    values = [b"%d" % i for i in range(2_000)]
    table = pa.table({"value": values, "partition": [i % 3 for i in range(2_000)]})
    offset_ranges = await producer.send_arrow("t", table)
    assert offset_ranges == [
        OffsetRange("t", 0, 0, 667),
        OffsetRange("t", 1, 0, 667),
        OffsetRange("t", 2, 0, 666),
    ]
    for partition in range(3):
        assert await read_values(cluster, partition) == values[partition::3]


@scenario(play)
async def test_keys_map_to_the_same_partitions_as_single_records(
    cluster: VirtualCluster, producer: Producer, /
) -> None:
    keys = [f"key{i % 50}" for i in range(500)]
    values = [b"%d" % i for i in range(500)]
    await producer.send_arrow("t", pa.table({"key": keys, "value": values}))
    for partition in range(3):
        expected = [
            value
            for key, value in zip(keys, values, strict=True)
            if murmur2(key.encode()) % 3 == partition
        ]
        assert await read_values(cluster, partition) == expected


@scenario(play)
async def test_rows_without_key_are_distributed_in_batches(
    cluster: VirtualCluster, producer: Producer, /
) -> None:
    table = pa.table({"key": [None] * 3_000, "value": [b"v" * 20] * 3_000})
    offset_ranges = await producer.send_arrow("t", table, batch_bytes=1_000)
    assert {offsets.partition for offsets in offset_ranges} == {0, 1, 2}
    assert sum(offsets.count for offsets in offset_ranges) == 3_000


@scenario(play, {"partitioner.class": lambda topic, key, count: count - 1})
async def test_partition_argument_overrides_partitioner(
    cluster: VirtualCluster, producer: Producer, /
) -> None:
    table = pa.table({"value": ["a", "b", None], "partition": [0, None, None]})
    offset_ranges = await producer.send_arrow("t", table)
    assert offset_ranges == [OffsetRange("t", 0, 0, 1), OffsetRange("t", 2, 0, 2)]
    offset_ranges = await producer.send_arrow("t", table, partition=1)
    assert offset_ranges == [OffsetRange("t", 1, 0, 3)]


@scenario(play)
async def test_negative_partition_is_rejected(
    cluster: VirtualCluster, producer: Producer, /
) -> None:
    with pytest.raises(WrongUse, match="there is no partition -1"):
        await producer.enqueue_arrow("t", pa.table({"value": ["a"]}), partition=-1)


@scenario(play, {"buffer.memory": 100000, "request.timeout.ms": 3000}, nodes=3)
async def test_table_larger_than_buffer_is_sent_despite_leader_failure(
    cluster: VirtualCluster, producer: Producer, /
) -> None:
    values = [b"%06d" % i * 10 for i in range(4_000)]
    table = pa.table({"value": values})
    delivery = await producer.enqueue_arrow("t", table, partition=0)
    victim = cluster.leader_of("t", 0)
    cluster.kill(victim)
    cluster.loop.call_later_ns(2_000_000_000, cluster.boot, victim)
    more = await producer.enqueue_arrow("t", table, partition=0)
    assert await delivery == [OffsetRange("t", 0, 0, 4_000)]
    assert await more == [OffsetRange("t", 0, 4_000, 4_000)]
    assert await read_values(cluster, 0) == values * 2


@scenario(play)
async def test_order_of_single_records_and_tables_is_kept(
    cluster: VirtualCluster, producer: Producer, /
) -> None:
    first = await producer.enqueue("t", b"1", partition=0)
    table = await producer.enqueue_arrow("t", pa.table({"value": ["2", "3"]}), partition=0)
    last = await producer.enqueue("t", b"4", partition=0)
    assert not table.done()
    with pytest.raises(WrongUse, match="still pending"):
        table.result()
    assert (await last).offset == 3
    assert (await first).offset == 0
    assert table.result() == [OffsetRange("t", 0, 1, 2)]
    assert await read_values(cluster, 0) == [b"1", b"2", b"3", b"4"]


@scenario(play, configs={"max.message.bytes": "1000"})
async def test_batch_too_large_for_broker_is_split(
    cluster: VirtualCluster, producer: Producer, /
) -> None:
    values = [b"%03d" % i * 10 for i in range(200)]
    offset_ranges = await producer.send_arrow(
        "t", pa.table({"value": values}), partition=0, batch_bytes=20_000
    )
    assert offset_ranges == [OffsetRange("t", 0, 0, 200)]
    assert await read_values(cluster, 0) == values


@scenario(play, configs={"max.message.bytes": "500"})
async def test_failure_is_raised(cluster: VirtualCluster, producer: Producer, /) -> None:
    table = pa.table({"value": [b"v" * 900, b"x"], "partition": [0, 1]})
    with pytest.raises(RecordTooLarge):
        await producer.send_arrow("t", table)


@scenario(play, {"acks": "0"})
async def test_acks_0_returns_no_offsets(cluster: VirtualCluster, producer: Producer, /) -> None:
    offset_ranges = await producer.send_arrow(
        "t", pa.table({"value": ["a"] * 100}), partition=0, batch_bytes=100
    )
    assert offset_ranges == [OffsetRange("t", 0, -1, 100)]
    assert await producer.send_arrow("t", pa.table({"value": pa.array([], "binary")})) == []


@pytest.mark.parametrize(
    ("table", "message"),
    [
        (pa.table({"key": ["a"]}), "column `value`"),
        (pa.table({"value": ["a"], "topic": ["t"]}), "topic"),
        (pa.table({"value": [1]}), "type int64, which cannot be sent"),
        (pa.table({"value": ["a"], "partition": ["a"]}), "`partition` has the type string"),
        (pa.table({"value": ["a"], "partition": [3]}), "3 partitions"),
        (
            pa.table({"value": ["a"], "partition": [-1]}),
            "contains -1, but partitions are numbered from 0",
        ),
        (pa.table({"value": ["a"], "timestamp": [-1]}), "before 1970"),
        (pa.table({"value": ["a"], "headers": ["a"]}), "`headers` has the type string"),
        (
            pa.table(
                {
                    "value": ["a"],
                    "headers": pa.array(
                        [[{"key": None, "value": b""}]],
                        pa.list_(pa.struct({"key": pa.string(), "value": pa.binary()})),
                    ),
                }
            ),
            "without a key",
        ),
    ],
)
@scenario(play)
async def test_invalid_table_is_rejected(
    cluster: VirtualCluster, producer: Producer, /, table: pa.Table, message: str
) -> None:
    with pytest.raises(WrongUse, match=message):
        await producer.send_arrow("t", table)


@scenario(play, {"max.request.size": 2000})
async def test_too_large_row_is_rejected_before_any_row_is_sent(
    cluster: VirtualCluster, producer: Producer, /
) -> None:
    with pytest.raises(RecordTooLargeToSend, match=r"max\.request\.size"):
        await producer.send_arrow("t", pa.table({"value": [b"a", b"v" * 3_000]}), partition=0)
    assert await read_values(cluster, 0) == []
