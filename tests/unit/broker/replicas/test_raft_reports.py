"""The ISR that raft leaders report, on a simulated cluster."""

import asyncio

from lograft.client.admin import Admin, NewTopic
from lograft.model.types import ReplicationMode
from lograft.replication.raft_roles import IN_SYNC_MS
from lograft.testing import VirtualCluster
from tests.support.scenarios import scenario
from tests.unit.client.administering.admin_scenarios import fill, play


async def isr_of(admin: Admin) -> set[int]:
    return set((await admin.describe_topics(["t"]))["t"].partitions[0].isr)


@scenario(play, nodes=3)
async def test_a_dead_follower_leaves_the_isr_and_idle_followers_stay(
    cluster: VirtualCluster, admin: Admin, /
) -> None:
    await admin.create_topics([NewTopic("t", replicas=3)])
    await fill(cluster, "t", 3)
    await admin.alter_replication("t", mode="raft")
    async with asyncio.timeout(60):
        while True:
            partition = (await admin.describe_topics(["t"]))["t"].partitions[0]
            if partition.mode is ReplicationMode.RAFT and len(partition.isr) == 3:
                break
            await asyncio.sleep(0.1)
    for _ in range(30):
        await asyncio.sleep(1)
        assert await isr_of(admin) == {1, 2, 3}
    leader = cluster.leader_of("t", 0)
    dead = 1 + leader % 3
    cluster.kill(dead)
    async with asyncio.timeout(2 * IN_SYNC_MS / 1000):
        while await isr_of(admin) != {1, 2, 3} - {dead}:
            await asyncio.sleep(0.5)
    await cluster.start(dead)
    async with asyncio.timeout(60):
        while await isr_of(admin) != {1, 2, 3}:
            await asyncio.sleep(0.5)
