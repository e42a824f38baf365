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
async def test_wait_topic_returns_new_topic_and_rejects_invalid_name(
    cluster: VirtualCluster, core: ClientCore[ClientSettings], /
) -> None:
    topic = await core.metadata.wait_topic("t", deadline_ms=core.now_ms() + 10_000)
    assert len(topic.partitions) == 1
    before_ms = core.now_ms()
    with pytest.raises(InvalidTopic):
        await core.metadata.wait_topic("bad name", deadline_ms=core.now_ms() + 60_000)
    assert core.now_ms() - before_ms < 5_000


@scenario(play)
async def test_wait_partition_times_out_for_partition_beyond_count(
    cluster: VirtualCluster, core: ClientCore[ClientSettings], /
) -> None:
    deadline_ms = core.now_ms() + 3_000
    with pytest.raises(TimedOut, match="has 1 partitions, so there is no partition 7"):
        await core.metadata.wait_partition("t", 7, deadline_ms=deadline_ms)
    assert core.now_ms() >= deadline_ms


@scenario(play)
async def test_metadata_request_is_retried_until_cluster_starts(
    cluster: VirtualCluster, core: ClientCore[ClientSettings], /
) -> None:
    cluster.kill(1)
    waiting = asyncio.ensure_future(
        core.metadata.wait_topic("t", deadline_ms=core.now_ms() + 60_000)
    )
    await asyncio.sleep(5)
    assert not waiting.done()
    await cluster.start(1)
    assert (await waiting).name == "t"


@scenario(play)
async def test_timeout_names_connection_failure(
    cluster: VirtualCluster, core: ClientCore[ClientSettings], /
) -> None:
    cluster.kill(1)
    with pytest.raises(TimedOut, match=r"n1:\d+: connect failed"):
        await core.metadata.wait_topic("t", deadline_ms=core.now_ms() + 5_000)


@scenario(play, **{"reconnect.backoff.ms": 100, "reconnect.backoff.max.ms": 1000})
async def test_reconnect_backoff_grows(
    cluster: VirtualCluster, core: ClientCore[ClientSettings], /
) -> None:
    cluster.kill(1)
    address = cluster.bootstrap()[0]
    attempts = 0
    end_ms = core.now_ms() + 10_000
    while core.now_ms() < end_ms:
        attempts += 1
        with pytest.raises(ConnectionFailed):
            await core.network.connect(address, "other")
    # 100, 200, 400, 800 and then every second, plus or minus 20 %.
    assert 10 <= attempts <= 17


@scenario(play, **{"connections.max.idle.ms": 5000})
async def test_idle_connection_is_closed_and_reopened(
    cluster: VirtualCluster, core: ClientCore[ClientSettings], /
) -> None:
    await core.metadata.wait_topic("t", deadline_ms=core.now_ms() + 10_000)
    connection = await core.network.connect(1)
    closed = []
    for _ in range(2):
        await asyncio.sleep(3)
        closed.append(connection.is_closed)
    assert closed == [False, True]
    assert (await core.network.connect(1)) is not connection


@scenario(play, **{"request.timeout.ms": 2000})
async def test_request_timeout_closes_connection(
    cluster: VirtualCluster, core: ClientCore[ClientSettings], /
) -> None:
    await core.metadata.wait_topic("t", deadline_ms=core.now_ms() + 10_000)
    connection = await core.network.connect(1)
    cluster.pause(1)
    before_ms = core.now_ms()
    with pytest.raises(OutcomeUnknown, match="no response within 2000 ms"):
        await core.network.request(DescribeClusterRequest(), DescribeClusterResponse, node=1)
    assert core.now_ms() - before_ms == 2_000
    assert connection.is_closed
    cluster.resume(1)


@scenario(play)
async def test_broker_with_new_address_is_reconnected(
    cluster: VirtualCluster, core: ClientCore[ClientSettings], /
) -> None:
    await core.metadata.wait_topic("t", deadline_ms=core.now_ms() + 10_000)
    connection = await core.network.connect(1)
    moved = core.network.brokers[1]._replace(address=Address("elsewhere", 1))
    core.network.update_brokers([moved])
    assert connection.is_closed
    with pytest.raises(ConnectionFailed, match="elsewhere:1"):
        await core.network.connect(1)


@scenario(play, nodes=3)
async def test_request_to_any_broker_skips_dead_broker(
    cluster: VirtualCluster, core: ClientCore[ClientSettings], /
) -> None:
    await core.metadata.wait_topic("t", deadline_ms=core.now_ms() + 10_000)
    cluster.kill(2)
    for _ in range(10):
        response = await core.network.request(DescribeClusterRequest(), DescribeClusterResponse)
        assert response.error_code == 0


@scenario(play, nodes=3)
async def test_connect_any_chooses_least_loaded_broker(
    cluster: VirtualCluster, core: ClientCore[ClientSettings], /
) -> None:
    await core.metadata.wait_topic("t", deadline_ms=core.now_ms() + 10_000)
    connections = {node: await core.network.connect(node) for node in (1, 2, 3)}
    # Two of them have requests in flight that they do not respond to for a while.
    for node in (1, 2):
        cluster.pause(node)
        connections[node].send_for_future(
            DescribeClusterRequest(), DescribeClusterResponse, timeout_ms=60_000
        )
    for _ in range(5):
        assert await core.network.connect_any() is connections[3]
    for node in (1, 2):
        cluster.resume(node)
