"""Partitions with followers: brokers that fetch from each other over a simulated network."""

import asyncio

import pytest

from lograft.broker.errors import NotEnoughReplicas, WaitTimedOut
from lograft.broker.partition import Partition
from lograft.model.types import Offset
from tests.unit.broker.bench import batch_of
from tests.unit.broker.replica_bench import Cluster


def append(partition: Partition, *values: bytes, epoch: int = 0) -> Offset:
    batch = memoryview(bytearray(batch_of(*values)))
    return partition.append(batch, now_ms=1_767_225_600_000).end_offset


def content(partition: Partition) -> bytes:
    log = partition.log
    assert log is not None
    return b"".join(segment.file.pread(segment.size, 0) for segment in log.segments)


def test_followers_copy_and_what_all_have_is_committed() -> None:
    async def scenario(cluster: Cluster) -> None:
        cluster.create_topic("a", 1, 2, 3)
        leader = await cluster.until_led("a")
        end = append(leader, b"x", b"y")
        await leader.wait_committed(end, timeout_ms=5_000)
        assert leader.high_watermark == 2
        for number in (2, 3):
            follower = cluster.nodes[number].partition("a")
            assert content(follower) == content(leader)
            assert follower.leader is None
            assert follower.high_watermark <= 2
        # The watermark follows with the next answer.
        await cluster.until(lambda: cluster.nodes[2].partition("a").high_watermark == 2)
        assert [status.lag for status in leader.statuses()] == [0, 0, 0]

    Cluster().run(scenario)


def test_a_leader_that_comes_back_drops_what_nobody_else_has() -> None:
    async def scenario(cluster: Cluster) -> None:
        cluster.create_topic("a", 1, 2, 3, min_insync_replicas="2")
        first = await cluster.until_led("a")
        await first.wait_committed(append(first, b"kept"), timeout_ms=5_000)
        cluster.network.cut("n1", "n2")
        cluster.network.cut("n1", "n3")
        append(first, b"never committed")
        append(first, b"nor this")
        await asyncio.sleep(0.5)
        assert first.high_watermark == 1
        cluster.kill(1)
        cluster.fence(1)
        second = await cluster.until_led("a")
        assert second.me == 2
        end = append(second, b"other")
        await second.wait_committed(end, timeout_ms=5_000)
        cluster.network.heal()
        await cluster.boot(1)
        old = cluster.nodes[1].partition("a")
        await cluster.until(lambda: sorted(cluster.state("a").isr) == [1, 2, 3])
        assert content(old) == content(second)
        assert old.log is not None
        assert second.log is not None
        assert old.log.epochs.entries == second.log.epochs.entries

    Cluster().run(scenario)


def test_a_follower_that_lags_leaves_the_isr_and_comes_back() -> None:
    async def scenario(cluster: Cluster) -> None:
        cluster.create_topic("a", 1, 2, 3, min_insync_replicas="2")
        leader = await cluster.until_led("a")
        await leader.wait_committed(append(leader, b"1"), timeout_ms=5_000)
        cluster.network.cut("n1", "n3")
        end = append(leader, b"2")
        with pytest.raises(WaitTimedOut):
            await leader.wait_committed(end, timeout_ms=500)
        # Without the third replica once it is out of the ISR.
        await leader.wait_committed(end, timeout_ms=10_000)
        assert sorted(cluster.state("a").isr) == [1, 2]
        cluster.network.cut("n1", "n2")
        append(leader, b"3")
        await cluster.until(lambda: cluster.state("a").isr == (1,))
        with pytest.raises(NotEnoughReplicas):
            leader.check_append(acks_all=True)
        leader.check_append(acks_all=False)
        assert leader.high_watermark == 2
        cluster.network.heal()
        await cluster.until(lambda: sorted(cluster.state("a").isr) == [1, 2, 3])
        await cluster.until(lambda: leader.high_watermark == 3)
        assert content(cluster.nodes[3].partition("a")) == content(leader)

    Cluster().run(scenario)


def test_flush_before_ack_waits_for_the_disks_of_all() -> None:
    async def scenario(cluster: Cluster) -> None:
        cluster.create_topic("a", 1, 2, 3, flush_messages="1")
        cluster.create_topic("other", 1, 2, 3)
        leader = await cluster.until_led("a")
        await cluster.until_led("other")
        begin_ms = cluster.nodes[1].broker.clock.mono_ms()
        for number in range(1, 11):
            await leader.wait_committed(append(leader, b"x"), timeout_ms=5_000)
            for node in cluster.nodes.values():
                log = node.partition("a").log
                assert log is not None
                assert log.durable_offset >= number
        # Nobody waited for a long poll of half a second to end.
        assert cluster.nodes[1].broker.clock.mono_ms() - begin_ms < 2_000

    Cluster().run(scenario)


def test_quiet_partitions_cost_no_look_per_poll() -> None:
    async def scenario(cluster: Cluster) -> None:
        for number in range(50):
            cluster.create_topic(f"quiet{number}", 1, 2)
        cluster.create_topic("busy", 1, 2)
        leader = await cluster.until_led("busy")
        await cluster.until(lambda: len(cluster.nodes[2].broker.partitions) == 51)
        await asyncio.sleep(3)
        assert all(len(cluster.state(f"quiet{number}").isr) == 2 for number in range(50)), (
            "a quiet follower stays in sync"
        )
        for _ in range(20):
            await leader.wait_committed(append(leader, b"x"), timeout_ms=5_000)

    Cluster(2).run(scenario)
