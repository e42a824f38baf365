"""Any message in any state: a core may reject it, or stop with a reason, but never violate an
invariant."""

from collections.abc import Callable
from uuid import UUID

from hypothesis import example, given, settings
from hypothesis import strategies as st

from lograft.consensus import messages as m
from lograft.consensus.core import RaftCore
from lograft.consensus.errors import CommittedAtRisk
from lograft.consensus.types import (
    Effects,
    HardState,
    LogEnd,
    LogSlice,
    ReplicaKey,
    SnapshotId,
    Voter,
    VoterSet,
)
from lograft.model.types import NO_EPOCH, NO_NODE, Epoch, NodeId, Offset

SMALL = st.integers(-1, 4) | st.sampled_from((-5, (1 << 31) - 1, (1 << 63) - 1))
EPOCH = SMALL.map(Epoch)
OFFSET = SMALL.map(Offset)
NODE = st.integers(-2, 5).map(NodeId)
KEY = st.builds(ReplicaKey, NODE, st.integers(0, 5).map(lambda n: UUID(int=n)))
END = st.builds(LogEnd, EPOCH, OFFSET)
SNAPSHOT = st.builds(SnapshotId, OFFSET, EPOCH)
NUMBER = st.integers(0, 12)
ERROR = st.sampled_from(list(m.Error)) | st.just(m.Error.NONE)
SLICE = st.builds(
    LogSlice,
    OFFSET,
    OFFSET,
    st.lists(st.tuples(EPOCH, OFFSET), max_size=3).map(tuple),
    st.just(()),
)

MESSAGE: st.SearchStrategy[m.Message] = st.one_of(
    st.builds(
        m.VoteRequest,
        sender=KEY,
        to=KEY | st.just(ReplicaKey(NodeId(1))),
        epoch=EPOCH,
        log_end=END,
        pre_vote=st.booleans(),
    ),
    st.builds(
        m.VoteResponse,
        sender=NODE,
        epoch=EPOCH,
        leader=NODE,
        granted=st.booleans(),
        error=ERROR,
        request_id=NUMBER,
    ),
    st.builds(
        m.BeginQuorumEpochRequest,
        sender=KEY,
        to=KEY | st.just(ReplicaKey(NodeId(1))),
        epoch=EPOCH,
    ),
    st.builds(m.BeginQuorumEpochResponse, sender=NODE, epoch=EPOCH, leader=NODE, error=ERROR),
    st.builds(
        m.EndQuorumEpochRequest,
        sender=KEY,
        epoch=EPOCH,
        successors=st.lists(KEY, max_size=3).map(tuple),
    ),
    st.builds(
        m.FetchRequest,
        sender=KEY,
        epoch=EPOCH,
        log_end=END,
        high_watermark=OFFSET,
        wait_ms=st.integers(-5, 500),
    ),
    st.builds(
        m.FetchResponse,
        sender=NODE,
        epoch=EPOCH,
        leader=NODE,
        error=ERROR,
        high_watermark=OFFSET,
        diverging=st.none() | END,
        snapshot=st.none() | SNAPSHOT,
        entries=st.none() | SLICE,
        request_id=NUMBER,
    ),
    st.builds(m.FetchSnapshotRequest, sender=KEY, epoch=EPOCH, snapshot=SNAPSHOT, position=SMALL),
    st.builds(
        m.FetchSnapshotResponse,
        sender=NODE,
        epoch=EPOCH,
        leader=NODE,
        error=ERROR,
        snapshot=st.none() | SNAPSHOT,
        position=SMALL,
        size_bytes=SMALL,
        data=st.sampled_from((b"", b"ab")),
        request_id=NUMBER,
    ),
    st.builds(m.AddVoterRequest, voter=st.builds(Voter, KEY)),
    st.builds(m.RemoveVoterRequest, key=KEY),
    st.builds(m.UpdateVoterRequest, voter=st.builds(Voter, KEY)),
    st.builds(m.UpgradeVersionRequest, voter=st.builds(Voter, KEY), validate_only=st.booleans()),
)
Step = tuple[str, m.Message | int]
STEP: st.SearchStrategy[Step] = st.one_of(
    st.tuples(st.just("message"), MESSAGE),
    st.tuples(st.just("message"), MESSAGE),
    st.tuples(st.just("wait"), st.integers(0, 2_000)),
    st.tuples(st.just("disk"), st.just(0)),
    st.tuples(st.just("unreachable"), st.integers(1, 3)),
)


#: Possible contents of its disk: the hard state, and the number of records of epoch 0.
LIVES = [
    (HardState(), 0),
    (HardState(Epoch(1), NodeId(2)), 0),
    (HardState(Epoch(1), NodeId(2)), 2),
    (HardState(Epoch(1), NodeId(1)), 2),
    (HardState(Epoch(2), voted_for=ReplicaKey(NodeId(3), UUID(int=3))), 1),
]


class Obedient:
    """Executes the effects of the core, immediately or when the disk completes next."""

    def __init__(self, core: RaftCore) -> None:
        self.core = core
        self.now_ms = 0
        self.todo: list[Callable[[], Effects]] = []

    def do(self, effects: Effects) -> None:
        core = self.core
        if effects.persist is not None:
            self.todo.append(lambda: core.on_persisted(self.now_ms))
        if effects.install is not None:
            snapshot = effects.install
            self.todo.append(
                lambda: core.on_installed(
                    snapshot, size_bytes=2, voters=core.voters, now_ms=self.now_ms
                )
            )
        if effects.lead is not None:
            self.do(core.on_appended(Offset(core.log_end.offset + 1), self.now_ms))
        if effects.append_voters is not None:
            end = Offset(core.log_end.offset + 1)
            self.do(core.on_appended(end, self.now_ms, voters=effects.append_voters))

    def take(self, kind: str, value: m.Message | int) -> None:
        if kind == "wait":
            assert isinstance(value, int)
            self.now_ms += value
            self.do(self.core.tick(self.now_ms))
        elif kind == "disk":
            todo, self.todo = self.todo, []
            for call in todo:
                self.do(call())
            self.do(self.core.on_durable(self.core.log_end.offset, self.now_ms))
        elif kind == "unreachable":
            assert isinstance(value, int)
            self.do(self.core.on_unreachable(NodeId(value), self.now_ms))
        else:
            assert not isinstance(value, int)
            self.do(self.core.step(value, self.now_ms))


#: A leader without an id, for a voter that is a candidate and has no leader either.
NO_LEADER = m.BeginQuorumEpochRequest(
    sender=ReplicaKey(NO_NODE), to=ReplicaKey(NodeId(1)), epoch=Epoch(2)
)


@example(1, LIVES[4], [("wait", 2_000), ("message", NO_LEADER)], False)
@settings(max_examples=400, deadline=None)
@given(st.integers(1, 4), st.sampled_from(LIVES), st.lists(STEP, max_size=40), st.booleans())
def test_a_core_survives_whatever_it_is_told(
    me: int, life: tuple[HardState, int], steps: list[Step], is_static: bool
) -> None:
    state, length = life
    voters = VoterSet.of(
        (ReplicaKey(NodeId(node), UUID(int=0 if is_static else node)) for node in (1, 2, 3)),
        is_static=is_static,
    )
    core = RaftCore(
        ReplicaKey(NodeId(me), UUID(int=me)),
        voters,
        hard_state=state,
        log_end=LogEnd(Epoch(0) if length else NO_EPOCH, Offset(length)),
    )
    driver = Obedient(core)
    driver.do(core.start(0))
    driver.take("disk", 0)
    epoch, watermark = core.epoch, core.high_watermark
    for kind, value in steps:
        try:
            driver.take(kind, value)
        except CommittedAtRisk:
            return
        assert core.epoch >= epoch
        assert core.high_watermark >= watermark
        assert core.high_watermark <= core.log_end.offset
        epoch, watermark = core.epoch, core.high_watermark
