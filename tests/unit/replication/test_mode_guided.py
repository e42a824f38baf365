"""Sequences of events that random schedules do not find: one for each safeguard of the mode switch.

The four counterexamples of the design (figure 8 on entering, responses before the fsync, votes
between two raft lives, an appointment below MinISR) and those of the other mutants. Every schedule
is safe with the actual code, and violates an invariant without the safeguard.
"""

from collections.abc import Callable

import pytest

from lograft.metadata import mode_switch
from lograft.model.types import NodeId
from lograft.replication.errors import TruncatesCommitted
from tests.unit.replication.mode_cluster import ENTERING, ISR, LEAVING, RAFT, ModeCluster, Violation
from tests.unit.replication.mode_guide import Guide, in_raft
from tests.unit.replication.mode_mutants import MUTANTS, any_isr

HARM = (Violation, TruncatesCommitted)


def figure_eight(cluster: ModeCluster) -> None:
    """A record of an old epoch is committed by a later leader; a replica with a record of an epoch
    between must not win against those who have it."""
    guide = Guide(cluster)
    guide.produce(1)
    entry = guide.node(1).log.entries[0]
    guide.fetch(2, 1)
    guide.lead(3)
    guide.learn(3)
    guide.produce(3)
    guide.flush(3)
    guide.controller.fence(3)  # type: ignore[arg-type]
    guide.learn(1, 2)
    leader = guide.controller.state.leader
    if leader != 1:
        guide.lead(1)
        guide.learn(1, 2)
    guide.fetch(2, 1, times=2)
    assert guide.node(1).replica.high_watermark >= 1  # type: ignore[union-attr]
    cluster.acked[0] = (entry, guide.controller.state.leader_epoch)
    guide.enter(1, 2)
    assert guide.mode is RAFT
    guide.controller.unfence(3)  # type: ignore[arg-type]
    guide.take_up(2, 3)
    guide.elect(3, 2)


def power_lost_behind_the_evidence(cluster: ModeCluster) -> None:
    """Two replicas fetched without an fsync; the power fails in raft mode, where that is
    allowed."""
    guide = Guide(cluster)
    guide.controller.set_mode(RAFT)
    guide.controller.step()
    guide.learn(1, 2, 3)
    guide.produce(1)
    guide.flush(1)
    for _ in range(4):
        guide.fetch(2, 1)
        guide.fetch(3, 1)
    guide.ask(1)
    if guide.mode is not RAFT:
        return
    assert cluster.acked
    for number in (2, 3):
        cluster.kill(guide.node(number), keep=0)
        cluster.start(guide.node(number))
        guide.controller.unfence(number)  # type: ignore[arg-type]
    guide.take_up(2, 3)
    guide.elect(2, 3)


def power_lost_by_a_leader_that_did_not_fsync(cluster: ModeCluster) -> None:
    guide = Guide(cluster)
    guide.controller.fence(3)  # type: ignore[arg-type]
    guide.learn(1, 2)
    guide.produce(1)
    guide.fetch(2, 1, times=3)
    acked = dict(cluster.acked)
    assert acked
    guide.controller.set_mode(RAFT)
    guide.controller.step()
    guide.learn(1, 2)
    guide.flush(2)
    for _ in range(4):
        guide.fetch(2, 1)
        guide.flush(2)
    guide.ask(1)
    if guide.mode is not RAFT:
        return
    guide.controller.unfence(3)  # type: ignore[arg-type]
    cluster.kill(guide.node(1), keep=0)
    cluster.start(guide.node(1))
    guide.controller.unfence(1)  # type: ignore[arg-type]
    guide.take_up(1, 3)
    guide.elect(1, 3)


def evidence_from_before_a_rollback(cluster: ModeCluster) -> None:
    guide = Guide(cluster)
    guide.controller.set_mode(RAFT)
    guide.controller.step()
    guide.learn(1, 2, 3)
    guide.follow(1, 2, 3)
    cluster.ask_raft(guide.node(1))
    guide.controller.set_mode(ISR)
    guide.controller.step()
    guide.learn(1, 2, 3)
    # ISR mode: acknowledged without an fsync.
    guide.produce(1)
    for _ in range(3):
        guide.fetch(2, 1)
        guide.fetch(3, 1)
    assert cluster.acked
    guide.controller.set_mode(RAFT)
    guide.controller.step()
    assert guide.mode is ENTERING
    guide.deliver("ask 1")
    if guide.mode is not RAFT:
        return
    for number in (2, 3):
        cluster.kill(guide.node(number), keep=0)
        cluster.start(guide.node(number))
    guide.take_up(2, 3)
    guide.elect(2, 3)


def raft_with_an_isr_of_one(cluster: ModeCluster) -> None:
    guide = Guide(cluster)
    guide.produce(1)
    for _ in range(3):
        guide.fetch(2, 1)
    guide.controller.fence(3)  # type: ignore[arg-type]
    guide.learn(1, 2)
    guide.fetch(2, 1)
    assert cluster.acked
    guide.controller.set_mode(RAFT)
    guide.controller.step()
    guide.learn(1)
    guide.flush(1)
    guide.controller.fence(2)  # type: ignore[arg-type]
    guide.learn(1)
    assert guide.controller.state.isr == (1,)
    state = guide.controller.state
    cluster._alter(
        guide.node(1),
        leader_epoch=state.leader_epoch,
        partition_epoch=state.partition_epoch,
        isr=[],
        mode=RAFT,
    )
    if guide.mode is not RAFT:
        return
    cluster.kill(guide.node(2), keep=0)
    cluster.start(guide.node(2))
    guide.take_up(2, 3)
    guide.elect(2, 3)


def votes_between_two_lives(cluster: ModeCluster) -> None:
    """3 is stopped during the end of its life and the start of the next one, in which it fetches
    and becomes a candidate with its old state; then it enters the new life and forgets its state in
    higher epochs."""
    guide = in_raft(cluster)
    guide.leave()
    guide.take_up(1, 2)
    guide.flush(1, 2)
    guide.answer(1, 2)
    assert guide.mode is ISR
    guide.learn(1, 2)
    leader = guide.controller.state.leader
    other = 3 - leader
    guide.follow(leader, other)
    guide.enter(leader, other)
    assert guide.mode is RAFT
    guide.take_up(leader, other)
    guide.follow(leader, other)
    sleeper = guide.node(3)
    assert sleeper.replica is not None
    assert sleeper.replica.raft is not None
    sleeper.replica.raft.on_leader_known(  # the information that its own fetch would return
        guide.controller.state.leader_epoch,  # type: ignore[arg-type]
        NodeId(leader),
    )
    guide.persist(3)
    guide.follow(leader, 3)
    guide.elect(3, other)
    if not guide.leads(3):
        return
    guide.follow(3, other)
    guide.produce(3)
    guide.follow(3, other)
    cluster.kill(guide.node(3))
    cluster.start(guide.node(3))
    guide.take_up(3)
    guide.follow(leader, 3)
    guide.produce(leader)
    guide.follow(leader, 3)


def a_vote_after_the_end(cluster: ModeCluster) -> None:
    """Two have responded to the controller; one of them votes for the third afterwards."""
    guide = in_raft(cluster)
    guide.leave()
    guide.take_up(1, 2)
    guide.flush(1, 2)
    guide.answer(1)
    cluster.ask_tail(guide.node(2))
    guide.deliver("ask tail 2")
    for _ in range(2):
        guide.elect(3, 2)
    if guide.leads(3):
        guide.follow(3, 2)
        guide.produce(3)
        guide.follow(3, 2)
    guide.deliver("tail 2")
    assert guide.mode is ISR
    guide.learn(1)


def an_answer_before_the_fsync(cluster: ModeCluster) -> None:
    """The controller appoints a leader by a log end that a power loss destroys afterwards."""
    guide = in_raft(cluster)
    guide.produce(1)
    guide.fetch(2, 1)
    guide.fetch(3, 1)
    guide.leave()
    guide.learn(2)
    guide.flush(1, 3)
    guide.fetch(3, 1)
    assert cluster.acked
    guide.persist(2)
    guide.take_up(3)
    guide.answer(2)
    cluster.kill(guide.node(2), keep=0)
    cluster.start(guide.node(2))
    guide.controller.unfence(2)  # type: ignore[arg-type]
    guide.take_up(2)
    guide.flush(3)
    guide.answer(3)
    guide.learn(2, 3)


def an_answer_before_it_is_bound(cluster: ModeCluster) -> None:
    """The voter responds, and its process loses its vote for the controller."""
    guide = in_raft(cluster)
    guide.leave()
    guide.take_up(1)
    guide.flush(1)
    guide.learn(2)
    guide.answer(1, 2)
    # 2 has persisted nothing: it returns with its old state, and does not know about the end yet.
    node = guide.node(2)
    node.persists.clear()
    cluster.kill(node)
    if guide.mode is not ISR:
        return
    node.up = True
    node.log.flush()
    cluster._open(node)
    node.seen = next(
        number
        for number, written in enumerate(guide.controller.history)
        if written.state.mode is RAFT
    )
    cluster._apply(node)
    guide.elect(3, 2)
    if guide.leads(3):
        guide.follow(3, 2)
        guide.produce(3)
        guide.follow(3, 2)
    guide.learn(1)


def an_appointment_below_the_minimum(cluster: ModeCluster) -> None:
    """Only one replica has all records. In ISR mode its restart would be a loss; while leaving raft
    mode it is queried again."""
    guide = in_raft(cluster)
    guide.produce(1)
    guide.flush(1)
    guide.fetch(2, 1)
    guide.flush(2)
    guide.fetch(2, 1)
    assert cluster.acked
    cluster.kill(guide.node(2))
    guide.leave()
    guide.take_up(1, 3)
    guide.flush(1, 3)
    guide.answer(1, 3)
    assert guide.controller.state.leader == 1
    guide.learn(1, 3)
    cluster.kill(guide.node(1), keep=0)
    cluster.start(guide.node(1))
    if cluster.has_given_up or not guide.controller.state.isr:
        raise Violation("everything is on disk, and yet the controller takes it for lost")
    guide.controller.unfence(1)  # type: ignore[arg-type]
    guide.take_up(1, 3)
    assert guide.mode is LEAVING
    guide.flush(1, 3)
    guide.answer(1, 3)
    assert guide.controller.state.leader == 1


def a_vote_that_is_forgotten(cluster: ModeCluster) -> None:
    """3 is a candidate twice in one epoch, and 2 votes, loses power and votes again."""
    guide = in_raft(cluster)
    guide.elect(3, 2)
    epoch_of_three = guide.node(3).replica.leader  # type: ignore[union-attr]
    assert epoch_of_three is not None
    cluster.kill(guide.node(2), keep=0)
    cluster.start(guide.node(2))
    guide.controller.unfence(2)  # type: ignore[arg-type]
    guide.take_up(2)
    replica = guide.node(1).replica
    assert replica is not None
    assert replica.raft is not None
    replica.raft.resign()
    guide.elect(1, 2)


SCHEDULES: dict[str, Callable[[ModeCluster], None]] = {
    "no control batch on entering": figure_eight,
    "followers do not fsync on entering": power_lost_behind_the_evidence,
    "the leader does not fsync on entering": power_lost_by_a_leader_that_did_not_fsync,
    "life not checked in a vote": votes_between_two_lives,
    "a vote after leaving": a_vote_after_the_end,
    "answer before the fsync": an_answer_before_the_fsync,
    "answer before the vote for the controller is on disk": an_answer_before_it_is_bound,
    "isr written below MinISR": an_appointment_below_the_minimum,
    "votes not fsynced": a_vote_that_is_forgotten,
}
#: The controller's own checks of the evidence: replaced in the module that uses them.
ANY_EVIDENCE = {
    "raft on evidence from before a rollback": evidence_from_before_a_rollback,
    "raft with an ISR below the majority": raft_with_an_isr_of_one,
}


@pytest.mark.parametrize("name", [*SCHEDULES, *ANY_EVIDENCE])
def test_no_harm_as_it_is(name: str) -> None:
    {**SCHEDULES, **ANY_EVIDENCE}[name](ModeCluster())


@pytest.mark.parametrize("name", SCHEDULES)
def test_harm_without_the_safeguard(name: str) -> None:
    with pytest.raises(HARM):
        SCHEDULES[name](MUTANTS[name]())


@pytest.mark.parametrize("name", ANY_EVIDENCE)
def test_harm_by_evidence_that_is_not_checked(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lograft.metadata.alter_partition.enter_raft", any_isr)
    monkeypatch.setattr("lograft.metadata.alter_partition._check_proposal", lambda *_: None)
    with pytest.raises(HARM):
        ANY_EVIDENCE[name](ModeCluster())


def test_every_mutant_has_a_schedule_that_notices() -> None:
    by_chance = {"appointment without a majority", "acting before the catch-up"}
    assert set(MUTANTS) == set(SCHEDULES) | by_chance
    assert mode_switch.majority((1, 2, 3)) == 2


def test_what_waited_on_the_way_out_is_released_by_the_milder_rules(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Leaving raft mode with one complete replica commits nothing; with the second one the topic is
    in isr mode, and the records that this alone commits must be reported, because no other event
    may follow."""
    cluster = ModeCluster()
    guide = in_raft(cluster)
    cluster.kill(guide.node(2))
    guide.produce(1)
    guide.leave()
    guide.take_up(1, 3)
    guide.flush(1, 3)
    guide.answer(1, 3)
    guide.learn(1, 3)
    while guide.mode is not ISR:
        guide.flush(1, 3)
        guide.fetch(3, 1)
        guide.deliver("alter")
    # The response contains the ISR, but not its mode.
    guide.deliver("granted")
    leader = guide.node(1)
    assert leader.replica is not None
    assert leader.replica.high_watermark < leader.log.end_offset
    released: list[NodeId] = []
    monkeypatch.setattr(cluster, "release", lambda node: released.append(node.node_id))
    guide.learn(1)
    assert leader.replica.high_watermark == leader.log.end_offset
    assert released == [1]


def test_a_beginning_that_is_overtaken_in_the_journal_does_not_stop_the_replica() -> None:
    """The replica receives two leaders of its first raft life before any of its state is on disk.
    It starts with the first, and its core replaces the second in the journal's queue."""
    cluster = ModeCluster()
    guide = Guide(cluster)
    guide.enter(1, 2, 3)
    guide.take_up(1, 2)
    guide.follow(1, 2)
    guide.learn(3)
    first = guide.node(1).replica
    assert first is not None
    assert first.raft is not None
    first.raft.resign()
    guide.elect(2, 1)
    assert guide.leads(2)
    guide.follow(2, 1)
    cluster.report(guide.node(2))
    guide.deliver("report 2")
    guide.learn(3)
    late = guide.node(3)
    assert len(late.persists) == 2
    guide.persist(3)
    guide.produce(2)
    guide.follow(2, 3)
    assert late.log.end_offset == guide.node(2).log.end_offset
