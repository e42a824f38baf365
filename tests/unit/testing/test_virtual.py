"""`VirtualCluster`: nodes in virtual time, and injected faults."""

import asyncio

import pytest

from lograft.client.errors import BrokerError
from lograft.client.producer import Producer
from lograft.model.errors import ErrorCode
from lograft.testing import VirtualCluster


def test_records_survive_a_kill() -> None:
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


def test_a_paused_node_responds_after_it_is_resumed() -> None:
    async def scenario(cluster: VirtualCluster) -> float:
        client = cluster.test_client()
        await client.create_topic("t")
        cluster.pause(1)
        cluster.loop.call_later_ns(7_000_000_000, cluster.resume, 1)
        start = cluster.loop.time()
        await client.produce("t", 0, [b"one"])
        return cluster.loop.time() - start

    assert VirtualCluster(nodes=1).play(scenario) > 6.9


def test_requests_fail_and_are_delayed_in_virtual_time() -> None:
    async def scenario(cluster: VirtualCluster) -> float:
        await cluster.test_client().create_topic("t")
        servers = ",".join(map(str, cluster.bootstrap()))
        async with Producer(
            bootstrap_servers=servers, runtime=cluster.client_runtime()
        ) as producer:
            await producer.send("t", b"v")
            cluster.fail("Produce", ErrorCode.INVALID_RECORD, topic="t")
            with pytest.raises(BrokerError, match="INVALID_RECORD"):
                await producer.send("t", b"v")
            fault = cluster.delay("Produce", 20, topic="t", partition=0)
            start = cluster.loop.time()
            assert (await producer.send("t", b"v")).offset == 1
            assert fault.hits == 1
            return cluster.loop.time() - start

    assert 20 <= VirtualCluster(nodes=1, seed=4).play(scenario) < 25
