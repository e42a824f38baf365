"""Tests that replicas of a raft partition move between log dirs under load, elections and crashes:
each replica stays the same voter and keeps its votes."""

import asyncio

import pytest

from lograft.broker.replicas.raft_partition import RaftPartition
from lograft.broker.replicas.vote_journal import order_of
from lograft.consensus.types import HardState, VoterSet
from lograft.model.seams import Address
from lograft.model.types import NO_NODE, ReplicationMode, TopicIdPartition
from lograft.replication.raft_replica import RaftReplica
from lograft.simulation.cluster import SimulatedCluster
from lograft.simulation.disk import DiskFault
from lograft.simulation.hosts import Host
from lograft.simulation.routing import ClusterClient
from lograft.storage.log_dirs import MOVED_FROM, MOVING_TO
from lograft.wire.messages.alter_replica_log_dirs import (
    AlterReplicaLogDir,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirsResponse,
    AlterReplicaLogDirTopic,
)
from tests.simulation.test_mode_switch import (
    TOPIC,
    Writer,
    check,
    create,
    state_of,
    switch,
    wait_mode,
)
from tests.support.scenarios import run_in_simulated_cluster, scenario

DIRECTORIES = ("/data", "/other")
COPY = "-future"


async def move(client: ClusterClient, node_id: int, path: str) -> int:
    topic = AlterReplicaLogDirTopic(name=TOPIC, partitions=[0])
    response = await client.request_to(
        Address(f"n{node_id}", 9092),
        AlterReplicaLogDirsRequest(dirs=[AlterReplicaLogDir(path=path, topics=[topic])]),
        2,
        AlterReplicaLogDirsResponse,
        timeout_ms=10_000,
    )
    return response.results[0].partitions[0].error_code


def path_of(cluster: SimulatedCluster, node_id: int) -> str:
    partition = cluster.node(node_id).broker.partitions.get(TOPIC, 0)
    assert partition is not None
    assert partition.directory is not None
    return partition.directory.path


def other_path(cluster: SimulatedCluster, node_id: int) -> str:
    (target,) = {*DIRECTORIES} - {path_of(cluster, node_id)}
    return target


def raft_of(cluster: SimulatedCluster, node_id: int) -> RaftReplica | None:
    key = TopicIdPartition(cluster.image.topic_ids[TOPIC], 0)
    port = cluster.node(node_id).broker.replicas.raft.find(key)
    return None if port is None else port.modes.raft


def voters_in(cluster: SimulatedCluster, node_id: int) -> VoterSet | None:
    raft = raft_of(cluster, node_id)
    return None if raft is None else raft.core.voters


def have_voters_current_directories(cluster: SimulatedCluster) -> bool:
    """Returns whether the voters in every log and the metadata contain the replicas' log dirs."""
    state = state_of(cluster)
    directories = {}
    for node_id in state.replicas:
        partition = cluster.node(node_id).broker.partitions.get(TOPIC, 0)
        if partition is None or partition.directory is None:
            return False
        directories[node_id] = partition.directory.directory_id
    if dict(zip(state.replicas, state.directories, strict=True)) != directories:
        return False
    for node_id in state.replicas:
        voters = voters_in(cluster, node_id)
        if voters is None or dict(voter.key for voter in voters.voters) != directories:
            return False
    return True


async def wait_for_directories(cluster: SimulatedCluster) -> None:
    await cluster.wait_for(lambda: have_voters_current_directories(cluster), seconds=30)


class LeaderWatch:
    """Checks that each epoch has one leader, and that no replica reverts its persisted votes."""

    def __init__(self, cluster: SimulatedCluster) -> None:
        self._cluster = cluster
        self._key = TopicIdPartition(cluster.image.topic_ids[TOPIC], 0)
        self.of_epoch: dict[int, int] = {}
        self._persisted: dict[int, HardState] = {}
        self._task = asyncio.ensure_future(self._watch())

    async def _watch(self) -> None:
        while True:
            for node_id, node in self._cluster.nodes().items():
                self._check_replica(node_id, node.broker.replicas.raft.find(self._key))
            await asyncio.sleep(0.005)

    def _check_replica(self, node_id: int, port: RaftPartition | None) -> None:
        if port is None:
            return
        raft, persisted = port.modes.raft, port.modes.journal
        before = self._persisted.get(node_id, persisted)
        assert order_of(before) <= order_of(persisted), (node_id, before, persisted)
        self._persisted[node_id] = persisted
        if raft is not None and raft.core.is_leader:
            leader = self.of_epoch.setdefault(raft.core.epoch, node_id)
            assert leader == node_id, (raft.core.epoch, leader, node_id)

    def check(self) -> None:
        assert self.of_epoch
        if self._task.done():
            self._task.result()
        self._task.cancel()


async def start_writing(
    cluster: SimulatedCluster, *, replicas: int = 3, **topic: str
) -> tuple[ClusterClient, Writer, "asyncio.Future[None]"]:
    await cluster.start()
    client = cluster.client()
    await create(client, replicas, retention_ms="-1", replication_mode="raft", **topic)
    await wait_mode(cluster, ReplicationMode.RAFT)
    writer = Writer(cluster.client("writer"))
    work = asyncio.ensure_future(writer.run())
    await writer.wait_for_more(cluster)
    return client, writer, work


async def lose_power_everywhere_and_check(
    cluster: SimulatedCluster, writer: Writer, work: "asyncio.Future[None]"
) -> None:
    for each in cluster.hosts:
        cluster.lose_power(each)
    await cluster.start()
    await writer.wait_for_more(cluster)
    await wait_for_directories(cluster)
    writer.is_stopped = True
    await work
    await asyncio.sleep(3)
    check(cluster, writer)


@pytest.mark.parametrize("seed", range(3))
@scenario(run_in_simulated_cluster, nodes=3, properties={"log.dirs": ",".join(DIRECTORIES)})
async def test_replicas_move_back_and_forth_under_load(
    cluster: SimulatedCluster, /, seed: int
) -> None:
    client, writer, work = await start_writing(cluster, min_insync_replicas="2")
    leader = state_of(cluster).leader
    epoch = state_of(cluster).leader_epoch
    for _ in range(2):
        for node_id in (1, 2, 3):
            target = other_path(cluster, node_id)
            assert await move(client, node_id, target) == 0
            await cluster.wait_for(
                lambda node_id=node_id, target=target: path_of(cluster, node_id) == target,
                seconds=30,
            )
            await writer.wait_for_more(cluster)
            await wait_for_directories(cluster)
    # A move causes no election, not even that of the leader's replica.
    assert (state_of(cluster).leader, state_of(cluster).leader_epoch) == (leader, epoch)
    await lose_power_everywhere_and_check(cluster, writer, work)


@pytest.mark.parametrize("seed", range(6))
@scenario(run_in_simulated_cluster, nodes=3, properties={"log.dirs": ",".join(DIRECTORIES)})
async def test_move_survives_a_crash(cluster: SimulatedCluster, /, seed: int) -> None:
    """The moving node dies after a number of disk operations; leaders are killed in between."""
    client, writer, work = await start_writing(cluster, min_insync_replicas="2")
    leaders = LeaderWatch(cluster)
    for node_id in (1, 2, 3):
        client = cluster.client(f"before {node_id}")
        target = other_path(cluster, node_id)
        assert await move(client, node_id, target) == 0
        host = cluster.hosts[node_id]
        starts = host.starts
        host.crash_after(2 + 4 * seed + node_id, "power" if seed % 2 else "kill")
        if seed % 3 == 0:
            # Causes an election while the replica moves, or while its node is down.
            leader = state_of(cluster).leader
            if leader not in (node_id, NO_NODE):
                await asyncio.sleep(0.05 * (seed % 5))
                cluster.kill(leader)
                await asyncio.sleep(0.3)
                await cluster.start(leader)
        await cluster.wait_for(lambda h=host, s=starts: h.starts > s, seconds=30)
        await cluster.wait_serving(node_id)
        await writer.wait_for_more(cluster)
        if path_of(cluster, node_id) != target:
            # The folder of the copy, which records the move, may not have been durable yet.
            client = cluster.client(f"after {node_id}")
            assert await move(client, node_id, target) == 0
        await cluster.wait_for(lambda n=node_id, t=target: path_of(cluster, n) == t, seconds=30)
        await writer.wait_for_more(cluster)
    await lose_power_everywhere_and_check(cluster, writer, work)
    leaders.check()


@pytest.mark.parametrize("seed", range(2))
@scenario(run_in_simulated_cluster, nodes=3, properties={"log.dirs": ",".join(DIRECTORIES)})
async def test_replica_moved_in_isr_mode_votes_with_its_new_directory(
    cluster: SimulatedCluster, /, seed: int
) -> None:
    client, writer, work = await start_writing(cluster, min_insync_replicas="2")
    await switch(client, "isr")
    await wait_mode(cluster, ReplicationMode.ISR)
    for node_id in (1, 2, 3):
        target = other_path(cluster, node_id)
        assert await move(client, node_id, target) == 0
        await cluster.wait_for(lambda n=node_id, t=target: path_of(cluster, n) == t, seconds=30)
    await switch(client, "raft")
    await wait_mode(cluster, ReplicationMode.RAFT)
    await writer.wait_for_more(cluster)
    await lose_power_everywhere_and_check(cluster, writer, work)


def crash_from(host: Host, folder: str, path: str, operations: int, kind: str) -> None:
    """Schedules a crash a number of disk operations after the first rename of such a path; for the
    copy, after the rename that gives it the name of the log."""
    life = host.machine.life
    assert life is not None
    disk = life.disk

    def arm() -> bool:
        if disk.crash is None and (path != COPY or disk.exists(f"{folder}/{MOVING_TO}")):
            host.crash_after(operations, kind)
        return False

    fault = DiskFault(operation="rename", path_part=path, times=1_000, is_allowed=arm)
    disk.faults.append(fault)


@pytest.mark.parametrize("path", [MOVED_FROM, MOVING_TO, COPY])
@pytest.mark.parametrize("operations", range(1, 7))
def test_move_survives_a_crash_at_every_step_of_the_swap(operations: int, path: str) -> None:
    """From the first record of the copy's origin to the deletion of the source, for a follower and
    for the leader; afterwards all nodes lose power."""
    kind = "power" if operations % 2 else "kill"
    cluster = SimulatedCluster(
        nodes=3, seed=operations, properties={"log.dirs": ",".join(DIRECTORIES)}
    )

    async def main() -> None:
        _, writer, work = await start_writing(cluster, min_insync_replicas="2")
        leaders = LeaderWatch(cluster)
        for is_leader in (False, True):
            state = state_of(cluster)
            node_id = next(node for node in state.replicas if (node == state.leader) is is_leader)
            host, target = cluster.hosts[node_id], other_path(cluster, node_id)
            starts = host.starts
            folder = f"{path_of(cluster, node_id)}/{TOPIC}-0"
            crash_from(host, folder, path, operations, kind)
            client = cluster.client(f"moves {node_id}")
            assert await move(client, node_id, target) == 0
            await cluster.wait_for(lambda h=host, s=starts: h.starts > s, seconds=30)
            await cluster.wait_serving(node_id)
            await writer.wait_for_more(cluster)
            if path_of(cluster, node_id) != target:
                client = cluster.client(f"moves {node_id} again")
                assert await move(client, node_id, target) == 0
            await cluster.wait_for(lambda n=node_id, t=target: path_of(cluster, n) == t, seconds=30)
            await writer.wait_for_more(cluster)
        await lose_power_everywhere_and_check(cluster, writer, work)
        leaders.check()

    cluster.run(main())


@pytest.mark.parametrize("seed", range(6))
@scenario(run_in_simulated_cluster, nodes=3, properties={"log.dirs": ",".join(DIRECTORIES)})
async def test_election_while_a_replica_is_being_swapped(
    cluster: SimulatedCluster, /, seed: int
) -> None:
    """The rename of the copy is slow, and the leader dies in that time: the other replicas elect a
    leader, and the moved replica votes or follows afterwards."""
    client, writer, work = await start_writing(cluster, min_insync_replicas="2")
    leaders = LeaderWatch(cluster)
    state = state_of(cluster)
    followers = [node for node in state.replicas if node != state.leader]
    node_id = followers[seed % 2] if seed < 4 else state.leader
    life = cluster.hosts[node_id].machine.life
    assert life is not None
    path = (MOVING_TO, "-future", "raft-votes")[seed % 3]
    life.disk.faults.append(
        DiskFault(operation="rename", effect="delay", delay_ms=3_000, path_part=path)
    )
    target = other_path(cluster, node_id)
    assert await move(client, node_id, target) == 0
    await asyncio.sleep(0.2)
    if node_id != state.leader:
        cluster.kill(state.leader)
    else:
        cluster.kill(followers[0])
    await cluster.wait_for(lambda: path_of(cluster, node_id) == target, seconds=30)
    await writer.wait_for_more(cluster)
    for each in cluster.hosts:
        if not cluster.hosts[each].is_up:
            await cluster.start(each)
    await writer.wait_for_more(cluster)
    await lose_power_everywhere_and_check(cluster, writer, work)
    leaders.check()


@pytest.mark.parametrize("is_leader", [False, True])
@scenario(run_in_simulated_cluster, nodes=3, seed=5, properties={"log.dirs": ",".join(DIRECTORIES)})
async def test_disk_failure_during_the_swap_takes_the_replica_offline(
    cluster: SimulatedCluster, /, is_leader: bool
) -> None:
    """The next start decides which folder is the replica; the other replicas continue."""
    client, writer, work = await start_writing(cluster, min_insync_replicas="2")
    leaders = LeaderWatch(cluster)
    state = state_of(cluster)
    node_id = next(node for node in state.replicas if (node == state.leader) is is_leader)
    host, source = cluster.hosts[node_id], path_of(cluster, node_id)
    partition, life = cluster.node(node_id).broker.partitions.get(TOPIC, 0), host.machine.life
    assert partition is not None
    assert life is not None
    disk = life.disk

    def is_in_swap() -> bool:
        return disk.exists(f"{source}/{TOPIC}-0/{MOVING_TO}")

    fault = DiskFault(operation="rename", path_part=COPY, times=100, is_allowed=is_in_swap)
    disk.faults.append(fault)
    assert await move(client, node_id, other_path(cluster, node_id)) == 0
    await cluster.wait_for(lambda: partition.offline, seconds=30)
    await writer.wait_for_more(cluster)
    await lose_power_everywhere_and_check(cluster, writer, work)
    leaders.check()


@pytest.mark.parametrize("seed", range(2))
@scenario(run_in_simulated_cluster, nodes=1, properties={"log.dirs": ",".join(DIRECTORIES)})
async def test_single_replica_moves(cluster: SimulatedCluster, /, seed: int) -> None:
    client, writer, work = await start_writing(cluster, replicas=1)
    for _ in range(3):
        target = other_path(cluster, 1)
        assert await move(client, 1, target) == 0
        await cluster.wait_for(lambda t=target: path_of(cluster, 1) == t, seconds=30)
        await writer.wait_for_more(cluster)
    await lose_power_everywhere_and_check(cluster, writer, work)


@scenario(run_in_simulated_cluster, nodes=1, seed=1, properties={"log.dirs": ",".join(DIRECTORIES)})
async def test_existing_target_folder_fails_only_the_move(cluster: SimulatedCluster, /) -> None:
    client, writer, work = await start_writing(cluster, replicas=1)
    target = other_path(cluster, 1)
    life = cluster.hosts[1].machine.life
    assert life is not None
    life.disk.make_dir(f"{target}/{TOPIC}-0")
    moves = cluster.node(1).broker.moves.moves
    assert await move(client, 1, target) == 0
    await cluster.wait_for(lambda: not moves, seconds=30)
    assert path_of(cluster, 1) != target
    await writer.wait_for_more(cluster)
    writer.is_stopped = True
    await work
    check(cluster, writer)
