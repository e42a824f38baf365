"""What a producer knows of topics, as scenarios: topics that come, grow, move, go and return."""

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
async def test_a_topic_grows_to_the_partition_that_is_named(
    cluster: VirtualCluster, producer: Producer, /, nodes: int
) -> None:
    assert await producer.prepare("auto") == 2
    deliveries = [
        await producer.enqueue("auto", b"%d" % i, partition=7, timestamp_ms=1) for i in range(5)
    ]
    assert [(await one).offset for one in deliveries] == list(range(5))
    while await producer.prepare("auto") < 8:
        await asyncio.sleep(0.1)
    assert (await producer.send("auto", b"v", partition=3)).offset == 0
    with pytest.raises(BrokerError, match="exceeds the limit of 9"):
        await producer.send("auto", b"v", partition=9)
    assert (await producer.send("auto", b"v", partition=7)).offset == 5


@scenario(play, {"max.block.ms": 5000})
async def test_where_it_does_not_grow_the_count_is_named_after_max_block_ms(
    cluster: VirtualCluster, producer: Producer, /
) -> None:
    await cluster.test_client("admin").create_topic("t", partitions=2)
    began = cluster.loop.time()
    with pytest.raises(TimedOut, match=r"topic 't' has 2 partitions, so there is no partition 7"):
        await producer.send("t", b"v", partition=7)
    assert 4.9 < cluster.loop.time() - began < 6.5
    assert (await producer.send("t", b"v", partition=1)).offset == 0
    with pytest.raises(WrongUse, match="numbered from 0"):
        await producer.send("t", b"v", partition=-1)
    with pytest.raises(WrongUse, match="2 partitions"):
        producer.send_nowait("t", b"v", partition=7)


@scenario(play)
async def test_a_partition_that_comes_in_time_is_used(
    cluster: VirtualCluster, producer: Producer, /
) -> None:
    admin = cluster.test_client("admin")
    await admin.create_topic("t", partitions=1)
    waiting = asyncio.ensure_future(producer.send("t", b"v", partition=2))
    await asyncio.sleep(3)
    assert not waiting.done()
    await grow(cluster, "t", 3)
    assert (await waiting).partition == 2


@scenario(play, {"request.timeout.ms": 3000}, nodes=3)
async def test_a_topic_that_was_made_anew_is_written_to_from_its_start(
    cluster: VirtualCluster, producer: Producer, /
) -> None:
    """Another id: leader epochs begin again, and the old ones do not hide the new leaders."""
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


async def ask(cluster: VirtualCluster, request: Message, answer: type[R]) -> R:
    servers = ",".join(map(str, cluster.bootstrap()))
    core = ClientCore(
        ClientSettings.read({"bootstrap.servers": servers}), runtime=cluster.client_runtime("other")
    )
    try:
        return await core.network.request(request, answer)
    finally:
        await core.close()


async def grow(cluster: VirtualCluster, topic: str, count: int) -> None:
    wanted = CreatePartitionsTopic(name=topic, count=count, assignments=None)
    request = CreatePartitionsRequest(topics=[wanted], timeout_ms=10_000)
    answer = await ask(cluster, request, CreatePartitionsResponse)
    assert answer.results[0].error_code == 0


async def delete(cluster: VirtualCluster, topic: str) -> None:
    request = DeleteTopicsRequest(topics=[DeleteTopicState(name=topic)], timeout_ms=10_000)
    answer = await ask(cluster, request, DeleteTopicsResponse)
    assert answer.responses[0].error_code == 0


@scenario(play)
async def test_an_invalid_topic_fails_at_once(
    cluster: VirtualCluster, producer: Producer, /
) -> None:
    began = cluster.loop.time()
    with pytest.raises(InvalidTopic):
        await producer.send("no such/topic", b"v")
    assert cluster.loop.time() - began < 1


@scenario(play, {"max.block.ms": 10000}, properties={"auto.create.topics.enable": "false"})
async def test_a_topic_that_is_not_there_is_waited_for(
    cluster: VirtualCluster, producer: Producer, /
) -> None:
    waiting = asyncio.ensure_future(producer.send("late", b"v"))
    await asyncio.sleep(3)
    assert not waiting.done()
    await cluster.test_client("admin").create_topic("late")
    assert (await waiting).offset == 0
    began = cluster.loop.time()
    with pytest.raises(TimedOut, match="topic 'never' is not in the cluster"):
        await producer.send("never", b"v")
    assert 9.9 < cluster.loop.time() - began < 11


@scenario(
    play,
    {"max.block.ms": 5000, "buffer.memory": 1000, "request.timeout.ms": 300},
    nodes=3,
    properties={"auto.create.topics.enable": "false"},
)
async def test_one_budget_covers_metadata_and_room(
    cluster: VirtualCluster, producer: Producer, /
) -> None:
    admin = cluster.test_client("admin")
    await admin.create_topic("t")
    await producer.prepare("t")
    silent = cluster.leader_of("t", 0)
    cluster.pause(silent)
    for _ in range(6):
        producer.send_nowait("t", b"v" * 100)
    began = cluster.loop.time()
    waiting = asyncio.ensure_future(producer.send("late", b"v" * 500))
    await asyncio.sleep(2)
    await admin.create_topic("late")
    with pytest.raises(TimedOut, match=r"no space in the buffer \(buffer.memory="):
        await waiting
    assert 4.9 < cluster.loop.time() - began < 5.6
    cluster.resume(silent)
