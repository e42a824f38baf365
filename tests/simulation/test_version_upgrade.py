"""Tests of upgrading kraft.version from 0 to 1 while the leader fails: all controllers have the old
level or all have the new one, and afterwards the voters can be changed."""

import asyncio

import pytest

from lograft.broker.quorum.raft_driver import RaftDriver
from lograft.broker.quorum.snapshots import Quorum, read_snapshot
from lograft.consensus.messages import AddVoterRequest, Error, RemoveVoterRequest
from lograft.model.errors import ErrorCode
from lograft.model.types import ZERO_UUID, NodeId
from lograft.simulation.cluster import SimulatedCluster
from lograft.wire.messages.update_features import (
    FeatureUpdateKey,
    UpdateFeaturesRequest,
    UpdateFeaturesResponse,
)
from tests.support.scenarios import run_in_simulated_cluster, scenario

pytestmark = pytest.mark.simulation

#: Frequent snapshots, after which the log below them is deleted immediately.
SHORT_LOG = {
    "metadata.log.max.record.bytes.between.snapshots": "300",
    "metadata.max.retention.bytes": "100",
    "internal.metadata.log.segment.bytes": "400",
    "internal.metadata.delete.delay.millis": "1",
}


def driver(cluster: SimulatedCluster, node_id: int) -> RaftDriver:
    quorum = cluster.node(node_id).shared.quorum
    assert isinstance(quorum, RaftDriver)
    return quorum


def leader_of(cluster: SimulatedCluster) -> RaftDriver:
    return driver(cluster, cluster.controller_id)


def agreed_quorum(cluster: SimulatedCluster) -> Quorum | None:
    """Returns the committed level and voters if all nodes have the same, without uncommitted
    changes."""
    drivers = [driver(cluster, node_id) for node_id in cluster.nodes()]
    first = drivers[0].quorum
    is_agreed = len(drivers) == 3 and all(
        each.quorum == first and each.voters == first.voters for each in drivers
    )
    return first if is_agreed and cluster.controller_id in cluster.nodes() else None


async def upgrade_level(cluster: SimulatedCluster, *, validate_only: bool = False) -> ErrorCode:
    request = UpdateFeaturesRequest(
        timeout_ms=10_000,
        feature_updates=[
            FeatureUpdateKey(feature="kraft.version", max_version_level=1, upgrade_type=1),
            FeatureUpdateKey(feature="transaction.version", max_version_level=1, upgrade_type=2),
        ],
        validate_only=validate_only,
    )
    response = await cluster.client().request(request, 2, UpdateFeaturesResponse, timeout_ms=20_000)
    return ErrorCode(response.error_code)


async def upgrade_with_retries(cluster: SimulatedCluster) -> None:
    """Retries the upgrade, because a leader may not have the descriptions of all voters yet, and
    may change."""
    async with asyncio.timeout(60):
        while await upgrade_level(cluster) is not ErrorCode.NONE:
            await asyncio.sleep(0.2)


def knows_all_voters(cluster: SimulatedCluster) -> bool:
    leadership = leader_of(cluster).core.leadership
    return leadership is not None and len(leadership.descriptions) == 2


async def change_voters(cluster: SimulatedCluster) -> None:
    """Removes a voter and adds it again; the static voters in the settings are ignored."""
    await cluster.wait_for(lambda: cluster.controller_id in cluster.nodes())
    leader = leader_of(cluster)
    removed = next(node_id for node_id in cluster.hosts if node_id != cluster.controller_id)
    voter = leader.voters.find(NodeId(removed))
    assert voter is not None
    for request in (RemoveVoterRequest(key=voter.key), AddVoterRequest(voter=voter)):
        async with asyncio.timeout(60):
            while (await leader.ask(request)).error is Error.CHANGE_IN_PROGRESS:
                await asyncio.sleep(0.1)
    await cluster.wait_for(lambda: agreed_quorum(cluster) is not None)
    assert leader.quorum.voters.node_ids[-1] == removed


@scenario(run_in_simulated_cluster, nodes=3, seed=1, is_static=True, properties=SHORT_LOG)
async def test_upgraded_quorum_keeps_its_level_after_a_restart(
    cluster: SimulatedCluster, /
) -> None:
    await cluster.start()
    assert leader_of(cluster).voters.is_static
    await cluster.wait_for(lambda: knows_all_voters(cluster))
    assert await upgrade_level(cluster, validate_only=True) is ErrorCode.NONE
    assert leader_of(cluster).quorum.kraft_version == 0
    assert cluster.image.features["transaction.version"] == 2
    assert await upgrade_level(cluster) is ErrorCode.NONE
    assert leader_of(cluster).quorum.kraft_version == 1
    assert cluster.image.features["transaction.version"] == 1
    await cluster.wait_for(lambda: (q := agreed_quorum(cluster)) and q.kraft_version == 1)
    voters = leader_of(cluster).voters
    assert sorted(voters.node_ids) == [1, 2, 3]
    for voter in voters.voters:
        quorum = driver(cluster, voter.key.node_id)
        assert voter.key == quorum.me
        assert voter.key.directory_id != ZERO_UUID
        assert voter.endpoints == quorum.endpoints
    assert await upgrade_level(cluster) is ErrorCode.NONE
    # Snapshots replace the records of the upgrade.
    end = leader_of(cluster).log.end_offset
    for node_id in cluster.hosts:
        await cluster.wait_for(lambda i=node_id: driver(cluster, i).log.log_start_offset > end)
        quorum = driver(cluster, node_id)
        assert quorum.snapshot_id is not None
        disk = quorum._runtime.disk
        assert read_snapshot(disk, quorum._folder, quorum.snapshot_id).quorum == quorum.quorum
    for node_id in cluster.hosts:
        await cluster.stop(node_id)
    await cluster.start()
    assert (leader_of(cluster).quorum.kraft_version, leader_of(cluster).voters) == (1, voters)
    await change_voters(cluster)


@pytest.mark.parametrize("fault", ["kill", "power", "cut"])
@pytest.mark.parametrize("seed", range(8))
@scenario(run_in_simulated_cluster, nodes=3, is_static=True)
async def test_upgrade_is_atomic_if_the_leader_fails(
    cluster: SimulatedCluster, /, seed: int, fault: str
) -> None:
    await cluster.start()
    await cluster.wait_for(lambda: knows_all_voters(cluster))
    old = cluster.controller_id
    upgrade = asyncio.ensure_future(upgrade_level(cluster))
    # The leader fails before the request, between its append and its commit, or after it.
    if seed % 2:
        quorum = driver(cluster, old)
        while quorum.voters.is_static:
            await asyncio.sleep(0.0001)
    await asyncio.sleep((seed // 2) * 0.001)
    is_known = driver(cluster, old).quorum.kraft_version == 1
    if fault == "cut":
        cluster.isolate(old)
        await asyncio.sleep(5)
        cluster.heal()
    else:
        (cluster.kill if fault == "kill" else cluster.lose_power)(old)
        await asyncio.sleep(1)
        await cluster.start(old)
    await cluster.wait_for(lambda: agreed_quorum(cluster) is not None)
    quorum_now = agreed_quorum(cluster)
    assert quorum_now is not None
    assert sorted(quorum_now.voters.node_ids) == [1, 2, 3]
    assert quorum_now.voters.is_static == (quorum_now.kraft_version == 0)
    if is_known:
        assert quorum_now.kraft_version == 1
    upgrade.cancel()
    await upgrade_with_retries(cluster)
    await cluster.wait_for(lambda: (q := agreed_quorum(cluster)) and q.kraft_version == 1)
    await change_voters(cluster)


@scenario(run_in_simulated_cluster, nodes=3, seed=5, is_static=True)
async def test_upgrade_is_rejected_without_the_descriptions_of_all_voters(
    cluster: SimulatedCluster, /
) -> None:
    await cluster.start()
    leader = leader_of(cluster)
    assert leader.core.leadership is not None
    leader.core.leadership.descriptions.clear()
    for validate_only in (True, False):
        code = await upgrade_level(cluster, validate_only=validate_only)
        assert code is ErrorCode.INVALID_UPDATE_VERSION
    assert leader.quorum.kraft_version == 0
    assert cluster.image.features["transaction.version"] == 2
    # Voters send their descriptions to every new leader.
    await cluster.stop(cluster.controller_id)
    await cluster.start()
    await cluster.wait_for(lambda: knows_all_voters(cluster))
    await upgrade_with_retries(cluster)
