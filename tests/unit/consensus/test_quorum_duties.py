"""Details of a core among several voters that no scenario covers."""

from uuid import UUID

import pytest

from lograft.consensus.core import HELD_MESSAGES_MAX, RaftCore
from lograft.consensus.errors import NotLeading
from lograft.consensus.leadership import OBSERVERS_MAX
from lograft.consensus.messages import (
    AddVoterRequest,
    BeginQuorumEpochRequest,
    EndQuorumEpochRequest,
    Error,
    FetchRequest,
    FetchResponse,
    FetchSnapshotRequest,
    FetchSnapshotResponse,
    RenameVoterRequest,
    UpdateVoterRequest,
    UpgradeVersionRequest,
    VoterChangeResponse,
    VoteRequest,
    VoteResponse,
)
from lograft.consensus.roles import Role
from lograft.consensus.types import (
    Effects,
    HardState,
    LogEnd,
    ReplicaKey,
    SnapshotId,
    Voter,
    VoterSet,
)
from lograft.model.types import NO_EPOCH, NO_NODE, Epoch, NodeId, Offset

KEYS = [ReplicaKey(NodeId(node), UUID(int=node)) for node in range(1, 4)]
ONE, TWO, THREE = KEYS
EMPTY = LogEnd(NO_EPOCH, Offset(0))


def replica(
    me: ReplicaKey = ONE, state: HardState | None = None, *, is_static: bool = False
) -> RaftCore:
    keys = [ReplicaKey(key.node_id) for key in KEYS] if is_static else KEYS
    core = RaftCore(
        me,
        VoterSet.of(keys, is_static=is_static),
        hard_state=state or HardState(),
        log_end=EMPTY,
        chance=lambda _: 0,
    )
    core.start(0)
    core.on_durable(Offset(0), 0)
    return core


def settle(core: RaftCore, effects: Effects, now_ms: int) -> Effects:
    while effects.persist is not None:
        effects = core.on_persisted(now_ms)
    return effects


def leader(*, is_static: bool = False) -> RaftCore:
    """A leader of epoch 1, whose first batch is only on its own disk."""
    core = replica(is_static=is_static)
    effects = core.tick(0)
    for pre_vote in (True, False):
        request = next(each.message for each in effects.send if each.to == 2)
        assert isinstance(request, VoteRequest)
        assert request.pre_vote is pre_vote
        answer = VoteResponse(
            sender=NodeId(2), epoch=request.epoch, granted=True, request_id=request.request_id
        )
        effects = settle(core, core.step(answer, 0), 0)
    assert effects.lead is not None
    core.on_appended(Offset(1), 0)
    core.on_durable(Offset(1), 0)
    assert core.is_leader
    return core


def fetch(sender: ReplicaKey, offset: int, *, number: int = 0, wait_ms: int = 0) -> FetchRequest:
    return FetchRequest(
        sender=sender,
        epoch=Epoch(1),
        log_end=LogEnd(Epoch(1) if offset else NO_EPOCH, Offset(offset)),
        wait_ms=wait_ms,
        request_id=number,
    )


def follower() -> tuple[RaftCore, FetchRequest]:
    """A follower of node 1 in epoch 1, and the request that it waits for."""
    core = replica(TWO)
    begin = BeginQuorumEpochRequest(sender=ONE, to=TWO, epoch=Epoch(1))
    effects = settle(core, core.step(begin, 0), 0)
    request = next(each.message for each in effects.send if isinstance(each.message, FetchRequest))
    return core, request


def test_the_watermark_needs_the_disks_of_a_majority() -> None:
    core = leader()
    assert core.high_watermark == -1
    assert core.step(fetch(THREE, 0), 1).committed is None
    assert core.step(fetch(THREE, 1), 2).committed == 1


def test_a_late_fetch_takes_nothing_back() -> None:
    core = leader()
    core.step(fetch(THREE, 1), 1)
    core.on_appended(Offset(2), 2)
    core.step(fetch(THREE, 0), 3)
    core.on_durable(Offset(2), 4)
    assert core.high_watermark == 1
    assert core.step(fetch(THREE, 2), 5).committed == 2


def test_a_replica_with_another_disk_does_not_count() -> None:
    core = leader()
    stranger = ReplicaKey(NodeId(3), UUID(int=77))
    assert core.step(fetch(stranger, 1), 1).committed is None


def test_a_fetch_waits_for_news_but_not_for_ever() -> None:
    core = leader()
    core.step(fetch(THREE, 1), 1)
    request = fetch(THREE, 1, number=5, wait_ms=300)
    effects = core.step(
        FetchRequest(
            sender=request.sender,
            epoch=request.epoch,
            log_end=request.log_end,
            high_watermark=Offset(1),
            wait_ms=300,
            request_id=5,
        ),
        10,
    )
    assert not effects.send
    assert core.deadline_ms == 310
    (send,) = core.tick(310).send
    assert isinstance(send.message, FetchResponse)
    assert (send.message.request_id, send.message.read_from) == (5, -1)


def test_a_leader_that_goes_leaves_nobody_waiting() -> None:
    core = leader()
    core.step(fetch(THREE, 1), 1)
    waiting = fetch(THREE, 1, number=9, wait_ms=1_000)
    core.leadership.pending_fetches[THREE] = (waiting, 5_000)  # type: ignore[union-attr]
    effects = core.resign(2)
    assert effects.step_down == 1
    answers = [each.message for each in effects.send]
    errors = [answer.error for answer in answers if isinstance(answer, FetchResponse)]
    assert errors == [Error.NOT_LEADER]
    with pytest.raises(NotLeading):
        core.on_appended(Offset(2), 3)


def test_a_snapshot_is_fetched_within_its_bounds() -> None:
    core = leader()
    core.step(fetch(THREE, 1), 1)
    snapshot = SnapshotId(Offset(1), Epoch(1))
    core.on_snapshot(snapshot, 100, 2)
    for asked, position, error in (
        (snapshot, 0, Error.NONE),
        (snapshot, 100, Error.POSITION_OUT_OF_RANGE),
        (snapshot, -1, Error.POSITION_OUT_OF_RANGE),
        (SnapshotId(Offset(1), Epoch(0)), 0, Error.SNAPSHOT_NOT_FOUND),
    ):
        request = FetchSnapshotRequest(
            sender=TWO, epoch=Epoch(1), snapshot=asked, position=position
        )
        (send,) = core.step(request, 3).send
        assert isinstance(send.message, FetchSnapshotResponse)
        assert send.message.error is error
    core.on_log_start(snapshot)
    (send,) = core.step(fetch(TWO, 0), 4).send
    assert isinstance(send.message, FetchResponse)
    assert send.message.snapshot == snapshot


def test_an_answer_is_heard_once() -> None:
    core, request = follower()
    answer = FetchResponse(
        sender=NodeId(1), epoch=Epoch(1), leader=NodeId(1), request_id=request.request_id
    )
    (send,) = core.step(answer, 1).send
    assert isinstance(send.message, FetchRequest)
    assert not core.step(answer, 2).send


def test_a_follower_hears_only_its_leader() -> None:
    core, request = follower()
    wrong = FetchResponse(
        sender=NodeId(3), epoch=Epoch(1), leader=NodeId(1), request_id=request.request_id
    )
    assert not core.step(wrong, 1).send


def test_who_hears_a_leader_does_not_help_to_replace_it() -> None:
    core, request = follower()
    ask = VoteRequest(sender=THREE, to=TWO, epoch=Epoch(1), log_end=EMPTY, pre_vote=True)
    assert granted(core.step(ask, 1)), "not heard yet"
    answer = FetchResponse(
        sender=NodeId(1), epoch=Epoch(1), leader=NodeId(1), request_id=request.request_id
    )
    core.step(answer, 2)
    assert not granted(core.step(ask, 3))
    end = EndQuorumEpochRequest(sender=ONE, epoch=Epoch(1), successors=(THREE, TWO))
    core.step(end, 4)
    assert granted(core.step(ask, 5)), "its leader said goodbye"


def granted(effects: Effects) -> bool:
    (answer,) = [each.message for each in effects.send if isinstance(each.message, VoteResponse)]
    return answer.granted


def test_the_stream_between_two_nodes_stands_for_fetches() -> None:
    core, _ = follower()
    for now_ms in range(0, 10_000, 1_000):
        core.note_alive({NodeId(1): now_ms}, now_ms)
        core.tick(now_ms)
    assert core.role is Role.FOLLOWER
    leading = leader()
    for now_ms in range(0, 10_000, 1_000):
        leading.note_alive({NodeId(3): now_ms}, now_ms)
        leading.tick(now_ms)
    assert leading.is_leader


def test_an_epoch_has_one_leader() -> None:
    core, _ = follower()
    other = BeginQuorumEpochRequest(sender=THREE, to=TWO, epoch=Epoch(1))
    (send,) = core.step(other, 1).send
    assert send.message.error is Error.FENCED_EPOCH  # type: ignore[union-attr]
    assert core.leader == 1


def test_nothing_is_said_before_the_disk_has_it_and_not_without_bound() -> None:
    core = replica(TWO)
    ask = VoteRequest(sender=THREE, to=TWO, epoch=Epoch(4), log_end=EMPTY)
    effects = core.step(ask, 0)
    assert effects.persist == HardState(Epoch(4), NO_NODE, THREE)
    assert not effects.send
    for _ in range(HELD_MESSAGES_MAX + 10):
        assert core.step(ask, 1) == Effects()
    assert len(core.on_persisted(2).send) == HELD_MESSAGES_MAX


def test_a_newer_epoch_while_the_disk_writes_is_written_too() -> None:
    core = replica(TWO)
    core.step(VoteRequest(sender=THREE, to=TWO, epoch=Epoch(4), log_end=EMPTY), 0)
    core.step(VoteRequest(sender=ONE, to=TWO, epoch=Epoch(6), log_end=EMPTY), 0)
    effects = core.on_persisted(1)
    assert effects.persist == HardState(Epoch(6), NO_NODE, ONE)
    assert not effects.send
    votes = [each.message for each in core.on_persisted(2).send]
    assert [(vote.epoch, vote.granted) for vote in votes if isinstance(vote, VoteResponse)] == [
        (4, True),
        (6, True),
    ]


def test_observers_are_bounded() -> None:
    core = leader()
    for number in range(OBSERVERS_MAX + 50):
        observer = ReplicaKey(NodeId(100 + number), UUID(int=number))
        core.step(fetch(observer, 0), number)
    assert core.leadership is not None
    assert len(list(core.leadership.replicas())) <= OBSERVERS_MAX + len(KEYS)


def test_only_a_known_voter_is_updated() -> None:
    core = leader()
    core.step(fetch(THREE, 1), 1)
    stranger = Voter(ReplicaKey(NodeId(2), UUID(int=5)))
    (send,) = core.step(UpdateVoterRequest(voter=stranger, request_id=4), 2).send
    assert send.message.error is Error.VOTER_NOT_FOUND  # type: ignore[union-attr]
    again = AddVoterRequest(voter=stranger)
    (send,) = core.step(again, 2).send
    assert send.message.error is Error.DUPLICATE_VOTER  # type: ignore[union-attr]


def error_of(effects: Effects) -> Error:
    (send,) = (each for each in effects.send if each.to == NO_NODE)
    assert isinstance(send.message, VoterChangeResponse)
    return send.message.error


UPGRADE = UpgradeVersionRequest(voter=Voter(ONE))


def test_kraft_version_is_raised_only_after_a_commit_and_with_all_voters() -> None:
    core = leader(is_static=True)
    core.step(UpdateVoterRequest(voter=Voter(TWO)), 1)
    assert error_of(core.step(UPGRADE, 1)) is Error.CHANGE_IN_PROGRESS
    core.step(fetch(THREE, 1), 1)
    for voter in (
        None,
        Voter(ReplicaKey(NodeId(3))),  # no directory
        Voter(THREE, kraft_version_max=0),
        Voter(THREE, kraft_version_min=2, kraft_version_max=3),
    ):
        if voter is not None:
            assert error_of(core.step(UpdateVoterRequest(voter=voter), 2)) is Error.NONE
        assert error_of(core.step(UPGRADE, 2)) is Error.VERSION_NOT_SUPPORTED
    core.step(UpdateVoterRequest(voter=Voter(THREE)), 3)
    effects = core.step(UPGRADE, 3)
    assert effects.append_voters == VoterSet.of(KEYS)


def test_only_the_directories_of_the_new_voters_commit_the_upgrade() -> None:
    core = leader(is_static=True)
    for key in (TWO, THREE):
        core.step(UpdateVoterRequest(voter=Voter(key)), 1)
        core.step(fetch(key, 1), 1)
    voters = core.step(UPGRADE, 2_900).append_voters
    core.on_appended(Offset(2), 2_900, voters=voters)
    core.on_durable(Offset(2), 2_900)
    # The voters have been in contact a moment before: the leader does not resign for lack of a
    # majority.
    assert core.deadline_ms is not None
    core.tick(2_901)
    assert core.is_leader
    other_disk = ReplicaKey(NodeId(3), UUID(int=33))
    assert core.step(fetch(other_disk, 2), 2_950).committed is None
    effects = core.step(fetch(THREE, 2), 2_960)
    assert effects.committed == 2
    assert error_of(effects) is Error.NONE


def test_a_newcomer_that_never_comes_is_given_up() -> None:
    core = leader()
    core.step(fetch(THREE, 1), 1)
    newcomer = Voter(ReplicaKey(NodeId(9), UUID(int=9)))
    assert not core.step(AddVoterRequest(voter=newcomer, request_id=8), 2).send
    answers = []
    for now_ms in range(0, 40_000, 500):
        core.note_alive({NodeId(3): now_ms}, now_ms)
        answers += [each.message for each in core.tick(now_ms).send if each.to == NO_NODE]
    assert [(m.request_id, m.error) for m in answers] == [  # type: ignore[union-attr]
        (8, Error.TIMED_OUT)
    ]
    assert core.is_leader


# ── voters that were moved to another log dir ────────────────────────────────────────────────

NEW_TWO = ReplicaKey(NodeId(2), UUID(int=22))


def test_a_moved_voter_answers_to_its_old_name_and_keeps_its_vote() -> None:
    core = RaftCore(
        NEW_TWO,
        VoterSet.of(KEYS),
        hard_state=HardState(Epoch(4), NO_NODE, THREE),
        log_end=EMPTY,
        past_directories=[TWO.directory_id],
    )
    core.start(0)
    assert core.is_voter
    assert core.me == TWO, "the voters know it by this name"
    assert core.unlisted_directory == NEW_TWO.directory_id
    for to, error, granted in (
        (TWO, Error.NONE, False),
        (NEW_TWO, Error.NONE, False),
        (ReplicaKey(NodeId(2), UUID(int=5)), Error.WRONG_VOTER, False),
    ):
        ask = VoteRequest(sender=ONE, to=to, epoch=Epoch(4), log_end=EMPTY)
        (send,) = settle(core, core.step(ask, 0), 0).send
        assert isinstance(send.message, VoteResponse)
        assert (send.message.error, send.message.granted) == (error, granted)


def test_a_voter_with_another_disk_is_not_the_same() -> None:
    core = replica(NEW_TWO)
    assert not core.is_voter
    ask = VoteRequest(sender=ONE, to=TWO, epoch=Epoch(4), log_end=EMPTY)
    (send,) = core.step(ask, 0).send
    assert send.message.error is Error.WRONG_VOTER  # type: ignore[union-attr]


def test_a_leader_renames_a_moved_voter_which_keeps_what_it_has() -> None:
    core = leader()
    core.step(fetch(TWO, 1), 1)
    rename = RenameVoterRequest(key=TWO, directory_id=NEW_TWO.directory_id, request_id=5)
    voters = core.step(rename, 2).append_voters
    assert voters is not None
    assert voters.find(NodeId(2)) == Voter(NEW_TWO)
    core.on_appended(Offset(2), 2, voters=voters)
    core.on_durable(Offset(2), 2)
    assert core.high_watermark == 1
    # It does not have its new directory id yet.
    core.step(fetch(TWO, 2), 3)
    assert core.high_watermark == 2
    core.on_appended(Offset(3), 4)
    core.on_durable(Offset(3), 4)
    core.step(fetch(NEW_TWO, 3), 5)
    assert core.high_watermark == 3
    assert core.leadership is not None
    assert [each.key for each in core.leadership.replicas()].count(NEW_TWO) == 1
    # It returns.
    voters = core.step(RenameVoterRequest(key=NEW_TWO, directory_id=TWO.directory_id), 6)[-1]
    assert voters is not None
    core.on_appended(Offset(4), 6, voters=voters)
    core.on_durable(Offset(4), 6)
    core.step(fetch(TWO, 4), 7)
    assert core.high_watermark == 4


def test_a_leader_that_was_moved_renames_itself_and_counts_its_own_disk() -> None:
    core = leader()
    core.step(fetch(THREE, 1), 1)
    moved = ReplicaKey(NodeId(1), UUID(int=11))
    core.on_moved(moved, [ONE.directory_id])
    assert core.is_leader
    assert core.is_voter
    core.on_appended(Offset(2), 1)
    core.on_durable(Offset(2), 1)
    core.step(fetch(THREE, 2), 1)
    assert core.high_watermark == 2
    rename = RenameVoterRequest(key=core.me, directory_id=core.unlisted_directory)
    voters = core.step(rename, 2).append_voters
    assert voters is not None
    core.on_appended(Offset(3), 2, voters=voters)
    core.on_durable(Offset(3), 2)
    assert core.me == moved
    core.step(fetch(THREE, 3), 3)
    assert core.high_watermark == 3
    assert core.is_leader
