from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lograft.consensus.core import RaftCore
from lograft.consensus.messages import VoteRequest, VoteResponse
from lograft.consensus.types import HardState, LogEnd, ReplicaKey, VoterSet
from lograft.model.types import NO_EPOCH, NO_NODE, Epoch, NodeId, Offset

ME = ReplicaKey(NodeId(1), UUID(int=9))


EMPTY = LogEnd(NO_EPOCH, Offset(0))
NEVER_STARTED = HardState()


def only_voter(hard_state: HardState = NEVER_STARTED, log_end: LogEnd = EMPTY) -> RaftCore:
    return RaftCore(ME, VoterSet.of([ME]), hard_state=hard_state, log_end=log_end)


def lead(core: RaftCore) -> None:
    assert core.start(0).persist is not None
    assert core.on_persisted(0).persist is not None
    assert core.on_persisted(0).lead is not None


def test_nothing_happens_before_the_hard_state_is_on_disk() -> None:
    core = only_voter()
    effects = core.start(0)
    assert effects.persist == HardState(Epoch(1), NO_NODE, ME)
    assert effects.lead is None
    assert not core.is_leader


def test_the_same_disk_counts_not_the_same_number() -> None:
    other_disk = ReplicaKey(ME.node_id, UUID(int=10))
    core = RaftCore(ME, VoterSet.of([other_disk]), hard_state=NEVER_STARTED, log_end=EMPTY)
    assert core.start(0).persist is None


def test_a_static_voter_has_no_directory_id() -> None:
    static = VoterSet.of([ReplicaKey(ME.node_id)])
    assert static.is_only(ME)


@pytest.mark.parametrize(("candidate", "is_granted"), [(2, True), (3, False)])
def test_a_vote_without_directory_id_is_of_the_node(candidate: int, is_granted: bool) -> None:
    """The disk of a restarted voter of a static quorum."""
    voters = VoterSet.of([ReplicaKey(NodeId(node)) for node in (1, 2, 3)])
    voted = HardState(Epoch(4), NO_NODE, ReplicaKey(NodeId(2)))
    core = RaftCore(ME, voters, hard_state=voted, log_end=EMPTY)
    core.start(0)
    asking = ReplicaKey(NodeId(candidate), UUID(int=candidate))
    request = VoteRequest(sender=asking, to=ME, epoch=Epoch(4), log_end=EMPTY)
    effects = core.step(request, 1)
    if effects.persist is not None:
        effects = core.on_persisted(1)
    (sent,) = effects.send
    assert isinstance(sent.message, VoteResponse)
    assert sent.message.granted is is_granted


def test_losing_what_was_durable_is_a_broken_invariant() -> None:
    core = only_voter()
    lead(core)
    core.on_appended(Offset(3), 0)
    core.on_durable(Offset(3), 0)
    with pytest.raises(AssertionError):
        core.on_durable(Offset(2), 0)


@given(
    st.integers(-1, 20),
    st.integers(-1, 20),
    st.integers(0, 50),
    st.lists(st.tuples(st.booleans(), st.integers(1, 5)), max_size=30),
)
def test_epochs_grow_and_the_watermark_never_falls(
    state_epoch: int, log_epoch: int, end: int, steps: list[tuple[bool, int]]
) -> None:
    core = only_voter(HardState(Epoch(state_epoch)), LogEnd(Epoch(log_epoch), Offset(end)))
    lead(core)
    assert core.epoch > max(state_epoch, log_epoch)
    durable, watermark = end, int(core.high_watermark)
    for is_append, count in steps:
        if is_append:
            core.on_appended(Offset(core.log_end.offset + count), 0)
        else:
            durable = min(durable + count, core.log_end.offset)
            core.on_durable(Offset(durable), 0)
        assert core.high_watermark >= watermark
        assert core.high_watermark <= durable
        watermark = core.high_watermark
    if durable > end:
        assert core.high_watermark == durable
    else:
        assert core.high_watermark == -1
