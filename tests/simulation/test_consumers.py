"""Tests of Lograft's consumers in a group while brokers are killed and paused: members join and
leave, and every acknowledged record is read unchanged. More seeds:
LOGRAFT_CONSUMER_SEEDS=1000-1100."""

import asyncio
import os
from random import Random
from typing import Any

import pytest

from lograft.client import Consumer, Producer
from lograft.testing import VirtualCluster
from tests.support.scenarios import run_in_virtual_cluster, scenario

PARTITIONS = 4
RECORDS = 200
NODES = 3
CONSUMERS = 3
#: Virtual seconds after the last record within which all records must be read.
TIMEOUT_SECONDS = 200
PROTOCOLS: dict[str, dict[str, Any]] = {
    "eager": {"partition.assignment.strategy": "range", "session.timeout.ms": 10_000},
    "sticky": {"partition.assignment.strategy": "sticky", "session.timeout.ms": 10_000},
    "cooperative": {
        "partition.assignment.strategy": "cooperative-sticky",
        "session.timeout.ms": 10_000,
    },
    "consumer": {"group.protocol": "consumer"},
}
PROPERTIES = {
    "group.initial.rebalance.delay.ms": "0",
    "group.min.session.timeout.ms": "1000",
    "group.consumer.heartbeat.interval.ms": "1000",
    "group.consumer.min.heartbeat.interval.ms": "500",
    "group.consumer.session.timeout.ms": "10000",
    "group.consumer.min.session.timeout.ms": "5000",
}
Place = tuple[int, int]


class GroupRun:
    def __init__(self, cluster: VirtualCluster, seed: int, protocol: dict[str, Any]) -> None:
        self._cluster = cluster
        self._random = Random(f"{seed} {protocol}")
        self._settings = {
            "bootstrap.servers": ",".join(map(str, cluster.bootstrap())),
            "request.timeout.ms": 3_000,
        }
        self._protocol = protocol
        self.acknowledged: dict[Place, bytes] = {}
        self.read: dict[Place, bytes] = {}
        self._has_ended = False

    async def run(self) -> None:
        admin = self._cluster.test_client("admin")
        await admin.create_topic("t", partitions=PARTITIONS, replication_factor=NODES)
        async with asyncio.TaskGroup() as tasks:
            for number in range(CONSUMERS):
                tasks.create_task(self._consume(f"reader {number}"))
            faults = tasks.create_task(self._inject_faults())
            await self._produce()
            async with asyncio.timeout(TIMEOUT_SECONDS):
                while self.acknowledged.keys() - self.read.keys():
                    await asyncio.sleep(1)
            self._has_ended = True
            faults.cancel()

    async def _produce(self) -> None:
        runtime = self._cluster.client_runtime("writer")
        settings = {**self._settings, "delivery.timeout.ms": 600_000}
        async with Producer(settings, runtime=runtime) as producer:
            sent = []
            for number in range(RECORDS):
                value = b"%d" % number
                delivery = await producer.enqueue("t", value, partition=number % PARTITIONS)
                sent.append((value, delivery))
                await asyncio.sleep(0.15)
            for value, delivery in sent:
                metadata = await delivery
                self.acknowledged[metadata.partition, metadata.offset] = value

    async def _consume(self, host: str) -> None:
        """Runs one member after another, each for a while, some slower than others."""
        random = self._random
        settings = {
            **self._settings,
            "group.id": "g",
            "auto.offset.reset": "earliest",
            "auto.commit.interval.ms": 500,
            **self._protocol,
        }
        while not self._has_ended:
            end = self._cluster.loop.time() + random.uniform(5, 30)
            async with Consumer(settings, runtime=self._cluster.client_runtime(host)) as consumer:
                consumer.subscribe(["t"])
                while not self._has_ended and self._cluster.loop.time() < end:
                    polled = await consumer.poll(
                        timeout_ms=random.choice([10, 200, 1_000]),
                        max_records=random.choice([1, 5, 500]),
                    )
                    for records in polled.values():
                        for record in records:
                            self.read[record.partition, record.offset] = record.value
                    if random.random() < 0.02:
                        await asyncio.sleep(random.uniform(0, 3))

    async def _inject_faults(self) -> None:
        random, cluster = self._random, self._cluster
        while True:
            await asyncio.sleep(random.uniform(3, 8))
            victim = random.randint(1, NODES)
            if random.random() < 0.5:
                cluster.kill(victim)
                await asyncio.sleep(random.uniform(1, 6))
                await cluster.start(victim)
            else:
                cluster.pause(victim)
                await asyncio.sleep(random.uniform(0.5, 5))
                cluster.resume(victim)
            await asyncio.sleep(5)


def seeds() -> list[int]:
    seed_range = os.environ.get("LOGRAFT_CONSUMER_SEEDS")
    if seed_range is None:
        return [7]
    first, _, last = seed_range.partition("-")
    return list(range(int(first), int(last or first) + 1))


@pytest.mark.parametrize("seed", seeds())
@pytest.mark.parametrize("protocol", PROTOCOLS)
@scenario(run_in_virtual_cluster, nodes=NODES, properties=PROPERTIES)
async def test_every_acknowledged_record_is_read(
    cluster: VirtualCluster, /, protocol: str, seed: int
) -> None:
    group_run = GroupRun(cluster, seed, PROTOCOLS[protocol])
    await group_run.run()
    found = {place: group_run.read[place] for place in group_run.acknowledged}
    assert found == group_run.acknowledged
    assert len(found) == RECORDS
