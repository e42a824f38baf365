"""Bounded reads return exactly the range, or raise a specific error."""

from collections.abc import Awaitable, Callable
from typing import Any
from uuid import uuid4

import pytest

from lograft.client.consuming.range_reader import (
    RangeEndUnavailable,
    RangeReader,
    RangeStartDeleted,
    TopicReplaced,
)
from lograft.client.consuming.reset_policy import EARLIEST, LATEST
from lograft.client.errors import InvalidTopic, TimedOut, TopicMissing, WrongUse
from lograft.client.producer import Producer
from lograft.client.types import TopicPartition
from lograft.testing import VirtualCluster
from lograft.wire.messages import delete_records, delete_topics
from tests.support.scenarios import scenario

Scenario = Callable[[VirtualCluster, RangeReader], Awaitable[None]]


def play(scenario: Scenario, settings: dict[str, Any] | None = None, *, nodes: int = 1) -> None:
    async def main(cluster: VirtualCluster) -> None:
        servers = ",".join(map(str, cluster.bootstrap()))
        await cluster.test_client("admin").create_topic("t", replication_factor=nodes)
        async with Producer(
            {"bootstrap.servers": servers, "batch.size": 300}, runtime=cluster.client_runtime()
        ) as producer:
            await producer.send_many("t", [b"%d" % i for i in range(1_000)])
        reader_settings = {"bootstrap.servers": servers, **(settings or {})}
        async with RangeReader(reader_settings, runtime=cluster.client_runtime()) as reader:
            await scenario(cluster, reader)

    VirtualCluster(nodes=nodes, seed=5).play(main)


async def values(reader: RangeReader, start: int, end: int, **options: Any) -> list[bytes]:
    found: list[bytes] = []
    async for batch in reader.read("t", 0, start=start, end=end, **options):
        assert batch.num_rows
        found += batch.column("value").to_pylist()
    return found


@scenario(play, {"max.partition.fetch.bytes": 2000})
async def test_read_returns_exactly_the_range(
    cluster: VirtualCluster, reader: RangeReader, /
) -> None:
    for start, end in [(0, 1_000), (0, 1), (999, 1_000), (37, 911), (500, 500)]:
        expected = [b"%d" % i for i in range(start, end)]
        assert await values(reader, start, end) == expected


@scenario(play)
async def test_an_end_before_the_start_is_rejected(
    cluster: VirtualCluster, reader: RangeReader, /
) -> None:
    with pytest.raises(WrongUse, match="start is 5 and end is 4"):
        await values(reader, 5, 4)


@scenario(play)
async def test_an_end_after_the_log_raises_after_the_existing_records(
    cluster: VirtualCluster, reader: RangeReader, /
) -> None:
    batches = reader.read("t", 0, start=990, end=1_001)
    assert (await anext(batches)).num_rows == 10
    with pytest.raises(RangeEndUnavailable, match="only up to offset 1000") as caught:
        await anext(batches)
    assert caught.value.log_end == 1_000
    with pytest.raises(RangeEndUnavailable):
        await values(reader, 2_000, 2_001)


@scenario(play)
async def test_a_deleted_start_raises_the_log_start(
    cluster: VirtualCluster, reader: RangeReader, /
) -> None:
    route = cluster.client("admin").partition("t", 0)
    await route.request(
        delete_records.DeleteRecordsRequest(
            topics=[
                delete_records.DeleteRecordsTopic(
                    name="t",
                    partitions=[
                        delete_records.DeleteRecordsPartition(partition_index=0, offset=400)
                    ],
                )
            ],
            timeout_ms=10_000,
        ),
        2,
        delete_records.DeleteRecordsResponse,
        timeout_ms=10_000,
    )
    with pytest.raises(RangeStartDeleted, match="the log starts at offset 400") as caught:
        await values(reader, 399, 1_000)
    assert len(await values(reader, caught.value.log_start, 1_000)) == 600


@scenario(play)
async def test_a_recreated_or_deleted_topic_raises(
    cluster: VirtualCluster, reader: RangeReader, /
) -> None:
    with pytest.raises(TopicReplaced, match="the topic has been recreated with id") as caught:
        await values(reader, 0, 10, topic_id=uuid4())
    assert caught.value.topic_id is not None
    assert len(await values(reader, 0, 10, topic_id=caught.value.topic_id)) == 10
    await cluster.client("admin").request(
        delete_topics.DeleteTopicsRequest(
            topics=[delete_topics.DeleteTopicState(name="t")], timeout_ms=10_000
        ),
        6,
        delete_topics.DeleteTopicsResponse,
        timeout_ms=10_000,
    )
    with pytest.raises(TopicReplaced, match="the topic does not exist any more"):
        await values(reader, 0, 10)


@scenario(play, {"max.partition.fetch.bytes": 2000, "request.timeout.ms": 3000}, nodes=3)
async def test_a_read_continues_after_the_leader_dies(
    cluster: VirtualCluster, reader: RangeReader, /
) -> None:
    found: list[bytes] = []
    async for batch in reader.read("t", 0, start=0, end=1_000):
        if not found:
            cluster.kill(cluster.leader_of("t", 0))
        found += batch.column("value").to_pylist()
    assert found == [b"%d" % i for i in range(1_000)]


@scenario(play)
async def test_topics_and_offsets_are_found_for_a_plan(
    cluster: VirtualCluster, reader: RangeReader, /
) -> None:
    await cluster.test_client("admin").create_topic("other", partitions=2)
    found = await reader.find_topics(["t", "other", "nowhere"])
    assert {name: len(topic.partitions) for name, topic in found.items()} == {"other": 2, "t": 1}
    assert (await reader.find_topics()).keys() >= {"t", "other"}
    partition, empty = TopicPartition("t", 0), TopicPartition("other", 1)
    assert await reader.find_offsets({partition: EARLIEST, empty: LATEST}) == {
        partition: 0,
        empty: 0,
    }
    assert await reader.find_offsets({partition: LATEST}) == {partition: 1_000}
    # No record has this timestamp or a later one.
    assert await reader.find_offsets({partition: 1 << 60}) == {partition: -1}
    with pytest.raises(TopicMissing, match="nowhere-0"):
        await reader.find_offsets({TopicPartition("nowhere", 0): LATEST})


@scenario(play)
async def test_a_name_that_no_topic_can_have_is_rejected(
    cluster: VirtualCluster, reader: RangeReader, /
) -> None:
    with pytest.raises(InvalidTopic):
        await reader.find_topics(["not a name"])


@scenario(play, {"default.api.timeout.ms": 2_000, "request.timeout.ms": 1_000})
async def test_finding_topics_times_out_without_brokers(
    cluster: VirtualCluster, reader: RangeReader, /
) -> None:
    cluster.kill(1)
    with pytest.raises(TimedOut, match=r"within default\.api\.timeout\.ms"):
        await reader.find_topics(["t"])
