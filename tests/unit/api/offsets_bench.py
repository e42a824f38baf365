"""Committed offsets in a broker on a bench, which clients commit and fetch."""

import asyncio
from functools import partial
from uuid import UUID

from lograft.broker.coordinators.coordinator_runtime import SHARDS
from lograft.model.metrics import value_of
from lograft.wire.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from lograft.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from lograft.wire.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchResponse,
    OffsetFetchResponseTopics,
)
from tests.unit.broker.bench import Bench, Scenario, run

IDS_SINCE = 10
run_coordinator = partial(
    run, offsets_topic_num_partitions="2", offsets_topic_replication_factor="1"
)


async def commit(
    bench: Bench, version: int, topic: str, positions: dict[int, int], **fields: object
) -> dict[int, int]:
    """Returns the error code of each partition."""
    partitions_requested = OffsetCommitRequestTopic(
        partitions=[
            OffsetCommitRequestPartition(
                partition_index=partition,
                committed_offset=offset,
                committed_metadata=f"at {offset}",
                committed_leader_epoch=3 if version >= 6 else -1,
            )
            for partition, offset in positions.items()
        ]
    )
    if version >= IDS_SINCE:
        partitions_requested.topic_id = bench.broker.image.topic_ids.get(topic, UUID(int=99))
    else:
        partitions_requested.name = topic
    request = OffsetCommitRequest(group_id="g", topics=[partitions_requested], **fields)  # type: ignore[arg-type]
    response = await bench.ask(request, version, OffsetCommitResponse)
    (result,) = response.topics
    assert result.topic_id == partitions_requested.topic_id
    return {partition.partition_index: partition.error_code for partition in result.partitions}


async def fetch_all(
    bench: Bench, version: int
) -> dict[str, dict[int, tuple[int, int, str | None]]]:
    if version < 8:
        old = OffsetFetchRequest(group_id="g", topics=None)
        response = await bench.ask(old, version, OffsetFetchResponse)
        assert response.error_code == 0
        return {
            topic.name: {
                partition.partition_index: (
                    partition.committed_offset,
                    partition.committed_leader_epoch,
                    partition.metadata,
                )
                for partition in topic.partitions
            }
            for topic in response.topics
        }
    request = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id="g", topics=None)])
    response = await bench.ask(request, version, OffsetFetchResponse)
    (group,) = response.groups
    assert (group.group_id, group.error_code) == ("g", 0)
    return {name_of(bench, topic): positions_of(topic) for topic in group.topics}


def name_of(bench: Bench, topic: OffsetFetchResponseTopics) -> str:
    return topic.name or bench.broker.image.topics[topic.topic_id].name


def positions_of(topic: OffsetFetchResponseTopics) -> dict[int, tuple[int, int, str | None]]:
    return {
        partition.partition_index: (
            partition.committed_offset,
            partition.committed_leader_epoch,
            partition.metadata,
        )
        for partition in topic.partitions
    }


async def find_coordinator(bench: Bench) -> None:
    """Requests the coordinator as clients do, which creates the internal topic."""
    request = FindCoordinatorRequest(coordinator_keys=["g"])
    response = await bench.ask(request, 4, FindCoordinatorResponse)
    assert response.coordinators[0].error_code == 0
    while value_of(bench.broker.groups, SHARDS, bench.broker.groups.topic, "loaded") < 2:
        await asyncio.sleep(0.001)


def play(scenario: Scenario) -> None:
    async def with_coordinator(bench: Bench) -> None:
        await bench.create_topic("t", partitions=3)
        await find_coordinator(bench)
        await scenario(bench)

    run_coordinator(with_coordinator)
