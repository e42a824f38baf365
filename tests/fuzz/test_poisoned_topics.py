"""Topics that accepted garbage without validation, and whose settings then require validation."""

import asyncio
import random

import pytest

from lograft.model.errors import ErrorCode
from lograft.simulation.machine import WALL_START_MS
from lograft.wire.compression import Codec
from lograft.wire.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from lograft.wire.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from lograft.wire.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from lograft.wire.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from tests.fuzz.hostile_batches import HostileBatches, bomb, framed
from tests.fuzz.simulated_node import Complaints, SimulatedNode

pytestmark = pytest.mark.fuzz

TOPIC = "poisoned"
TOPIC_RESOURCE = 2


async def create(node: SimulatedNode) -> None:
    configs = {"segment.bytes": "1048576", "min.cleanable.dirty.ratio": "0"}
    topic = CreatableTopic(
        name=TOPIC,
        num_partitions=1,
        replication_factor=1,
        configs=[CreatableTopicConfig(name=name, value=value) for name, value in configs.items()],
    )
    response = await node.ask(CreateTopicsRequest(topics=[topic]), 7, CreateTopicsResponse)
    assert response.topics[0].error_code == ErrorCode.NONE


async def produce(node: SimulatedNode, batch: bytes) -> int:
    data = PartitionProduceData(index=0, records=batch)
    topics = [TopicProduceData(name=TOPIC, partition_data=[data])]
    request = ProduceRequest(acks=-1, timeout_ms=1000, topic_data=topics)
    response = await node.ask(request, 9, ProduceResponse)
    return response.responses[0].partition_responses[0].error_code


async def alter(node: SimulatedNode, name: str, value: str) -> None:
    config = AlterableConfig(name=name, config_operation=0, value=value)
    resource = AlterConfigsResource(
        resource_type=TOPIC_RESOURCE, resource_name=TOPIC, configs=[config]
    )
    request = IncrementalAlterConfigsRequest(resources=[resource])
    response = await node.ask(request, 1, IncrementalAlterConfigsResponse)
    assert response.responses[0].error_code == ErrorCode.NONE, response


async def find_offset(node: SimulatedNode, timestamp: int) -> int:
    partition = ListOffsetsPartition(partition_index=0, timestamp=timestamp)
    topics = [ListOffsetsTopic(name=TOPIC, partitions=[partition])]
    response = await node.ask(
        ListOffsetsRequest(replica_id=-1, topics=topics), 7, ListOffsetsResponse
    )
    return response.topics[0].partitions[0].error_code


@pytest.mark.parametrize("ends_by_kill", [False, True])
def test_node_survives_garbage_when_the_topic_becomes_compacted(ends_by_kill: bool) -> None:
    node = SimulatedNode(1)
    batches = HostileBatches(random.Random("poison"), wall_ms=node.machine.clock.wall_ms)

    async def poison() -> None:
        await create(node)
        taken = 0
        for _ in range(300):
            taken += await produce(node, batches.any()) == ErrorCode.NONE
        for codec in (Codec.GZIP, Codec.LZ4, Codec.ZSTD):
            batch = bomb(codec, unpacked_bytes=1 << 20, timestamp=WALL_START_MS)
            taken += await produce(node, batch) == ErrorCode.NONE
        assert taken > 100
        # Enough for the segment with garbage to be rolled: only rolled segments are compacted.
        for _ in range(30):
            padding = framed(bytes(100_000), timestamp=WALL_START_MS)
            assert await produce(node, padding) == ErrorCode.NONE
        for timestamp in (0, WALL_START_MS, WALL_START_MS + 5, 2**62, -3):
            assert await find_offset(node, timestamp) == ErrorCode.NONE
        await alter(node, "cleanup.policy", "compact")
        await asyncio.sleep(120)
        assert await produce(node, batches.honest_with_keys()) == ErrorCode.NONE

    with Complaints() as complaints:
        node.start()
        node.run(poison())
        if ends_by_kill:
            node.kill()
        else:
            node.stop()
        node.start()
        assert node.run(produce(node, batches.honest_with_keys())) == ErrorCode.NONE
        node.stop()
    # A log that cannot be compacted may be logged, but without a traceback.
    assert not [line for line in complaints.lines if "Traceback" in line], complaints.lines[0]
    node.loop.close()
