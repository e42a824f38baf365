"""The core's view of the log, compared with a simple log that is a list of epochs."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lograft.consensus.log_view import LogView
from lograft.consensus.types import LogEnd, LogSlice, ReplicaKey, SnapshotId, VoterSet
from lograft.model.types import NO_EPOCH, Epoch, NodeId, Offset

VOTERS = VoterSet.of([ReplicaKey(NodeId(1))])
OTHERS = VoterSet.of([ReplicaKey(NodeId(1)), ReplicaKey(NodeId(2))])


def view_of(epochs: list[int]) -> LogView:
    view = LogView(LogEnd(NO_EPOCH, Offset(0)), VOTERS)
    for epoch in epochs:
        view.grow(Epoch(epoch), Offset(view.end.offset + 1))
    return view


def end(epoch: int, offset: int) -> LogEnd:
    return LogEnd(Epoch(epoch), Offset(offset))


def logs(parity: int) -> st.SearchStrategy[list[int]]:
    """Ascending epochs, odd or even: two such logs have no epoch in common."""
    return st.lists(st.integers(3, 8).map(lambda n: 2 * n + parity), max_size=8).map(sorted)


@given(st.lists(st.integers(0, 5), max_size=8).map(sorted), logs(0), logs(1))
def test_a_follower_ends_where_both_logs_agree(
    common: list[int], mine: list[int], other: list[int]
) -> None:
    leader, follower = view_of(common + mine), view_of(common + other)
    for _ in range(20):
        difference = leader.compare(follower.end)
        if difference is None:
            break
        assert isinstance(difference, LogEnd)
        to = follower.truncation_for(difference)
        assert to < follower.end.offset, "each answer brings them closer"
        follower.truncate(to)
    assert leader.compare(follower.end) is None
    # The leader may not have all common records yet: the common part is never truncated.
    assert follower.end.offset == len(common)


@given(st.lists(st.integers(0, 5), max_size=8).map(sorted), st.integers(-1, 6))
def test_the_end_of_an_epoch_is_the_naive_one(epochs: list[int], asked: int) -> None:
    below = [epoch for epoch in epochs if epoch <= asked]
    expected = end(below[-1], len(below)) if below else end(-1, 0)
    assert view_of(epochs).end_of(Epoch(asked)) == expected


def test_a_log_behind_a_snapshot_sends_the_others_there() -> None:
    view = view_of([1, 1, 2, 2, 3])
    view.snapshot = SnapshotId(Offset(4), Epoch(2))
    view.advance_start(end(2, 4))
    assert view.compare(end(1, 2)) == view.snapshot
    assert view.compare(end(-1, 0)) == view.snapshot
    # At the start with another epoch: the logs diverged somewhere before.
    assert view.compare(end(1, 4)) == view.snapshot
    # After the start, but in an epoch from before it.
    assert view.compare(end(1, 5)) == view.snapshot
    assert view.compare(end(2, 4)) is None
    assert view.compare(end(3, 5)) is None
    assert view.compare(end(2, 5)) == end(2, 4)


def test_a_log_that_was_deleted_whole_goes_on() -> None:
    view = view_of([1, 1])
    view.snapshot = SnapshotId(Offset(2), Epoch(1))
    view.advance_start(end(1, 2))
    view.grow(Epoch(1), Offset(3))
    view.grow(Epoch(4), Offset(4))
    assert view.end_of(Epoch(1)) == end(1, 3)
    assert view.end == end(4, 4)


def test_a_log_does_not_begin_behind_nothing() -> None:
    with pytest.raises(AssertionError):
        view_of([1, 1]).advance_start(end(1, 1))


def test_voters_come_and_go_with_the_log() -> None:
    view = view_of([1, 1])
    view.grow(Epoch(1), Offset(3), OTHERS)
    assert (view.voters, view.voters_offset) == (OTHERS, 2)
    assert view.voters_at(Offset(2)) == VOTERS
    assert view.voters_at(Offset(3)) == OTHERS
    view.truncate(Offset(2))
    assert view.voters == VOTERS


def test_what_was_appended_can_be_cut_in_the_middle_of_a_slice() -> None:
    view = view_of([1])
    slice_ = LogSlice(
        Offset(1),
        Offset(5),
        ((Epoch(1), Offset(1)), (Epoch(3), Offset(2))),
        ((Offset(4), OTHERS),),
    )
    view.append(slice_)
    view.durable = Offset(5)
    view.truncate(Offset(3))
    assert (view.end, view.durable, view.voters) == (end(3, 3), 3, VOTERS)
    view.truncate(Offset(2))
    assert view.end == end(1, 2)


def test_a_snapshot_takes_the_place_of_the_log() -> None:
    view = view_of([1, 1, 1])
    view.replace(SnapshotId(Offset(9), Epoch(4)), OTHERS)
    assert (view.start, view.end, view.durable) == (end(4, 9), end(4, 9), 9)
    assert view.voters == OTHERS
    assert view.compare(end(4, 9)) is None
