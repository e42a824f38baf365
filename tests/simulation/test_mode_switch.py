"""Tests of switching between isr and raft mode while records are produced."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from lograft.metadata.elections import is_reassigning
from lograft.metadata.types import PartitionState
from lograft.model.errors import ErrorCode
from lograft.model.types import ReplicationMode, TopicIdPartition
from lograft.simulation.client import NotSent, OutcomeUnknown
from lograft.simulation.cluster import SimulatedCluster
from lograft.simulation.disk import DiskFault
from lograft.simulation.routing import ClusterClient
from lograft.wire.batches import Record, build_batch, iterate_headers, read_records
from lograft.wire.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ReassignablePartition,
    ReassignableTopic,
)
from lograft.wire.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from lograft.wire.messages.elect_leaders import (
    ElectLeadersRequest,
    ElectLeadersResponse,
    TopicPartitions,
)
from lograft.wire.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from lograft.wire.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from tests.support.scenarios import scenario

TOPIC = "t"
ISR, RAFT = ReplicationMode.ISR, ReplicationMode.RAFT
NOT_LEADER = 6


class Writer:
    """Sends one record at a time with acks=all, and retries until it is acknowledged or its outcome
    is unknown."""

    def __init__(self, client: ClusterClient) -> None:
        self._route = client.partition(TOPIC, 0)
        self.acknowledged: dict[int, int] = {}
        self.errors: dict[int, int] = {}
        self._number = 0
        self.is_stopped = False

    async def wait_for_more(self, cluster: SimulatedCluster, count: int = 5) -> None:
        goal = len(self.acknowledged) + count
        await cluster.wait_for(lambda: len(self.acknowledged) >= goal, seconds=30)

    async def run(self) -> None:
        while not self.is_stopped:
            self._number += 1
            await self._write(self._number)

    async def _write(self, number: int) -> None:
        while not self.is_stopped:
            batch = build_batch([Record(0, 1, None, b"%d" % number)], leader_epoch=-1)
            request = ProduceRequest(
                acks=-1,
                timeout_ms=3000,
                topic_data=[
                    TopicProduceData(
                        name=TOPIC, partition_data=[PartitionProduceData(index=0, records=batch)]
                    )
                ],
            )
            try:
                response = await self._route.request(request, 11, ProduceResponse, timeout_ms=4000)
            except NotSent:
                self._route.mark_stale()
                await asyncio.sleep(0.05)
                continue
            except OutcomeUnknown:
                self._route.mark_stale()
                return
            result = response.responses[0].partition_responses[0]
            if result.error_code == 0:
                assert result.base_offset not in self.acknowledged
                self.acknowledged[result.base_offset] = number
                return
            self.errors[result.error_code] = self.errors.get(result.error_code, 0) + 1
            self._route.mark_stale()
            await asyncio.sleep(0.02)


async def create(client: ClusterClient, replication_factor: int = 3, /, **configs: str) -> None:
    request = CreateTopicsRequest(
        topics=[
            CreatableTopic(
                name=TOPIC,
                num_partitions=1,
                replication_factor=replication_factor,
                configs=[
                    CreatableTopicConfig(name=name.replace("_", "."), value=value)
                    for name, value in configs.items()
                ],
            )
        ],
        timeout_ms=10_000,
    )
    response = await client.request(request, 7, CreateTopicsResponse, timeout_ms=20_000)
    assert response.topics[0].error_code == 0, response


async def switch(client: ClusterClient, mode: str) -> None:
    request = IncrementalAlterConfigsRequest(
        resources=[
            AlterConfigsResource(
                resource_type=2,
                resource_name=TOPIC,
                configs=[AlterableConfig(name="replication.mode", config_operation=0, value=mode)],
            )
        ]
    )
    response = await client.request(request, 1, IncrementalAlterConfigsResponse, timeout_ms=20_000)
    assert response.responses[0].error_code == 0, response


def mode_of(cluster: SimulatedCluster, index: int = 0) -> ReplicationMode:
    topic = cluster.image.topic(TOPIC)
    assert topic is not None
    return topic.partitions[index].mode


def records_of(cluster: SimulatedCluster, node_id: int) -> dict[int, int]:
    """Returns the numbers in the log by offset, without control records."""
    topic_id = cluster.image.topic_ids[TOPIC]
    partition = cluster.node(node_id).broker.partitions.get_by_id(topic_id, 0)
    assert partition is not None
    log = partition.log
    assert log is not None
    found: dict[int, int] = {}
    offset = log.log_start_offset
    while offset < log.end_offset:
        part = log.read(offset, bytes_max=1 << 20, bound=log.end_offset, at_least_one=True)
        assert part is not None
        data = memoryview(part.file.pread(part.size, part.position))
        for position, header in iterate_headers(data):
            if not header.is_control:
                for record in read_records(
                    data[position : position + header.size_bytes], bytes_max=1 << 20
                ):
                    found[record.offset] = int(record.value or b"")
            offset = header.last_offset + 1  # type: ignore[assignment]
    return found


async def reassign(client: ClusterClient, replicas: list[int] | None) -> None:
    request = AlterPartitionReassignmentsRequest(
        topics=[
            ReassignableTopic(
                name=TOPIC,
                partitions=[ReassignablePartition(partition_index=0, replicas=replicas)],
            )
        ]
    )
    response = await client.request(
        request, 1, AlterPartitionReassignmentsResponse, timeout_ms=20_000
    )
    assert response.responses[0].partitions[0].error_code == 0, response


def state_of(cluster: SimulatedCluster) -> PartitionState:
    topic = cluster.image.topic(TOPIC)
    assert topic is not None
    return topic.partitions[0]


def run(
    scenario: Callable[[SimulatedCluster, ClusterClient, Writer], Awaitable[None]],
    *,
    seed: int = 1,
    nodes: int = 3,
    **topic: str,
) -> None:
    cluster = SimulatedCluster(nodes=nodes, seed=seed)

    async def main() -> None:
        await cluster.start()
        client = cluster.client()
        await create(client, min_insync_replicas="2", retention_ms="-1", **topic)
        writer = Writer(cluster.client("writer"))
        work = asyncio.ensure_future(writer.run())
        await scenario(cluster, client, writer)
        writer.is_stopped = True
        await work
        await asyncio.sleep(2)
        check(cluster, writer)

    cluster.run(main())


def check(cluster: SimulatedCluster, writer: Writer) -> None:
    assert writer.acknowledged
    logs = {node_id: records_of(cluster, node_id) for node_id in state_of(cluster).replicas}
    leader = logs[cluster.leader_of(TOPIC, 0)]
    for offset, number in writer.acknowledged.items():
        assert leader.get(offset) == number, (offset, number, writer.errors)
    for node_id, log in logs.items():
        assert log == leader, node_id


async def wait_mode(cluster: SimulatedCluster, mode: ReplicationMode) -> None:
    await cluster.wait_for(lambda: mode_of(cluster) is mode, seconds=30)


@scenario(run)
async def test_mode_is_switched_back_and_forth_under_load(
    cluster: SimulatedCluster, client: ClusterClient, writer: Writer, /
) -> None:
    for mode in ("raft", "isr", "raft", "isr"):
        await asyncio.sleep(0.5)
        await switch(client, mode)
        await wait_mode(cluster, ReplicationMode[mode.upper()])
        await writer.wait_for_more(cluster)
    # Only NOT_LEADER_OR_FOLLOWER and NOT_ENOUGH_REPLICAS, which every client retries.
    assert set(writer.errors) <= {6, 19}, writer.errors
    assert sum(writer.errors.values()) < 20, writer.errors


@pytest.mark.parametrize("seed", range(3))
@scenario(run, replication_mode="raft")
async def test_killed_leader_in_raft_mode_is_replaced_by_the_voters(
    cluster: SimulatedCluster, client: ClusterClient, writer: Writer, /, seed: int
) -> None:
    await wait_mode(cluster, RAFT)
    await writer.wait_for_more(cluster)
    leader = cluster.leader_of(TOPIC, 0)
    cluster.kill(leader)
    await writer.wait_for_more(cluster)
    assert cluster.leader_of(TOPIC, 0) != leader
    await cluster.start(leader)
    await writer.wait_for_more(cluster)


def slow_fsyncs(cluster: SimulatedCluster, node_ids: list[int], *, delay_ms: int) -> None:
    """Delays every fsync of the topic's log; other files are not affected."""
    for node_id in node_ids:
        life = cluster.hosts[node_id].machine.life
        assert life is not None
        life.disk.faults.append(
            DiskFault(
                operation="fsync",
                effect="delay",
                delay_ms=delay_ms,
                path_part=f"/{TOPIC}-0/",
                times=1_000,
            )
        )


def clear_disk_faults(cluster: SimulatedCluster) -> None:
    for host in cluster.hosts.values():
        if host.machine.life is not None:
            host.machine.life.disk.faults.clear()


@pytest.mark.parametrize("seed", range(4))
@scenario(run, replication_mode="raft")
async def test_slow_disks_of_followers_cause_no_election(
    cluster: SimulatedCluster, client: ClusterClient, writer: Writer, /, seed: int
) -> None:
    """An fsync may take longer than the check-quorum timeout, because the followers still
    respond."""
    await wait_mode(cluster, RAFT)
    await writer.wait_for_more(cluster)
    before = state_of(cluster)
    followers = [node_id for node_id in before.replicas if node_id != before.leader]
    writer.errors.clear()
    slow_fsyncs(cluster, followers, delay_ms=4_500)
    await asyncio.sleep(30)
    clear_disk_faults(cluster)
    await writer.wait_for_more(cluster)
    after = state_of(cluster)
    assert (after.leader, after.leader_epoch) == (before.leader, before.leader_epoch)
    assert NOT_LEADER not in writer.errors, writer.errors


@scenario(run, replication_mode="raft")
async def test_idle_followers_are_reported_as_caught_up(
    cluster: SimulatedCluster, client: ClusterClient, writer: Writer, /
) -> None:
    await wait_mode(cluster, RAFT)
    await writer.wait_for_more(cluster)
    writer.is_stopped = True
    await asyncio.sleep(60)
    topic_id = cluster.image.topic_ids[TOPIC]
    leader = cluster.node(state_of(cluster).leader)
    partition = leader.broker.partitions.get_by_id(topic_id, 0)
    assert partition is not None
    statuses = partition.statuses()
    assert [status.lag for status in statuses] == [0, 0, 0]
    now_ms = leader.broker.clock.mono_ms()
    assert max(now_ms - status.last_caught_up_ms for status in statuses) < 3_000


@pytest.mark.parametrize("seed", range(2))
@scenario(run, replication_mode="raft")
async def test_leader_with_a_hanging_disk_resigns(
    cluster: SimulatedCluster, client: ClusterClient, writer: Writer, /, seed: int
) -> None:
    await wait_mode(cluster, RAFT)
    await writer.wait_for_more(cluster)
    before = state_of(cluster)
    slow_fsyncs(cluster, [before.leader], delay_ms=4_500)
    await cluster.wait_for(lambda: state_of(cluster).leader != before.leader, seconds=10)
    await writer.wait_for_more(cluster)
    clear_disk_faults(cluster)
    await asyncio.sleep(6)


@pytest.mark.parametrize("seed", range(2))
@scenario(run, replication_mode="raft")
async def test_dead_leader_is_replaced_while_a_disk_is_slow(
    cluster: SimulatedCluster, client: ClusterClient, writer: Writer, /, seed: int
) -> None:
    """The follower with the slow disk does not block the election of the other one."""
    await wait_mode(cluster, RAFT)
    await writer.wait_for_more(cluster)
    before = state_of(cluster)
    followers = [node_id for node_id in before.replicas if node_id != before.leader]
    slow_fsyncs(cluster, followers[:1], delay_ms=3_000)
    await asyncio.sleep(5)
    cluster.kill(before.leader)
    clear_disk_faults(cluster)
    await writer.wait_for_more(cluster)
    assert state_of(cluster).leader in followers
    await cluster.start(before.leader)
    await writer.wait_for_more(cluster)


@pytest.mark.parametrize("seed", range(3))
@scenario(run, replication_mode="raft")
async def test_raft_mode_survives_a_power_loss_of_all_nodes(
    cluster: SimulatedCluster, client: ClusterClient, writer: Writer, /, seed: int
) -> None:
    await wait_mode(cluster, RAFT)
    for _ in range(3):
        await writer.wait_for_more(cluster)
        for node_id in cluster.hosts:
            cluster.lose_power(node_id)
        await cluster.start()
        await writer.wait_for_more(cluster)


@pytest.mark.parametrize("seed", range(4))
@scenario(run)
async def test_mode_switch_survives_the_kill_of_its_leader(
    cluster: SimulatedCluster, client: ClusterClient, writer: Writer, /, seed: int
) -> None:
    for round_, mode in enumerate(("raft", "isr", "raft", "isr")):
        await writer.wait_for_more(cluster)
        await switch(client, mode)
        await asyncio.sleep(0.01 * (seed + 1) * (round_ + 1))
        leader = cluster.leader_of(TOPIC, 0)
        if leader >= 0:
            cluster.kill(leader)
            await writer.wait_for_more(cluster)
            await cluster.start(leader)
        await wait_mode(cluster, ReplicationMode[mode.upper()])
        await writer.wait_for_more(cluster)


@scenario(run)
async def test_mode_switch_that_cannot_complete_waits_and_can_be_cancelled(
    cluster: SimulatedCluster, client: ClusterClient, writer: Writer, /
) -> None:
    leader = cluster.leader_of(TOPIC, 0)
    others = [node_id for node_id in cluster.hosts if node_id != leader]
    cluster.pause(others[0])
    await switch(client, "raft")
    await asyncio.sleep(1)
    assert mode_of(cluster) is ReplicationMode.ENTERING
    await switch(client, "isr")
    await wait_mode(cluster, ISR)
    cluster.resume(others[0])
    await writer.wait_for_more(cluster)


@pytest.mark.parametrize("seed", range(2))
@scenario(run, nodes=4, replication_mode="raft")
async def test_reassignment_in_raft_mode_changes_one_voter_at_a_time(
    cluster: SimulatedCluster, client: ClusterClient, writer: Writer, /, seed: int
) -> None:
    await wait_mode(cluster, RAFT)
    await writer.wait_for_more(cluster)
    for target in ([2, 3, 4], [1, 4], [1, 2, 3]):
        await reassign(client, target)
        await cluster.wait_for(lambda: not is_reassigning(state_of(cluster)), seconds=30)
        assert set(state_of(cluster).replicas) == set(target)
        await writer.wait_for_more(cluster)
        for node_id in target:
            voters = voters_of(cluster, node_id)
            await cluster.wait_for(lambda: voters_of(cluster, node_id) == set(target))  # noqa: B023
            assert voters is not None


def voters_of(cluster: SimulatedCluster, node_id: int) -> set[int]:
    key = TopicIdPartition(cluster.image.topic_ids[TOPIC], 0)
    port = cluster.node(node_id).broker.replicas.raft.find(key)
    if port is None or port.modes.raft is None:
        return set()
    return set(port.modes.raft.core.voters.node_ids)


@scenario(run, replication_mode="raft")
async def test_raft_leader_hands_over_to_the_preferred_replica(
    cluster: SimulatedCluster, client: ClusterClient, writer: Writer, /
) -> None:
    await wait_mode(cluster, RAFT)
    first = state_of(cluster).replicas[0]
    cluster.kill(first)
    await cluster.wait_for(lambda: state_of(cluster).leader != first, seconds=30)
    await cluster.start(first)
    await writer.wait_for_more(cluster)
    request = ElectLeadersRequest(
        election_type=0,
        topic_partitions=[TopicPartitions(topic=TOPIC, partitions=[0])],
        timeout_ms=5000,
    )
    response = await client.request(request, 2, ElectLeadersResponse, timeout_ms=10_000)
    result = response.replica_election_results[0].partition_result[0]
    assert result.error_code == 0, result
    await cluster.wait_for(lambda: state_of(cluster).leader == first, seconds=30)
    await writer.wait_for_more(cluster)


@pytest.mark.parametrize("mode", ["isr", "raft"])
def test_administrator_can_choose_the_leader(mode: str) -> None:
    async def elect(client: ClusterClient, leader: int) -> int:
        request = ElectLeadersRequest(
            election_type=0,
            topic_partitions=[TopicPartitions(topic=TOPIC, partitions=[0])],
            timeout_ms=5000,
            leader=leader,
        )
        response = await client.request(request, 2, ElectLeadersResponse, timeout_ms=10_000)
        return response.replica_election_results[0].partition_result[0].error_code

    async def scenario(cluster: SimulatedCluster, client: ClusterClient, writer: Writer) -> None:
        await wait_mode(cluster, ReplicationMode[mode.upper()])
        await writer.wait_for_more(cluster)
        for leader in (3, 1, 2, 3):
            if state_of(cluster).leader == leader:
                assert await elect(client, leader) == ErrorCode.ELECTION_NOT_NEEDED
                continue
            assert await elect(client, leader) == 0
            # The response is sent after the election.
            assert state_of(cluster).leader == leader
            await writer.wait_for_more(cluster)
        assert await elect(client, 9) == ErrorCode.INVALID_REPLICA_ASSIGNMENT
        cluster.kill(1)
        await cluster.wait_for(lambda: cluster.image.brokers[1].fenced, seconds=30)
        assert await elect(client, 1) == ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE
        await cluster.start(1)

    run(scenario, replication_mode=mode)


@scenario(run, replication_mode="raft")
async def test_stopping_broker_hands_over_its_raft_partitions(
    cluster: SimulatedCluster, client: ClusterClient, writer: Writer, /
) -> None:
    await wait_mode(cluster, RAFT)
    await writer.wait_for_more(cluster)
    leader = state_of(cluster).leader
    before_ns = cluster.loop.now_ns
    await cluster.stop(leader)
    await cluster.wait_for(lambda: state_of(cluster).leader != leader, seconds=30)
    await writer.wait_for_more(cluster)
    assert cluster.loop.now_ns - before_ns < 3e9
    await cluster.start(leader)


@scenario(run, replication_mode="raft")
async def test_isr_of_a_raft_partition_shows_failed_replicas(
    cluster: SimulatedCluster, client: ClusterClient, writer: Writer, /
) -> None:
    """Even while no records are written: the ISR of a raft partition is informational."""
    await writer.wait_for_more(cluster)
    writer.is_stopped = True
    await cluster.wait_for(lambda: len(state_of(cluster).isr) == 3)
    failed = next(each for each in state_of(cluster).replicas if each != state_of(cluster).leader)
    cluster.kill(failed)
    await cluster.wait_for(lambda: failed not in state_of(cluster).isr, seconds=30)
    await cluster.start(failed)
    await cluster.wait_for(lambda: failed in state_of(cluster).isr, seconds=30)
