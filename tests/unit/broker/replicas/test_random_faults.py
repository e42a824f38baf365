"""Random kills, network partitions and slow metadata while records are written with acks=all: no
acknowledged record may be missing at the end, and all replicas are equal."""

import asyncio
from random import Random

import pytest

from lograft.broker.partitions.partition import Partition
from lograft.broker.replicas.replicas import FOLLOWERS_FAILED
from lograft.model.errors import LograftError
from lograft.model.metrics import value_of
from lograft.storage.appends import split_batches
from lograft.wire.batches import read_records
from tests.support.scenarios import scenario
from tests.unit.broker.bench import batch_of
from tests.unit.broker.replicas.replica_bench import Cluster, run_cluster

STEPS = 40


class Story:
    def __init__(self, cluster: Cluster, random: Random) -> None:
        self.cluster = cluster
        self.random = random
        self.acked: dict[int, bytes] = {}
        self.written = 0

    async def write(self) -> None:
        """Small groups, so that faults interrupt some of them."""
        while True:
            state = self.cluster.state("a")
            node = self.cluster.nodes.get(state.leader)
            partition = None if node is None else node.broker.partitions.get("a", 0)
            if partition is not None:
                writes = [self.write_one(partition) for _ in range(self.random.randint(1, 5))]
                await asyncio.gather(*writes)
            await asyncio.sleep(self.random.uniform(0.001, 0.05))

    async def write_one(self, partition: Partition) -> None:
        self.written += 1
        value = b"value %d" % self.written
        try:
            partition.check_append(acks_all=True)
            result = partition.append(
                memoryview(bytearray(batch_of(value))), now_ms=1_767_225_600_000
            )
            async with asyncio.timeout(3):
                await partition.wait_committed(
                    result.end_offset, timeout_ms=1_000, leader_epoch=partition.leader_epoch
                )
        except (LograftError, TimeoutError):
            return
        assert result.base_offset not in self.acked
        self.acked[result.base_offset] = value

    async def step(self) -> None:
        cluster, random = self.cluster, self.random
        up = list(cluster.nodes)
        kind = random.choice(["kill", "boot", "boot", "cut", "heal", "fence", "beat", "delay"])
        if kind == "kill" and len(up) > 2:
            number = random.choice(up)
            cluster.kill(number)
            if random.random() < 0.8:
                cluster.fence(number)
        elif kind == "boot":
            for number in [n for n in cluster.machines if n not in cluster.nodes]:
                await cluster.boot(number)
        elif kind == "cut":
            cluster.network.cut(*(f"n{n}" for n in random.sample(list(cluster.machines), 2)))
        elif kind == "heal":
            cluster.network.heal()
        elif kind == "fence" and random.random() < 0.3:
            cluster.fence(random.choice(up))
        elif kind == "beat":
            for node in cluster.nodes.values():
                node.beat()
        elif kind == "delay":
            cluster.controller.delay_s = {n: random.choice([0.001, 0.2]) for n in cluster.machines}
            cluster.controller.unreachable = random.random() < 0.2
        await asyncio.sleep(random.choice([0.0, 0.05, 0.3, 1.0, 3.0]))

    async def heal(self) -> None:
        cluster = self.cluster
        cluster.network.heal()
        cluster.controller.unreachable = False
        cluster.controller.delay_s = {}
        for number in [n for n in cluster.machines if n not in cluster.nodes]:
            await cluster.boot(number)
        for node in cluster.nodes.values():
            node.beat()
        await cluster.until(lambda: len(cluster.state("a").isr) == 3, seconds=60)


def records_of(partition: Partition) -> dict[int, bytes]:
    found: dict[int, bytes] = {}
    log = partition.log
    assert log is not None
    for segment in log.segments:
        data = memoryview(segment.file.pread(segment.size, 0))
        for batch in split_batches(data):
            for record in read_records(batch, bytes_max=1 << 20):
                assert record.value is not None
                found[record.offset] = bytes(record.value)
    return found


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("flush", ["9223372036854775807", "1"])
@scenario(run_cluster)
async def test_nothing_acknowledged_is_lost(cluster: Cluster, /, seed: int, flush: str) -> None:
    story = Story(cluster, Random(seed))
    cluster.create_topic("a", 1, 2, 3, min_insync_replicas="2", flush_messages=flush)
    await cluster.until_led("a")
    writer = asyncio.ensure_future(story.write())
    for _ in range(STEPS):
        await story.step()
        assert not writer.done(), writer
    await story.heal()
    await asyncio.sleep(1)
    writer.cancel()
    leader = await cluster.until_led("a")
    await cluster.until(
        lambda: len({len(records_of(n.partition("a"))) for n in cluster.nodes.values()}) == 1
    )
    expected = records_of(leader)
    for offset, value in story.acked.items():
        assert expected.get(offset) == value, f"{value!r} at {offset} is lost"
    for node in cluster.nodes.values():
        assert records_of(node.partition("a")) == expected
        assert value_of(node.broker.replicas, FOLLOWERS_FAILED) == 0
    assert len(story.acked) > 50
