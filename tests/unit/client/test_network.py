"""Connections and metadata of a client, in simulated clusters."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from lograft.client.client_settings import ClientSettings
from lograft.client.core import ClientCore
from lograft.client.errors import ConnectionFailed, InvalidTopic, OutcomeUnknown, TimedOut
from lograft.model.seams import Address
from lograft.testing import VirtualCluster
from lograft.wire.messages.describe_cluster import DescribeClusterRequest, DescribeClusterResponse
from tests.support.scenarios import scenario

Scenario = Callable[[VirtualCluster, ClientCore[ClientSettings]], Awaitable[None]]


def play(scenario: Scenario, *, nodes: int = 1, **settings: object) -> None:
    async def main(cluster: VirtualCluster) -> None:
        servers = ",".join(map(str, cluster.bootstrap()))
        core = ClientCore(
            ClientSettings.read({"bootstrap.servers": servers, **settings}),
            creates_topics=True,
            runtime=cluster.client_runtime(),
        )
        try:
            await scenario(cluster, core)
        finally:
            await core.close()

    VirtualCluster(nodes=nodes, seed=5).play(main)


@scenario(play)
async def test_a_topic_is_waited_for_and_a_bad_name_fails_at_once(
    cluster: VirtualCluster, core: ClientCore[ClientSettings], /
) -> None:
    topic = await core.metadata.topic("t", deadline_ms=core.now_ms() + 10_000)
    assert len(topic.partitions) == 1
    before_ms = core.now_ms()
    with pytest.raises(InvalidTopic):
        await core.metadata.topic("bad name", deadline_ms=core.now_ms() + 60_000)
    assert core.now_ms() - before_ms < 5_000


@scenario(play)
async def test_a_partition_beyond_the_count_is_waited_for_to_the_deadline(
    cluster: VirtualCluster, core: ClientCore[ClientSettings], /
) -> None:
    deadline_ms = core.now_ms() + 3_000
    with pytest.raises(TimedOut, match="has 1 partitions, so there is no partition 7"):
        await core.metadata.partition("t", 7, deadline_ms=deadline_ms)
    assert core.now_ms() >= deadline_ms


@scenario(play)
async def test_a_cluster_that_is_not_there_yet_is_asked_again(
    cluster: VirtualCluster, core: ClientCore[ClientSettings], /
) -> None:
    cluster.kill(1)
    waiting = asyncio.ensure_future(core.metadata.topic("t", deadline_ms=core.now_ms() + 60_000))
    await asyncio.sleep(5)
    assert not waiting.done()
    await cluster.start(1)
    assert (await waiting).name == "t"


@scenario(play)
async def test_a_dead_cluster_is_named_when_the_time_is_up(
    cluster: VirtualCluster, core: ClientCore[ClientSettings], /
) -> None:
    cluster.kill(1)
    with pytest.raises(TimedOut, match=r"n1:\d+: connect failed"):
        await core.metadata.topic("t", deadline_ms=core.now_ms() + 5_000)


@scenario(play, **{"reconnect.backoff.ms": 100, "reconnect.backoff.max.ms": 1000})
async def test_failures_are_followed_by_longer_waits(
    cluster: VirtualCluster, core: ClientCore[ClientSettings], /
) -> None:
    cluster.kill(1)
    address = cluster.bootstrap()[0]
    attempts = 0
    end_ms = core.now_ms() + 10_000
    while core.now_ms() < end_ms:
        attempts += 1
        with pytest.raises(ConnectionFailed):
            await core.network.link(address, "other")
    # 100, 200, 400, 800 and then every second, give or take a fifth.
    assert 10 <= attempts <= 17


@scenario(play, **{"connections.max.idle.ms": 5000})
async def test_an_idle_connection_is_closed_and_made_anew(
    cluster: VirtualCluster, core: ClientCore[ClientSettings], /
) -> None:
    await core.metadata.topic("t", deadline_ms=core.now_ms() + 10_000)
    link = await core.network.link(1)
    closed = []
    for _ in range(2):
        await asyncio.sleep(3)
        closed.append(link.is_closed)
    assert closed == [False, True]
    assert (await core.network.link(1)) is not link


@scenario(play, **{"request.timeout.ms": 2000})
async def test_a_silent_broker_costs_its_connection_when_the_time_is_up(
    cluster: VirtualCluster, core: ClientCore[ClientSettings], /
) -> None:
    await core.metadata.topic("t", deadline_ms=core.now_ms() + 10_000)
    link = await core.network.link(1)
    cluster.pause(1)
    before_ms = core.now_ms()
    with pytest.raises(OutcomeUnknown, match="no answer within 2000 ms"):
        await core.network.ask(DescribeClusterRequest(), DescribeClusterResponse, node=1)
    assert core.now_ms() - before_ms == 2_000
    assert link.is_closed
    cluster.resume(1)


@scenario(play)
async def test_a_broker_that_moves_is_reached_at_its_new_address(
    cluster: VirtualCluster, core: ClientCore[ClientSettings], /
) -> None:
    await core.metadata.topic("t", deadline_ms=core.now_ms() + 10_000)
    link = await core.network.link(1)
    moved = core.network.brokers[1]._replace(address=Address("elsewhere", 1))
    core.network.learn([moved])
    assert link.is_closed
    with pytest.raises(ConnectionFailed, match="elsewhere:1"):
        await core.network.link(1)


@scenario(play, nodes=3)
async def test_any_link_goes_on_when_one_broker_is_dead(
    cluster: VirtualCluster, core: ClientCore[ClientSettings], /
) -> None:
    await core.metadata.topic("t", deadline_ms=core.now_ms() + 10_000)
    cluster.kill(2)
    for _ in range(10):
        answer = await core.network.ask(DescribeClusterRequest(), DescribeClusterResponse)
        assert answer.error_code == 0


@scenario(play, nodes=3)
async def test_the_broker_that_has_the_least_to_do_is_asked(
    cluster: VirtualCluster, core: ClientCore[ClientSettings], /
) -> None:
    await core.metadata.topic("t", deadline_ms=core.now_ms() + 10_000)
    links = {node: await core.network.link(node) for node in (1, 2, 3)}
    # Two of them are busy with questions that they will not answer for a while.
    for node in (1, 2):
        cluster.pause(node)
        links[node].start(DescribeClusterRequest(), DescribeClusterResponse, timeout_ms=60_000)
    for _ in range(5):
        assert await core.network.any_link() is links[3]
    for node in (1, 2):
        cluster.resume(node)
