"""The cluster for tests: real nodes, virtual time, faults by a call."""

import asyncio

from lograft.testing import Cluster


def test_a_node_serves_and_keeps_its_records_over_a_kill() -> None:
    async def scenario(cluster: Cluster) -> list[bytes]:
        client = cluster.test_client()
        await client.create_topic("t", partitions=2)
        assert await client.produce("t", 1, [b"one", b"two"]) == 0
        cluster.kill(1)
        await asyncio.sleep(5)
        assert cluster.nodes() == {}
        await cluster.start(1)
        assert await client.produce("t", 1, [b"three"]) == 2
        return await client.read("t", 1)

    assert Cluster(nodes=1, seed=3).play(scenario) == [b"one", b"two", b"three"]


def test_a_paused_node_answers_when_it_goes_on() -> None:
    async def scenario(cluster: Cluster) -> float:
        client = cluster.test_client()
        await client.create_topic("t")
        cluster.pause(1)
        cluster.loop.call_later_ns(7_000_000_000, cluster.resume, 1)
        before = cluster.loop.time()
        await client.produce("t", 0, [b"one"])
        return cluster.loop.time() - before

    assert Cluster(nodes=1).play(scenario) > 6.9
