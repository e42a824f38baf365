"""The cluster for tests: real nodes, virtual time, faults by a call."""

import asyncio

import pytest

from lograft.client.errors import BrokerError
from lograft.client.producer import Producer
from lograft.model.errors import ErrorCode
from lograft.testing import VirtualCluster


def test_a_node_serves_and_keeps_its_records_over_a_kill() -> None:
    async def scenario(cluster: VirtualCluster) -> list[bytes]:
        client = cluster.test_client()
        await client.create_topic("t", partitions=2)
        assert await client.produce("t", 1, [b"one", b"two"]) == 0
        cluster.kill(1)
        await asyncio.sleep(5)
        assert cluster.nodes() == {}
        await cluster.start(1)
        assert await client.produce("t", 1, [b"three"]) == 2
        return await client.read("t", 1)

    assert VirtualCluster(nodes=1, seed=3).play(scenario) == [b"one", b"two", b"three"]


def test_a_paused_node_answers_when_it_goes_on() -> None:
    async def scenario(cluster: VirtualCluster) -> float:
        client = cluster.test_client()
        await client.create_topic("t")
        cluster.pause(1)
        cluster.loop.call_later_ns(7_000_000_000, cluster.resume, 1)
        before = cluster.loop.time()
        await client.produce("t", 0, [b"one"])
        return cluster.loop.time() - before

    assert VirtualCluster(nodes=1).play(scenario) > 6.9


def test_requests_fail_in_virtual_time_too() -> None:
    async def scenario(cluster: VirtualCluster) -> float:
        await cluster.test_client().create_topic("t")
        servers = ",".join(map(str, cluster.bootstrap()))
        async with Producer(bootstrap_servers=servers, runtime=cluster.client_runtime()) as one:
            await one.send("t", b"v")
            cluster.fail("Produce", ErrorCode.INVALID_RECORD, topic="t")
            with pytest.raises(BrokerError, match="INVALID_RECORD"):
                await one.send("t", b"v")
            fault = cluster.delay("Produce", 20, topic="t", partition=0)
            before = cluster.loop.time()
            assert (await one.send("t", b"v")).offset == 1
            assert fault.hits == 1
            return cluster.loop.time() - before

    assert 20 <= VirtualCluster(nodes=1, seed=4).play(scenario) < 25
