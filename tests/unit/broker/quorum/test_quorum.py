"""The metadata quorum of several nodes: elections, failover, followers, snapshots, voters."""

import asyncio
from random import Random

import pytest

from lograft.broker.errors import NotController
from lograft.broker.quorum.raft_driver import LOG_START, RaftDriver
from lograft.consensus.messages import (
    AddVoterRequest,
    Error,
    FetchResponse,
    RemoveVoterRequest,
)
from lograft.consensus.types import LogEnd, Voter, VoterEndpoint
from lograft.metadata.image import MetadataImage
from lograft.model.metrics import value_of
from lograft.model.types import Epoch, NodeId, Offset
from lograft.simulation.errors import InvariantViolated
from lograft.testing import VirtualCluster
from lograft.wire.records.config_record import ConfigRecord
from tests.support.scenarios import run_in_virtual_cluster, scenario
from tests.unit.broker.quorum.metadata_nodes import decision

#: Frequent snapshots, after which the log before them is deleted immediately.
SHORT_LOG = {
    "metadata.log.max.record.bytes.between.snapshots": "300",
    "metadata.max.retention.bytes": "100",
    "internal.metadata.log.segment.bytes": "400",
    "internal.metadata.delete.delay.millis": "1",
}


def driver(cluster: VirtualCluster, node_id: int) -> RaftDriver:
    quorum = cluster.node(node_id).shared.quorum
    assert isinstance(quorum, RaftDriver)
    return quorum


def image(cluster: VirtualCluster, node_id: int) -> MetadataImage:
    return cluster.node(node_id).shared.image


def setting(name: str) -> ConfigRecord:
    return ConfigRecord(resource_type=4, resource_name="", name=name, value="1")


async def submit(cluster: VirtualCluster, node_id: int, *names: str) -> None:
    """A decision by the node's controller; NotController if it is not active."""
    controller = cluster.node(node_id).shared.local_controller
    assert controller is not None
    await controller.submit(decision(*map(setting, names)))


async def decide(cluster: VirtualCluster, name: str) -> None:
    """Retries with the active controller until it is committed."""
    while True:
        if cluster.controller_id in cluster.nodes():
            try:
                # A node that dies in the meantime does not respond.
                async with asyncio.timeout(2):
                    return await submit(cluster, cluster.controller_id, name)
            except (NotController, TimeoutError):
                pass
        await asyncio.sleep(0.05)


def settings_of(cluster: VirtualCluster, node_id: int) -> set[str]:
    """Metric names of these tests; real ones contain dots."""
    return {name for name in image(cluster, node_id).config_of(4, "") if "." not in name}


def others(cluster: VirtualCluster, node_id: int) -> list[int]:
    return [each for each in cluster.hosts if each != node_id]


@pytest.mark.parametrize("is_static", [False, True])
@scenario(run_in_virtual_cluster, nodes=3, seed=11)
async def test_three_controllers_have_one_leader_and_the_same_image(
    cluster: VirtualCluster, /, is_static: bool
) -> None:
    for number in range(5):
        await decide(cluster, f"n{number}")
    leader = cluster.controller_id
    assert [driver(cluster, each).is_leader for each in cluster.hosts].count(True) == 1
    end = driver(cluster, leader).log.end_offset
    await cluster.wait_for(
        lambda: all(driver(cluster, each).delivered_end >= end for each in cluster.hosts)
    )
    first = image(cluster, 1)
    assert all(image(cluster, each) == first for each in cluster.hosts)
    # The leader learns of the last follower's end with its next fetch.
    await cluster.wait_for(
        lambda: all(view.end_offset >= end for view in driver(cluster, leader).replicas())
    )
    views = driver(cluster, leader).replicas()
    assert sorted(view.key.node_id for view in views) == [1, 2, 3]
    assert all(view.is_voter for view in views)
    assert driver(cluster, others(cluster, leader)[0]).replicas() == []


@pytest.mark.parametrize("seed", range(5))
def test_a_dead_leader_is_replaced_long_before_any_timeout(seed: int) -> None:
    async def scenario(cluster: VirtualCluster) -> None:
        await decide(cluster, "before")
        old = cluster.controller_id
        began = cluster.loop.time()
        cluster.kill(old)
        await decide(cluster, "after")
        assert cluster.controller_id != old
        # One slot is a tenth of the election timeout of 2 s; the fetch timeout is 4 s.
        assert cluster.loop.time() - began < 0.8
        await cluster.start(old)
        await cluster.wait_for(lambda: settings_of(cluster, old) == {"before", "after"})
        assert not driver(cluster, old).is_leader

    slow = {
        "controller.quorum.election.timeout.ms": "2000",
        "controller.quorum.fetch.timeout.ms": "4000",
    }
    VirtualCluster(nodes=3, seed=seed, properties=slow).play(scenario)


@scenario(run_in_virtual_cluster, nodes=3, seed=4)
async def test_a_stopping_leader_hands_over(cluster: VirtualCluster, /) -> None:
    await decide(cluster, "before")
    old = cluster.controller_id
    epoch = driver(cluster, old).epoch
    decisions = [asyncio.ensure_future(submit(cluster, old, f"n{i}")) for i in range(5)]
    await asyncio.sleep(0.001)
    await cluster.stop(old)
    # Decisions are committed first: the outcome is known.
    for outcome in await asyncio.gather(*decisions, return_exceptions=True):
        assert outcome is None or "may or may not" not in str(outcome)
    assert None in [each.exception() for each in decisions]
    began = cluster.loop.time()
    await decide(cluster, "after")
    assert cluster.loop.time() - began < 0.5
    assert driver(cluster, cluster.controller_id).epoch == epoch + 1


@pytest.mark.parametrize("seed", range(3))
@scenario(run_in_virtual_cluster, nodes=3)
async def test_what_a_cut_off_leader_wrote_is_cut_away_and_its_waiters_hear_of_it(
    cluster: VirtualCluster, /, seed: int
) -> None:
    async def decide_elsewhere(cluster: VirtualCluster, old: int) -> None:
        while True:
            for node_id in others(cluster, old):
                try:
                    return await submit(cluster, node_id, "elsewhere")
                except NotController:
                    await asyncio.sleep(0.05)

    await decide(cluster, "before")
    old = cluster.controller_id
    quorum = driver(cluster, old)
    cluster.isolate(old)
    lost = asyncio.ensure_future(submit(cluster, old, "lost"))
    await decide_elsewhere(cluster, old)
    with pytest.raises(NotController, match="may or may not"):
        await lost
    with pytest.raises(NotController, match="not the active"):
        await submit(cluster, old, "refused")
    assert quorum.log.end_offset > quorum.high_watermark
    cluster.heal()
    await cluster.wait_for(lambda: settings_of(cluster, old) == {"before", "elsewhere"})
    assert quorum.log.truncations > 0


@pytest.mark.parametrize("seed", range(3))
@scenario(run_in_virtual_cluster, nodes=3, properties=SHORT_LOG)
async def test_a_node_that_was_away_for_long_gets_a_snapshot(
    cluster: VirtualCluster, /, seed: int
) -> None:
    await decide(cluster, "first")
    away = others(cluster, cluster.controller_id)[0]
    cluster.isolate(away)
    end = driver(cluster, away).log.end_offset
    for number in range(30):
        await decide(cluster, f"n{number}")
    leader = cluster.controller_id
    assert driver(cluster, leader).log.log_start_offset > end
    assert value_of(driver(cluster, leader), LOG_START) > end
    cluster.heal()
    expected = settings_of(cluster, leader)
    await cluster.wait_for(lambda: settings_of(cluster, away) == expected)
    assert driver(cluster, away).log.log_start_offset > end
    # It is on disk: the next process starts with it.
    cluster.lose_power(away)
    await cluster.start(away)
    await cluster.wait_for(lambda: settings_of(cluster, away) == expected)


@pytest.mark.parametrize("is_static", [False, True])
def test_brokers_observe_and_start_again_from_their_own_snapshot(is_static: bool) -> None:
    roles = ["controller", "controller", "controller", "broker", "broker"]

    async def scenario(cluster: VirtualCluster) -> None:
        for number in range(20):
            await decide(cluster, f"n{number}")
        assert driver(cluster, 4).is_observer
        assert cluster.node(4).shared.local_controller is None
        leader = driver(cluster, cluster.controller_id)
        views = leader.replicas()
        assert sorted(each.key.node_id for each in views if each.is_voter) == [1, 2, 3]
        assert sorted(each.key.node_id for each in views if not each.is_voter) == [4, 5]
        await cluster.wait_for(lambda: driver(cluster, 4).snapshot_id is not None)
        snapshot = driver(cluster, 4).snapshot_id
        assert snapshot is not None
        cluster.kill(4)
        await cluster.start(4)
        assert driver(cluster, 4).log.log_start_offset >= snapshot.end_offset
        assert len(settings_of(cluster, 4)) == 20
        # The leader stops, and the observers find the next one.
        cluster.kill(cluster.controller_id)
        await decide(cluster, "after")
        for node_id in (4, 5):
            await cluster.wait_for(lambda i=node_id: "after" in settings_of(cluster, i))

    VirtualCluster(nodes=5, seed=2, roles=roles, is_static=is_static, properties=SHORT_LOG).play(
        scenario
    )


def test_a_node_stops_rather_than_undo_what_is_committed() -> None:
    async def scenario(cluster: VirtualCluster) -> None:
        await decide(cluster, "committed")
        victim = others(cluster, cluster.controller_id)[0]
        quorum = driver(cluster, victim)
        await cluster.wait_for(lambda: "committed" in settings_of(cluster, victim))
        await cluster.wait_for(lambda: is_asking(quorum))
        fetcher = quorum.core.fetcher
        assert fetcher is not None
        assert fetcher.in_flight is not None
        # A response that only a leader without its log could send.
        quorum._on_response(
            FetchResponse(
                sender=quorum.leader,
                epoch=quorum.epoch,
                leader=quorum.leader,
                high_watermark=Offset(1),
                diverging=LogEnd(Epoch(0), Offset(0)),
                request_id=fetcher.in_flight,
            )
        )
        end = quorum.log.end_offset
        await cluster.wait_for(lambda: victim not in cluster.nodes())
        assert quorum.log.end_offset == end

    def is_asking(quorum: RaftDriver) -> bool:
        return quorum.core.fetcher is not None and quorum.core.fetcher.in_flight is not None

    with pytest.raises(InvariantViolated, match="CommittedAtRisk"):
        VirtualCluster(nodes=3, seed=8).play(scenario)


@scenario(run_in_virtual_cluster, nodes=4, seed=5)
async def test_voters_come_and_go(cluster: VirtualCluster, /) -> None:
    """Node 4 was formatted with the voters 1 to 4; it is removed and added again."""
    await decide(cluster, "before")
    leader = driver(cluster, cluster.controller_id)
    gone = others(cluster, cluster.controller_id)[0]
    known = leader.voters.find(driver(cluster, gone).me.node_id)
    assert known is not None
    answer = await leader.ask(RemoveVoterRequest(key=known.key))
    assert answer.error is Error.NONE
    assert leader.quorum.voters.find(known.key.node_id) is None
    await cluster.wait_for(lambda: driver(cluster, gone).is_observer)
    await decide(cluster, "without")
    await cluster.wait_for(lambda: "without" in settings_of(cluster, gone))
    answer = await leader.ask(RemoveVoterRequest(key=known.key))
    assert answer.error is Error.VOTER_NOT_FOUND
    back = Voter(known.key, (VoterEndpoint("CONTROLLER", f"n{gone}", 9093),))
    answer = await leader.ask(AddVoterRequest(voter=back))
    assert answer.error is Error.NONE
    assert leader.quorum.voters.node_ids[-1] == gone
    # The controller's image counts the offsets of the quorum's own records.
    await decide(cluster, "again")
    cluster.kill(cluster.controller_id)
    await decide(cluster, "after")


def test_a_controller_joins_by_itself_and_again_with_another_disk() -> None:
    async def scenario(cluster: VirtualCluster) -> None:
        await decide(cluster, "before")
        await cluster.wait_for(lambda: not driver(cluster, 4).is_observer)
        await cluster.wait_for(lambda: "before" in settings_of(cluster, 4))
        voters = driver(cluster, cluster.controller_id).quorum.voters
        assert voters.node_ids == (1, 2, 3, 4)
        joined = voters.voters[-1]
        assert joined.endpoints == (VoterEndpoint("CONTROLLER", "n4", 9093),)
        await cluster.stop(4)
        machine = cluster.hosts[4].machine
        machine.platter = type(machine.platter)()
        await cluster.start(4)
        await cluster.wait_for(lambda: not driver(cluster, 4).is_observer)
        voters = driver(cluster, cluster.controller_id).voters
        assert voters.node_ids == (1, 2, 3, 4)
        assert voters.voters[-1].key.directory_id != joined.key.directory_id

    joining = {"controller.quorum.auto.join.enable": "true"}
    VirtualCluster(nodes=4, seed=9, joiners=[4], properties=joining).play(scenario)


@scenario(run_in_virtual_cluster, nodes=3, seed=1)
async def test_a_voter_that_has_moved_says_so(cluster: VirtualCluster, /) -> None:
    def has_second(cluster: VirtualCluster, node_id: int) -> bool:
        voter = driver(cluster, cluster.controller_id).quorum.voters.find(NodeId(node_id))
        return voter is not None and [end.name for end in voter.endpoints][1:] == ["SECOND"]

    leader = cluster.controller_id
    moved = others(cluster, leader)[0]
    for node_id in (moved, leader):
        # It still listens on the old address, too: the other nodes must not notice.
        driver(cluster, node_id).endpoints += (VoterEndpoint("SECOND", f"n{node_id}", 9094),)
        await cluster.wait_for(lambda i=node_id: has_second(cluster, i))
    assert cluster.controller_id == leader


def test_only_a_quorum_of_several_writes_when_it_has_nothing_to_say() -> None:
    async def grown(cluster: VirtualCluster) -> int:
        await asyncio.sleep(5)
        end = cluster.image.offset
        await asyncio.sleep(10)
        return cluster.image.offset - end

    assert VirtualCluster(nodes=1, seed=1).play(grown) == 0
    assert 5 < VirtualCluster(nodes=3, seed=1).play(grown) <= 20
    quiet = {"metadata.max.idle.interval.ms": "0"}
    assert VirtualCluster(nodes=3, seed=1, properties=quiet).play(grown) == 0


async def change_voters(cluster: VirtualCluster, chance: Random, changes: list[Error]) -> None:
    """Removes voters and adds them again, repeatedly."""
    while True:
        await asyncio.sleep(chance.uniform(0.2, 2))
        node_id = chance.choice(list(cluster.hosts))
        if cluster.controller_id not in cluster.nodes() or node_id not in cluster.nodes():
            continue
        leader = driver(cluster, cluster.controller_id)
        known = leader.voters.find(NodeId(node_id))
        request: AddVoterRequest | RemoveVoterRequest
        if known is None:
            end = VoterEndpoint("CONTROLLER", f"n{node_id}", 9093)
            request = AddVoterRequest(voter=Voter(driver(cluster, node_id).me, (end,)))
        elif len(leader.voters.voters) > 2:
            request = RemoveVoterRequest(key=known.key)
        else:
            continue
        try:
            async with asyncio.timeout(20):
                changes.append((await leader.ask(request)).error)
        except (NotController, TimeoutError):
            pass


@pytest.mark.parametrize("seed", range(4))
def test_what_was_acknowledged_survives(seed: int) -> None:
    """Nodes are killed, lose power, are isolated and stopped at random, one at a time; voters
    change, snapshots are taken and loaded. In the end every node has every acknowledged
    decision."""

    async def scenario(cluster: VirtualCluster) -> None:
        chance = Random(seed)
        acknowledged: list[str] = []
        is_over = False

        async def write(worker: int) -> None:
            number = 0
            while not is_over:
                number += 1
                await decide(cluster, f"w{worker}-{number}")
                acknowledged.append(f"w{worker}-{number}")
                await asyncio.sleep(0.05)

        writers = [asyncio.ensure_future(write(worker)) for worker in range(2)]
        changes: list[Error] = []
        changing = asyncio.ensure_future(change_voters(cluster, chance, changes))
        for _ in range(8):
            await asyncio.sleep(chance.uniform(0.1, 1.5))
            node_id = chance.choice([cluster.controller_id, *cluster.hosts])
            if node_id not in cluster.nodes():
                continue
            fault = chance.choice(["kill", "power", "cut", "stop", "pause"])
            if fault == "kill":
                cluster.kill(node_id)
            elif fault == "power":
                cluster.lose_power(node_id)
            elif fault == "stop":
                await cluster.stop(node_id)
            else:
                (cluster.isolate if fault == "cut" else cluster.pause)(node_id)
                await asyncio.sleep(chance.uniform(0.1, 3))
                cluster.heal()
            await asyncio.sleep(chance.uniform(0, 1))
            await cluster.start(node_id)
        is_over = True
        changing.cancel()
        await asyncio.gather(*writers)
        assert Error.NONE in changes
        end = driver(cluster, cluster.controller_id).log.end_offset
        for node_id in cluster.hosts:
            await cluster.wait_for(lambda i=node_id: reached(cluster, i, end))
            assert settings_of(cluster, node_id) >= set(acknowledged)
        assert len(acknowledged) > 20

    def reached(cluster: VirtualCluster, node_id: int, end: Offset) -> bool:
        return driver(cluster, node_id).delivered_end >= end

    roomy = {**SHORT_LOG, "internal.metadata.log.segment.bytes": "1000"}
    VirtualCluster(nodes=3 + seed % 2, seed=seed, properties=roomy).play(scenario)
