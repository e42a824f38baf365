"""A slow reader, and retention that passes it unless the reader holds what it has not read: on
three nodes, in both modes, whoever leads."""

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
PLACE = TopicPartition(TOPIC, 0)
RECORDS = 40
#: The reader stands here.
READ = 20
RETENTION_S, HOLD_MAX_S, ROUND_S = 20, 100, 1
#: Beyond the end of the log: in raft mode it has a few records of its own.
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

Scenario = Callable[["Held"], Awaitable[None]]


class Held:
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
        await self.admin.alter_group_offsets(group, {PLACE: GroupOffset(READ, text)})

    def starts(self) -> dict[int, int]:
        """Where each replica's log begins."""
        found: dict[int, int] = {}
        for node_id, node in self.cluster.nodes().items():
            partition = node.broker.partitions.get(TOPIC, 0)
            if partition is not None and partition.log is not None:
                found[node_id] = partition.log.log_start_offset
        return found

    async def all_begin_in(self, low: int, high: int) -> None:
        """All replicas soon begin between these."""

        def is_met() -> bool:
            return all(low <= start <= high for start in self.starts().values())

        await self.cluster.wait_for(is_met, seconds=ROUND_S * 4)


def play(scenario: Scenario, seed: int) -> None:
    async def main(cluster: VirtualCluster) -> None:
        servers = ",".join(map(str, cluster.bootstrap()))
        async with Admin(
            bootstrap_servers=servers, runtime=cluster.client_runtime("admin")
        ) as admin:
            await scenario(Held(cluster, admin))

    VirtualCluster(nodes=3, seed=seed, properties=PROPERTIES).play(main)


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("mode", ["isr", "raft"])
@scenario(play)
async def test_a_hold_keeps_what_is_unread_until_it_expires(
    held: Held, /, mode: str, seed: int
) -> None:
    await held.fill(mode)
    await held.hold(80)
    (told,) = await held.admin.list_retention_holds(now_ms=held.clock.wall_ms())
    assert (told.group, told.offset, told.records_kept) == (GROUP, READ, 0)
    await asyncio.sleep(RETENTION_S + 3 * ROUND_S)
    await held.all_begin_in(READ - 5, READ)
    (told,) = await held.admin.list_retention_holds([TOPIC], now_ms=held.clock.wall_ms())
    assert told.records_kept == told.end_offset - READ
    # The reader goes on: what it has read goes.
    text = format_hold(held.clock.wall_ms() + 40_000)
    await held.admin.alter_group_offsets(GROUP, {PLACE: GroupOffset(READ + 10, text)})
    await asyncio.sleep(3 * ROUND_S)
    await held.all_begin_in(READ + 5, READ + 10)
    # It dies, and its hold with it.
    await asyncio.sleep(40 + 3 * ROUND_S)
    assert await held.admin.list_retention_holds(now_ms=held.clock.wall_ms()) == []
    await held.all_begin_in(RECORDS, END)


@pytest.mark.parametrize(
    ("why", "mode"),
    [("no hold", "isr"), ("no hold", "raft"), ("another group", "isr"), ("no setting", "isr")],
)
@scenario(play, seed=1)
async def test_without_a_hold_retention_passes_the_reader(
    held: Held, /, why: str, mode: str
) -> None:
    configs = {"retention_hold_groups": ""} if why == "no setting" else {}
    await held.fill(mode, **configs)
    if why == "no hold":
        await held.admin.alter_group_offsets(GROUP, {PLACE: READ})
    elif why == "another group":
        await held.hold(80, group="stranger")
    elif why == "no setting":
        await held.hold(80)
    await asyncio.sleep(RETENTION_S + 3 * ROUND_S)
    await held.all_begin_in(RECORDS, END)


@pytest.mark.parametrize("mode", ["isr", "raft"])
@scenario(play, seed=1)
async def test_a_hold_is_bounded_in_time_whatever_it_says(held: Held, /, mode: str) -> None:
    await held.fill(mode)
    await held.hold(10**9)
    await asyncio.sleep(RETENTION_S + HOLD_MAX_S - 3 * ROUND_S)
    await held.all_begin_in(READ - 5, READ)
    await asyncio.sleep(6 * ROUND_S)
    await held.all_begin_in(RECORDS, END)


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("mode", ["isr", "raft"])
@scenario(play)
async def test_a_hold_survives_its_leader_and_its_coordinator(
    held: Held, /, mode: str, seed: int
) -> None:
    await held.fill(mode)
    await held.hold(2 * RETENTION_S)
    cluster = held.cluster
    await asyncio.sleep(RETENTION_S - ROUND_S)
    index = cluster.node(cluster.leader_of(TOPIC, 0)).broker.groups.partition_of(GROUP)
    cluster.kill(cluster.leader_of(TOPIC, 0))
    await asyncio.sleep(3 * ROUND_S)
    assert all(READ - 5 <= start <= READ or start == 0 for start in held.starts().values())
    await cluster.start(*(cluster.hosts.keys() - cluster.nodes().keys()))
    coordinator = cluster.leader_of(OFFSETS_TOPIC, index)
    cluster.kill(coordinator)
    await asyncio.sleep(3 * ROUND_S)
    await cluster.start(coordinator)
    await asyncio.sleep(3 * ROUND_S)
    await held.all_begin_in(READ - 5, READ)
    await asyncio.sleep(RETENTION_S)
    await held.all_begin_in(RECORDS, END)


@scenario(play, seed=1)
async def test_an_administrator_deletes_what_is_held(held: Held, /) -> None:
    await held.fill("isr")
    await held.hold(80)
    await held.admin.delete_records({PLACE: READ + 10})
    await held.all_begin_in(READ + 10, READ + 10)
