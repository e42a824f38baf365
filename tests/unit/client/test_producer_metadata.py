"""A producer and topics that are created, extended, moved, deleted and created again."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

import pytest

from lograft.client.client_settings import ClientSettings
from lograft.client.core import ClientCore
from lograft.client.errors import BrokerError, InvalidTopic, TimedOut, WrongUse
from lograft.client.producer import Producer
from lograft.testing import VirtualCluster
from lograft.wire.message import Message
from lograft.wire.messages.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
)
from lograft.wire.messages.delete_topics import (
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DeleteTopicState,
)
from tests.support.scenarios import scenario

R = TypeVar("R", bound=Message)
Scenario = Callable[[VirtualCluster, Producer], Awaitable[None]]


def play(
    scenario: Scenario,
    settings: dict[str, Any] | None = None,
    *,
    nodes: int = 1,
    properties: dict[str, str] | None = None,
) -> None:
    async def main(cluster: VirtualCluster) -> None:
        servers = ",".join(map(str, cluster.bootstrap()))
        async with Producer(
            {"bootstrap.servers": servers, **(settings or {})}, runtime=cluster.client_runtime()
        ) as producer:
            await scenario(cluster, producer)

    VirtualCluster(nodes=nodes, seed=11, properties=properties).play(main)


GROWING = {
    "auto.create.topics.enable": "true",
    "auto.create.partitions.enable": "true",
    "auto.create.partitions.max": "9",
    "num.partitions": "2",
}


@pytest.mark.parametrize("nodes", [1, 3])
@scenario(play, properties=GROWING)
async def test_broker_creates_partitions_on_demand(
    cluster: VirtualCluster, producer: Producer, /, nodes: int
) -> None:
    assert await producer.prepare("auto") == 2
    deliveries = [
        await producer.enqueue("auto", b"%d" % i, partition=7, timestamp_ms=1) for i in range(5)
    ]
    assert [(await delivery).offset for delivery in deliveries] == list(range(5))
    while await producer.prepare("auto") < 8:
        await asyncio.sleep(0.1)
    assert (await producer.send("auto", b"v", partition=3)).offset == 0
    with pytest.raises(BrokerError, match="exceeds the limit of 9"):
        await producer.send("auto", b"v", partition=9)
    assert (await producer.send("auto", b"v", partition=7)).offset == 5


@scenario(play, {"max.block.ms": 5000})
async def test_missing_partition_times_out_after_max_block_ms(
    cluster: VirtualCluster, producer: Producer, /
) -> None:
    await cluster.test_client("admin").create_topic("t", partitions=2)
    started = cluster.loop.time()
    with pytest.raises(TimedOut, match=r"topic 't' has 2 partitions, so there is no partition 7"):
        await producer.send("t", b"v", partition=7)
    assert 4.9 < cluster.loop.time() - started < 6.5
    assert (await producer.send("t", b"v", partition=1)).offset == 0
    with pytest.raises(WrongUse, match="numbered from 0"):
        await producer.send("t", b"v", partition=-1)
    with pytest.raises(WrongUse, match="2 partitions"):
        producer.send_nowait("t", b"v", partition=7)


@scenario(play)
async def test_partition_created_within_max_block_ms_is_used(
    cluster: VirtualCluster, producer: Producer, /
) -> None:
    admin = cluster.test_client("admin")
    await admin.create_topic("t", partitions=1)
    waiting = asyncio.ensure_future(producer.send("t", b"v", partition=2))
    await asyncio.sleep(3)
    assert not waiting.done()
    await add_partitions(cluster, "t", 3)
    assert (await waiting).partition == 2


@scenario(play, {"request.timeout.ms": 3000}, nodes=3)
async def test_recreated_topic_is_written_from_offset_0(
    cluster: VirtualCluster, producer: Producer, /
) -> None:
    """With a new topic id, leader epochs start again and must not be compared with the old ones."""
    admin = cluster.test_client("admin")
    await admin.create_topic("t", partitions=1, replication_factor=3)
    await producer.send("t", b"old", partition=0)
    for _ in range(3):
        victim = cluster.leader_of("t", 0)
        cluster.kill(victim)
        await producer.send("t", b"moved", partition=0)
        await cluster.start(victim)
    found = cluster.image.topic("t")
    assert found is not None
    assert found.partitions[0].leader_epoch >= 3
    await delete(cluster, "t")
    await admin.create_topic("t", partitions=1, replication_factor=3)
    assert (await producer.send("t", b"new", partition=0)).offset == 0


async def send_request(cluster: VirtualCluster, request: Message, response_type: type[R]) -> R:
    servers = ",".join(map(str, cluster.bootstrap()))
    core = ClientCore(
        ClientSettings.read({"bootstrap.servers": servers}), runtime=cluster.client_runtime("other")
    )
    try:
        return await core.network.request(request, response_type)
    finally:
        await core.close()


async def add_partitions(cluster: VirtualCluster, topic: str, count: int) -> None:
    topic_request = CreatePartitionsTopic(name=topic, count=count, assignments=None)
    request = CreatePartitionsRequest(topics=[topic_request], timeout_ms=10_000)
    response = await send_request(cluster, request, CreatePartitionsResponse)
    assert response.results[0].error_code == 0


async def delete(cluster: VirtualCluster, topic: str) -> None:
    request = DeleteTopicsRequest(topics=[DeleteTopicState(name=topic)], timeout_ms=10_000)
    response = await send_request(cluster, request, DeleteTopicsResponse)
    assert response.responses[0].error_code == 0


@scenario(play)
async def test_invalid_topic_fails_immediately(
    cluster: VirtualCluster, producer: Producer, /
) -> None:
    started = cluster.loop.time()
    with pytest.raises(InvalidTopic):
        await producer.send("no such/topic", b"v")
    assert cluster.loop.time() - started < 1


@scenario(play, {"max.block.ms": 10000}, properties={"auto.create.topics.enable": "false"})
async def test_missing_topic_is_awaited_for_max_block_ms(
    cluster: VirtualCluster, producer: Producer, /
) -> None:
    waiting = asyncio.ensure_future(producer.send("late", b"v"))
    await asyncio.sleep(3)
    assert not waiting.done()
    await cluster.test_client("admin").create_topic("late")
    assert (await waiting).offset == 0
    started = cluster.loop.time()
    with pytest.raises(TimedOut, match="topic 'never' is not in the cluster"):
        await producer.send("never", b"v")
    assert 9.9 < cluster.loop.time() - started < 11


@scenario(
    play,
    {"max.block.ms": 5000, "buffer.memory": 1000, "request.timeout.ms": 300},
    nodes=3,
    properties={"auto.create.topics.enable": "false"},
)
async def test_max_block_ms_covers_metadata_and_buffer_space(
    cluster: VirtualCluster, producer: Producer, /
) -> None:
    admin = cluster.test_client("admin")
    await admin.create_topic("t")
    await producer.prepare("t")
    silent = cluster.leader_of("t", 0)
    cluster.pause(silent)
    for _ in range(6):
        producer.send_nowait("t", b"v" * 100)
    started = cluster.loop.time()
    waiting = asyncio.ensure_future(producer.send("late", b"v" * 500))
    await asyncio.sleep(2)
    await admin.create_topic("late")
    with pytest.raises(TimedOut, match=r"no space in the buffer \(buffer.memory="):
        await waiting
    assert 4.9 < cluster.loop.time() - started < 5.6
    cluster.resume(silent)
