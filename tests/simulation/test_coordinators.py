"""Tests that committed offsets survive the failure of coordinators."""

import asyncio

import pytest

from lograft.broker.coordinators.coordinator_runtime import key_hash
from lograft.model.errors import ErrorCode
from lograft.model.types import OFFSETS_TOPIC, ReplicationMode
from lograft.simulation.client import NotSent, OutcomeUnknown
from lograft.simulation.routing import ClusterClient
from lograft.testing import TestClient, VirtualCluster
from lograft.wire.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from lograft.wire.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from lograft.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from lograft.wire.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
)
from tests.support.scenarios import run_in_virtual_cluster, scenario

GROUP = "g"
PARTITIONS = 2
INDEX = key_hash(GROUP) % PARTITIONS
PROPERTIES = {
    "offsets.topic.num.partitions": str(PARTITIONS),
    "offsets.commit.timeout.ms": "2000",
    "min.insync.replicas": "2",
}
ISR, RAFT = ReplicationMode.ISR, ReplicationMode.RAFT


def position_request() -> OffsetFetchRequest:
    topic = OffsetFetchRequestTopics(name="t", partition_indexes=[0])
    return OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id=GROUP, topics=[topic])])


class Committer:
    """Commits 1, 2, 3, … and fetches the offset in between. A fetched offset must be at least the
    last acknowledged one, and at most the last attempted one."""

    def __init__(self, client: ClusterClient) -> None:
        self._client = client
        self._route = client.partition(OFFSETS_TOPIC, INDEX)
        self.attempted = 0
        self.acknowledged = 0
        self.is_stopped = False
        self.is_idle = False
        self._may_continue = asyncio.Event()
        self._may_continue.set()

    async def create_offsets_topic(self) -> None:
        request = FindCoordinatorRequest(coordinator_keys=[GROUP])
        while True:
            try:
                response = await self._client.request(
                    request, 4, FindCoordinatorResponse, timeout_ms=10_000
                )
                if response.coordinators[0].error_code == 0:
                    return
            except (NotSent, OutcomeUnknown):
                self._client.mark_stale()
            await asyncio.sleep(0.1)

    async def run(self) -> None:
        while not self.is_stopped:
            self.is_idle = not self._may_continue.is_set()
            await self._may_continue.wait()
            self.attempted += 1
            position = self.attempted
            if await self._commit(position):
                self.acknowledged = position
            at_least = self.acknowledged
            found = await self._fetch()
            if found is not None:
                assert at_least <= found <= self.attempted, (at_least, found, self.attempted)

    async def pause(self, cluster: VirtualCluster) -> None:
        self._may_continue.clear()
        await cluster.wait_for(lambda: self.is_idle)

    def resume(self) -> None:
        self._may_continue.set()

    async def wait_for_more(self, cluster: VirtualCluster, count: int = 10) -> None:
        goal = self.acknowledged + count
        await cluster.wait_for(lambda: self.acknowledged >= goal, seconds=60)

    async def _commit(self, position: int) -> bool:
        partition = OffsetCommitRequestPartition(partition_index=0, committed_offset=position)
        request = OffsetCommitRequest(
            group_id=GROUP, topics=[OffsetCommitRequestTopic(name="t", partitions=[partition])]
        )
        try:
            response = await self._route.request(request, 9, OffsetCommitResponse, timeout_ms=4000)
        except (NotSent, OutcomeUnknown):
            return await self._back_off()
        return response.topics[0].partitions[0].error_code == 0 or await self._back_off()

    async def _fetch(self) -> int | None:
        try:
            response = await self._route.request(
                position_request(), 9, OffsetFetchResponse, timeout_ms=4000
            )
        except (NotSent, OutcomeUnknown):
            await self._back_off()
            return None
        (group,) = response.groups
        if group.error_code:
            await self._back_off()
            return None
        return max(0, group.topics[0].partitions[0].committed_offset)

    async def _back_off(self) -> bool:
        self._route.mark_stale()
        await asyncio.sleep(0.03)
        return False


async def switch(client: ClusterClient, mode: str) -> None:
    request = IncrementalAlterConfigsRequest(
        resources=[
            AlterConfigsResource(
                resource_type=2,
                resource_name=OFFSETS_TOPIC,
                configs=[AlterableConfig(name="replication.mode", config_operation=0, value=mode)],
            )
        ]
    )
    response = await client.request(request, 1, IncrementalAlterConfigsResponse, timeout_ms=20_000)
    assert response.responses[0].error_code == ErrorCode.NONE, response


def mode_of(cluster: VirtualCluster) -> ReplicationMode:
    topic = cluster.image.topic(OFFSETS_TOPIC)
    assert topic is not None
    return topic.partitions[INDEX].mode


async def wait_mode(cluster: VirtualCluster, mode: ReplicationMode) -> None:
    await cluster.wait_for(lambda: mode_of(cluster) is mode, seconds=60)


async def begin(cluster: VirtualCluster) -> Committer:
    client: TestClient = cluster.test_client()
    await client.create_topic("t", partitions=1, replication_factor=3)
    committer = Committer(cluster.client("committer"))
    await committer.create_offsets_topic()
    return committer


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("mode", ["isr", "raft"])
def test_commits_survive_their_coordinators(mode: str, seed: int) -> None:
    async def scenario(cluster: VirtualCluster) -> None:
        committer = await begin(cluster)
        running = asyncio.get_running_loop().create_task(committer.run())
        for _ in range(3):
            await committer.wait_for_more(cluster)
            leader = cluster.leader_of(OFFSETS_TOPIC, INDEX)
            if seed % 2:
                cluster.lose_power(leader)
            else:
                cluster.kill(leader)
            await committer.wait_for_more(cluster)
            await cluster.start(leader)
        leader = cluster.leader_of(OFFSETS_TOPIC, INDEX)
        cluster.isolate(leader)
        await committer.wait_for_more(cluster)
        cluster.heal()
        await committer.wait_for_more(cluster)
        committer.is_stopped = True
        await running

    properties = {**PROPERTIES, "internal.topics.replication.mode": mode}
    VirtualCluster(nodes=3, seed=seed, properties=properties).play(scenario)


@pytest.mark.parametrize("seed", range(3))
@scenario(run_in_virtual_cluster, nodes=3, properties=PROPERTIES)
async def test_commits_continue_during_mode_switches_of_the_offsets_topic(
    cluster: VirtualCluster, /, seed: int
) -> None:
    committer = await begin(cluster)
    admin = cluster.client("admin")
    running = asyncio.get_running_loop().create_task(committer.run())
    for name, mode in (("raft", RAFT), ("isr", ISR), ("raft", RAFT)):
        await committer.wait_for_more(cluster)
        await switch(admin, name)
        await wait_mode(cluster, mode)
        await committer.wait_for_more(cluster)
    cluster.kill(cluster.leader_of(OFFSETS_TOPIC, INDEX))
    await committer.wait_for_more(cluster)
    committer.is_stopped = True
    await running


async def fetch_from(cluster: VirtualCluster, node_id: int, committer: Committer) -> set[int]:
    """Fetches the offset only from one node until the committer stops. Returns its error codes."""
    client = cluster.client("onlooker")
    address = cluster.bootstrap()[node_id - 1]
    codes: set[int] = set()
    while not committer.is_stopped:
        at_least = committer.acknowledged
        try:
            response = await client.request_to(
                address, position_request(), 9, OffsetFetchResponse, timeout_ms=4000
            )
        except (NotSent, OutcomeUnknown):
            continue
        (group,) = response.groups
        codes.add(group.error_code)
        if not group.error_code:
            found = group.topics[0].partitions[0].committed_offset
            assert found >= at_least, (found, at_least, "an older offset was returned")
        await asyncio.sleep(0.01)
    return codes


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("mode", ["isr", "raft"])
def test_isolated_coordinator_returns_no_older_offset(mode: str, seed: int) -> None:
    """Clients can reach it all the time; it cannot know that the group has another coordinator."""

    async def scenario(cluster: VirtualCluster) -> None:
        committer = await begin(cluster)
        loop = asyncio.get_running_loop()
        running = loop.create_task(committer.run())
        await committer.wait_for_more(cluster)
        leader = cluster.leader_of(OFFSETS_TOPIC, INDEX)
        fetching = loop.create_task(fetch_from(cluster, leader, committer))
        # A pending commit would delay all responses.
        await committer.pause(cluster)
        cluster.isolate(leader)
        cluster.network.cut("committer", f"n{leader}")
        committer.resume()
        await committer.wait_for_more(cluster, 200)
        cluster.heal()
        await committer.wait_for_more(cluster, 200)
        committer.is_stopped = True
        await running
        assert await fetching >= {ErrorCode.NONE, ErrorCode.NOT_COORDINATOR}

    properties = {**PROPERTIES, "internal.topics.replication.mode": mode}
    VirtualCluster(nodes=3, seed=seed, properties=properties).play(scenario)
