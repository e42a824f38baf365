"""Properties of a follower alone, with any responses of its leader."""

from hypothesis import given, settings
from hypothesis import strategies as st

from lograft.model.errors import ErrorCode
from lograft.model.types import BrokerEpoch, Epoch, NodeId, Offset
from lograft.replication.errors import TruncatesCommitted
from lograft.replication.isr_follower import (
    NEXT_STATE,
    FollowerState,
    IsrFollower,
    Step,
)
from lograft.replication.types import (
    EpochEnd,
    FollowerEffects,
    FollowerFetch,
    LeaderResponse,
    ReplicaLog,
    ReplicationSettings,
)
from lograft.storage.log import Log
from tests.unit.replication.list_log import Entry, ListLog

ERRORS = [
    ErrorCode.OFFSET_OUT_OF_RANGE,
    ErrorCode.UNKNOWN_LEADER_EPOCH,
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.CORRUPT_MESSAGE,
    ErrorCode.UNKNOWN_TOPIC_ID,
]
COMMANDS = st.tuples(
    st.sampled_from(
        ["ask", "ask", "records", "records", "empty", "diverging", "error", "bounds", "flush"]
    ),
    st.integers(0, 12),
    st.integers(0, 12),
)


def apply(follower: IsrFollower, log: ListLog, effects: FollowerEffects) -> None:
    if effects.advance_log_start is not None:
        log.advance_start(effects.advance_log_start)
    if effects.truncate_to is not None:
        log.truncate(effects.truncate_to)
        apply(follower, log, follower.on_log_truncated())
    if effects.restart_at is not None:
        log.restart_at(effects.restart_at)
        apply(follower, log, follower.on_log_truncated())


@settings(max_examples=200, deadline=None)
@given(st.booleans(), st.lists(COMMANDS, max_size=40))
def test_watermark_and_log_stay_in_order(
    durable_only: bool, commands: list[tuple[str, int, int]]
) -> None:
    log = ListLog()
    log.append(0, [Entry(0, 0)] * 3 + [Entry(1, 0)] * 3)
    log.flush()
    follower = IsrFollower(
        NodeId(2),
        broker_epoch=BrokerEpoch(2),
        leader=NodeId(1),
        leader_epoch=Epoch(3),
        log=log,
        high_watermark=Offset(2),
        settings=ReplicationSettings(durable_only=durable_only),
        can_lose_committed=False,
    )
    asked: FollowerFetch | None = None
    now_ms = 0
    for name, number, other in commands:
        before = follower.high_watermark
        now_ms += 500
        try:
            if name == "ask":
                fetch = follower.next_fetch(now_ms)
                if fetch is not None:
                    asked = fetch
                    assert fetch.offset == log.end_offset
                    assert not durable_only or log.durable_offset == log.end_offset
            elif name == "flush":
                log.flush()
            elif name == "bounds":
                effects = follower.on_leader_bounds(
                    ErrorCode.NONE, log_start=Offset(number), end=Offset(other), now_ms=now_ms
                )
                apply(follower, log, effects)
            elif asked is not None:
                answer = LeaderResponse(high_watermark=Offset(number), log_start_offset=Offset(0))
                if name == "records":
                    answer = answer._replace(has_records=True)
                elif name == "diverging":
                    end = EpochEnd(Epoch(min(number, 2)), Offset(other))
                    answer = answer._replace(diverging=end)
                elif name == "error":
                    answer = LeaderResponse(ERRORS[number % len(ERRORS)])
                effects = follower.on_response(asked, answer, now_ms=now_ms)
                if effects.append:
                    log.append(log.end_offset, [Entry(3, 0)] * (other + 1))
                    effects = follower.on_appended()
                apply(follower, log, effects)
        except TruncatesCommitted:
            break
        assert follower.high_watermark >= before
        assert log.log_start_offset <= follower.high_watermark <= log.end_offset
    if follower.failure is not None:
        assert follower.failure.to < follower.high_watermark
        assert follower.state is FollowerState.FAILED
        assert follower.next_fetch(now_ms + 10_000) is None


def test_every_state_can_be_reached_and_most_can_be_left() -> None:
    left = {state for state, _ in NEXT_STATE}
    # A fenced or failed follower is replaced when the metadata brings a new epoch.
    assert set(FollowerState) - left == {FollowerState.FENCED, FollowerState.FAILED}
    assert set(NEXT_STATE.values()) == set(FollowerState)
    assert {step for _, step in NEXT_STATE} == set(Step)


def stored_log(log: Log) -> ReplicaLog:
    """For mypy: the cores accept the log on disk as well as the log of these tests."""
    return log
