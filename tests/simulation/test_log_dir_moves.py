"""A replica of a raft partition changes its log dir: the log dir is part of a voter's identity, so
it leaves raft mode, moves, and enters again, under load and with crashes on the way."""

import asyncio

import pytest

from lograft.model.errors import ErrorCode
from lograft.model.seams import Address
from lograft.model.types import ReplicationMode
from lograft.simulation.cluster import SimulatedCluster
from lograft.simulation.routing import ClusterClient
from lograft.wire.messages.alter_replica_log_dirs import (
    AlterReplicaLogDir,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirsResponse,
    AlterReplicaLogDirTopic,
)
from tests.simulation.test_mode_switch import TOPIC, Writer, check, create, switch, wait_mode

DIRECTORIES = ("/data", "/other")


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


@pytest.mark.parametrize("seed", range(4))
def test_a_raft_replica_moves_by_way_of_isr_mode(seed: int) -> None:
    cluster = SimulatedCluster(nodes=3, seed=seed, properties={"log.dirs": ",".join(DIRECTORIES)})

    async def main() -> None:
        await cluster.start()
        client = cluster.client()
        await create(client, min_insync_replicas="2", retention_ms="-1", replication_mode="raft")
        await wait_mode(cluster, ReplicationMode.raft)
        writer = Writer(cluster.client("writer"))
        work = asyncio.ensure_future(writer.run())
        await writer.wait_for_more(cluster)
        node_id = 1 + seed % 3
        (target,) = {*DIRECTORIES} - {path_of(cluster, node_id)}
        assert await move(client, node_id, target) == ErrorCode.invalid_replica_assignment
        await switch(client, "isr")
        await wait_mode(cluster, ReplicationMode.isr)
        assert await move(client, node_id, target) == 0
        # Some of them while it moves, some when it has arrived.
        host = cluster.hosts[node_id]
        starts = host.starts
        loses_power = seed % 2 == 1
        host.crash_after(5 + 12 * seed, "power" if loses_power else "kill")
        await cluster.wait_for(lambda: host.starts > starts, seconds=10)
        await cluster.wait_serving(node_id)
        if loses_power:
            # The folder of the copy, which records the move, may not have been on disk yet.
            client = cluster.client("after the power loss")
            assert await move(client, node_id, target) == 0
        await cluster.wait_for(lambda: path_of(cluster, node_id) == target, seconds=30)
        await switch(client, "raft")
        await wait_mode(cluster, ReplicationMode.raft)
        await writer.wait_for_more(cluster)
        for each in cluster.hosts:
            cluster.lose_power(each)
        await cluster.start()
        await writer.wait_for_more(cluster)
        assert path_of(cluster, node_id) == target
        writer.is_stopped = True
        await work
        await asyncio.sleep(3)
        check(cluster, writer)

    cluster.run(main())
