"""Tests that retention deletes unread records of a slow consumer unless it holds them: on three
nodes, in both replication modes, with failures of leaders."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from lograft.client.admin import Admin, GroupOffset, NewTopic, TopicPartition
from lograft.client.producer import Producer
from lograft.model.retention_holds import format_hold
from lograft.model.types import OFFSETS_TOPIC
from lograft.testing import VirtualCluster
from tests.support.scenarios import scenario

TOPIC, GROUP = "t", "slow"
PARTITION = TopicPartition(TOPIC, 0)
RECORDS = 40
#: Offset of the consumer.
READ = 20
RETENTION_S, HOLD_MAX_S, ROUND_S = 20, 100, 1
#: Above the log end offset: in raft mode the log has a few control records.
END = RECORDS + 20
CONFIGS = {
    "retention.ms": str(RETENTION_S * 1000),
    "retention.hold.groups": f"other,{GROUP}",
    "retention.hold.max.ms": str(HOLD_MAX_S * 1000),
    "internal.segment.bytes": "300",
    "file.delete.delay.ms": "0",
}
PROPERTIES = {"log.retention.check.interval.ms": str(ROUND_S * 1000)}
SEEDS = range(2)

Scenario = Callable[["HoldBench"], Awaitable[None]]


class HoldBench:
    def __init__(self, cluster: VirtualCluster, admin: Admin) -> None:
        self.cluster = cluster
        self.admin = admin
        self.clock = cluster.client_runtime("clock").clock

    async def fill(self, mode: str, **configs: str) -> None:
        changed = {name.replace("_", "."): value for name, value in configs.items()}
        topic = NewTopic(TOPIC, 1, 3, {**CONFIGS, **changed, "replication.mode": mode})
        await self.admin.create_topics([topic])
        servers = ",".join(map(str, self.cluster.bootstrap()))
        runtime = self.cluster.client_runtime("writer")
        async with Producer(bootstrap_servers=servers, runtime=runtime) as producer:
            for number in range(RECORDS):
                now_ms = self.clock.wall_ms()
                await producer.send(TOPIC, b"%030d" % number, partition=0, timestamp_ms=now_ms)

    async def hold(self, seconds: float, *, group: str = GROUP) -> None:
        text = format_hold(self.clock.wall_ms() + int(seconds * 1000))
        await self.admin.alter_group_offsets(group, {PARTITION: GroupOffset(READ, text)})

    def starts(self) -> dict[int, int]:
        """Returns the log start offset of each replica."""
        found: dict[int, int] = {}
        for node_id, node in self.cluster.nodes().items():
            partition = node.broker.partitions.get(TOPIC, 0)
            if partition is not None and partition.log is not None:
                found[node_id] = partition.log.log_start_offset
        return found

    async def wait_log_starts(self, low: int, high: int) -> None:
        """Waits until all log start offsets are between `low` and `high`."""

        def is_met() -> bool:
            return all(low <= start <= high for start in self.starts().values())

        await self.cluster.wait_for(is_met, seconds=ROUND_S * 4)


def play(scenario: Scenario, seed: int) -> None:
    async def main(cluster: VirtualCluster) -> None:
        servers = ",".join(map(str, cluster.bootstrap()))
        async with Admin(
            bootstrap_servers=servers, runtime=cluster.client_runtime("admin")
        ) as admin:
            await scenario(HoldBench(cluster, admin))

    VirtualCluster(nodes=3, seed=seed, properties=PROPERTIES).play(main)


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("mode", ["isr", "raft"])
@scenario(play)
async def test_hold_keeps_unread_records_until_it_expires(
    bench: HoldBench, /, mode: str, seed: int
) -> None:
    await bench.fill(mode)
    await bench.hold(80)
    (hold,) = await bench.admin.list_retention_holds(now_ms=bench.clock.wall_ms())
    assert (hold.group, hold.offset, hold.records_kept) == (GROUP, READ, 0)
    await asyncio.sleep(RETENTION_S + 3 * ROUND_S)
    await bench.wait_log_starts(READ - 5, READ)
    (hold,) = await bench.admin.list_retention_holds([TOPIC], now_ms=bench.clock.wall_ms())
    assert hold.records_kept == hold.end_offset - READ
    # The consumer advances, and records that it has read are deleted.
    text = format_hold(bench.clock.wall_ms() + 40_000)
    await bench.admin.alter_group_offsets(GROUP, {PARTITION: GroupOffset(READ + 10, text)})
    await asyncio.sleep(3 * ROUND_S)
    await bench.wait_log_starts(READ + 5, READ + 10)
    # The consumer dies, and its hold expires.
    await asyncio.sleep(40 + 3 * ROUND_S)
    assert await bench.admin.list_retention_holds(now_ms=bench.clock.wall_ms()) == []
    await bench.wait_log_starts(RECORDS, END)


@pytest.mark.parametrize(
    ("reason", "mode"),
    [("no hold", "isr"), ("no hold", "raft"), ("another group", "isr"), ("no setting", "isr")],
)
@scenario(play, seed=1)
async def test_unread_records_are_deleted_without_a_valid_hold(
    bench: HoldBench, /, reason: str, mode: str
) -> None:
    configs = {"retention_hold_groups": ""} if reason == "no setting" else {}
    await bench.fill(mode, **configs)
    if reason == "no hold":
        await bench.admin.alter_group_offsets(GROUP, {PARTITION: READ})
    elif reason == "another group":
        await bench.hold(80, group="stranger")
    elif reason == "no setting":
        await bench.hold(80)
    await asyncio.sleep(RETENTION_S + 3 * ROUND_S)
    await bench.wait_log_starts(RECORDS, END)


@pytest.mark.parametrize("mode", ["isr", "raft"])
@scenario(play, seed=1)
async def test_hold_is_limited_by_the_topic_setting(bench: HoldBench, /, mode: str) -> None:
    await bench.fill(mode)
    await bench.hold(10**9)
    await asyncio.sleep(RETENTION_S + HOLD_MAX_S - 3 * ROUND_S)
    await bench.wait_log_starts(READ - 5, READ)
    await asyncio.sleep(6 * ROUND_S)
    await bench.wait_log_starts(RECORDS, END)


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("mode", ["isr", "raft"])
@scenario(play)
async def test_hold_survives_the_leader_and_the_coordinator(
    bench: HoldBench, /, mode: str, seed: int
) -> None:
    await bench.fill(mode)
    await bench.hold(2 * RETENTION_S)
    cluster = bench.cluster
    await asyncio.sleep(RETENTION_S - ROUND_S)
    index = cluster.node(cluster.leader_of(TOPIC, 0)).broker.groups.partition_of(GROUP)
    cluster.kill(cluster.leader_of(TOPIC, 0))
    await asyncio.sleep(3 * ROUND_S)
    assert all(READ - 5 <= start <= READ or start == 0 for start in bench.starts().values())
    await cluster.start(*(cluster.hosts.keys() - cluster.nodes().keys()))
    coordinator = cluster.leader_of(OFFSETS_TOPIC, index)
    cluster.kill(coordinator)
    await asyncio.sleep(3 * ROUND_S)
    await cluster.start(coordinator)
    await asyncio.sleep(3 * ROUND_S)
    await bench.wait_log_starts(READ - 5, READ)
    await asyncio.sleep(RETENTION_S)
    await bench.wait_log_starts(RECORDS, END)


@scenario(play, seed=1)
async def test_delete_records_ignores_holds(bench: HoldBench, /) -> None:
    await bench.fill("isr")
    await bench.hold(80)
    await bench.admin.delete_records({PARTITION: READ + 10})
    await bench.wait_log_starts(READ + 10, READ + 10)
