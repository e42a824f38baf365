"""The follower's side of ISR replication: one object for one leader epoch of one partition.

It fetches from the end of its own log and says which epoch its last record has. The leader's
answer brings records, or the point where the logs part. The order that keeps readers of this
replica safe (KAFKA-14704): cut first, raise the high watermark only by an answer that found this
log to be a prefix of the leader's.

Answers count only if they belong to the fetch in flight: one that an earlier leader, or this
leader before a cut, sent late says nothing about the log as it is now.
"""

from enum import Enum
from typing import Final

from lograft.model.errors import ErrorCode
from lograft.model.types import NO_OFFSET, BrokerEpoch, Epoch, NodeId, Offset
from lograft.replication.divergence import truncation_offset
from lograft.replication.errors import TruncatesCommitted
from lograft.replication.types import (
    NO_FOLLOWER_EFFECTS,
    EpochEnd,
    FollowerEffects,
    FollowerFetch,
    LeaderAnswer,
    ReplicaLog,
    ReplicationSettings,
)

#: replica.fetch.backoff.ms is the longest pause after an error; the first one is this long.
BACKOFF_MS_MIN: Final = 20
BACKOFF_DOUBLINGS_MAX: Final = 16


class FollowerState(Enum):
    READY = "ready"
    #: A fetch is on its way.
    FETCHING = "fetching"
    #: The shell appends what came.
    APPENDING = "appending"
    #: The shell cuts or restarts the log.
    CUTTING = "cutting"
    #: Out of the leader's range: it is asked where its log begins and ends.
    ASKING = "asking"
    #: After an error, until a time.
    BACKING_OFF = "backing off"
    #: The leader knows a newer epoch: nothing to do until the metadata brings it.
    FENCED = "fenced"
    #: A cut would lose committed records.
    FAILED = "failed"


class Step(Enum):
    FETCH = "fetch"
    RECORDS = "records"
    NOTHING_NEW = "nothing new"
    CUT = "cut"
    OUT_OF_RANGE = "out of range"
    DONE = "done"
    ERROR = "error"
    TIME = "time"
    FENCE = "fence"
    LOSS = "loss"
    ACCEPT_LOSS = "accept loss"


NEXT_STATE: Final = {
    (FollowerState.READY, Step.FETCH): FollowerState.FETCHING,
    (FollowerState.FETCHING, Step.RECORDS): FollowerState.APPENDING,
    (FollowerState.FETCHING, Step.NOTHING_NEW): FollowerState.READY,
    (FollowerState.FETCHING, Step.CUT): FollowerState.CUTTING,
    (FollowerState.FETCHING, Step.OUT_OF_RANGE): FollowerState.ASKING,
    (FollowerState.FETCHING, Step.ERROR): FollowerState.BACKING_OFF,
    (FollowerState.FETCHING, Step.FENCE): FollowerState.FENCED,
    (FollowerState.FETCHING, Step.LOSS): FollowerState.FAILED,
    (FollowerState.APPENDING, Step.DONE): FollowerState.READY,
    (FollowerState.APPENDING, Step.ERROR): FollowerState.BACKING_OFF,
    (FollowerState.CUTTING, Step.DONE): FollowerState.READY,
    (FollowerState.ASKING, Step.CUT): FollowerState.CUTTING,
    (FollowerState.ASKING, Step.NOTHING_NEW): FollowerState.READY,
    (FollowerState.ASKING, Step.ERROR): FollowerState.BACKING_OFF,
    (FollowerState.ASKING, Step.FENCE): FollowerState.FENCED,
    (FollowerState.ASKING, Step.LOSS): FollowerState.FAILED,
    (FollowerState.BACKING_OFF, Step.TIME): FollowerState.READY,
    (FollowerState.FAILED, Step.ACCEPT_LOSS): FollowerState.CUTTING,
}


class IsrFollower:
    __slots__ = (
        "_answer",
        "_asked",
        "_cut_to",
        "_errors",
        "_log",
        "broker_epoch",
        "failure",
        "high_watermark",
        "leader",
        "leader_epoch",
        "may_lose_committed",
        "me",
        "retry_at_ms",
        "settings",
        "state",
    )

    def __init__(
        self,
        me: NodeId,
        *,
        broker_epoch: BrokerEpoch,
        leader: NodeId,
        leader_epoch: Epoch,
        log: ReplicaLog,
        high_watermark: Offset,
        settings: ReplicationSettings,
        may_lose_committed: bool,
    ) -> None:
        assert log.log_start_offset <= high_watermark <= log.end_offset, (high_watermark, log)
        self.me = me
        self.broker_epoch = broker_epoch
        self.leader = leader
        self.leader_epoch = leader_epoch
        #: Never falls while this process lives, except with committed records that were lost.
        self.high_watermark = high_watermark
        self.settings = settings
        #: An unclean election is known or allowed: the leader's log may lack committed records.
        self.may_lose_committed = may_lose_committed
        self.state = FollowerState.READY
        self.retry_at_ms = 0
        self.failure: TruncatesCommitted | None = None
        self._log = log
        self._asked: FollowerFetch | None = None
        self._answer = LeaderAnswer()
        self._cut_to = NO_OFFSET
        #: In a row.
        self._errors = 0

    # Fetching.

    def next_fetch(self, now_ms: int) -> FollowerFetch | None:
        """What to ask the leader for; None: nothing now. Where only what is on disk counts, the
        fetch is the promise that it is there, so it waits for the flush."""
        if self.state is FollowerState.BACKING_OFF and now_ms >= self.retry_at_ms:
            self._step(Step.TIME)
        if self.state is not FollowerState.READY or self.waits_for_flush:
            return None
        log = self._log
        self._step(Step.FETCH)
        self._asked = FollowerFetch(
            self.me,
            self.broker_epoch,
            self.leader_epoch,
            log.end_offset,
            log.latest_epoch,
            log.log_start_offset,
        )
        return self._asked

    @property
    def waits_for_flush(self) -> bool:
        return self.settings.durable_only and self._log.durable_offset < self._log.end_offset

    def on_answer(
        self, fetch: FollowerFetch, answer: LeaderAnswer, *, now_ms: int
    ) -> FollowerEffects:
        if not self._is_awaited(fetch):
            return NO_FOLLOWER_EFFECTS
        if answer.error is not ErrorCode.NONE:
            return self._on_error(answer.error, now_ms=now_ms)
        self._errors = 0
        if answer.diverging is not None:
            own = EpochEnd(*self._log.epoch_end(answer.diverging.epoch))
            return self._cut(
                truncation_offset(answer.diverging, own=own, log_end=self._log.end_offset)
            )
        if self._log.log_start_offset < self._log.end_offset <= answer.log_start_offset:
            return self._restart(answer.log_start_offset)
        self._answer = answer
        if answer.has_records:
            self._step(Step.RECORDS)
            return FollowerEffects(append=True)
        self._step(Step.NOTHING_NEW)
        return self._follow_leader()

    def on_request_failed(self, fetch: FollowerFetch, *, now_ms: int) -> None:
        """The connection broke, or the time was over."""
        if self._is_awaited(fetch):
            self._on_error(ErrorCode.NETWORK_EXCEPTION, now_ms=now_ms)

    def on_appended(self) -> FollowerEffects:
        """The answer's records are in the log."""
        self._step(Step.DONE)
        return self._follow_leader()

    def on_append_failed(self, *, now_ms: int) -> None:
        """The records were damaged on their way, or do not fit: fetched again later."""
        self._back_off(now_ms)

    def _is_awaited(self, fetch: FollowerFetch) -> bool:
        return self.state is FollowerState.FETCHING and fetch is self._asked

    def _on_error(self, error: ErrorCode, *, now_ms: int) -> FollowerEffects:
        if error is ErrorCode.OFFSET_OUT_OF_RANGE:
            self._step(Step.OUT_OF_RANGE)
            return FollowerEffects(ask_bounds=True)
        if error is ErrorCode.FENCED_LEADER_EPOCH:
            self._step(Step.FENCE)
            return NO_FOLLOWER_EFFECTS
        self._back_off(now_ms)
        return NO_FOLLOWER_EFFECTS

    def _back_off(self, now_ms: int) -> None:
        """Short at first: mostly the leader has only not read as much of the metadata as we."""
        self._step(Step.ERROR)
        wait_ms = BACKOFF_MS_MIN << min(self._errors, BACKOFF_DOUBLINGS_MAX)
        self.retry_at_ms = now_ms + min(wait_ms, self.settings.replica_fetch_backoff_ms)
        self._errors += 1

    def _follow_leader(self) -> FollowerEffects:
        """Takes over the leader's high watermark and log start, as far as this log reaches. A
        leader fresh from an election tells a lower watermark than we know: ours stays."""
        moved = self._raise_high_watermark(min(self._answer.high_watermark, self._log.end_offset))
        start = self._answer.log_start_offset
        advance = start if self._log.log_start_offset < start <= self.high_watermark else None
        if not moved and advance is None:
            return NO_FOLLOWER_EFFECTS
        return FollowerEffects(
            high_watermark=self.high_watermark if moved else None, advance_log_start=advance
        )

    def _raise_high_watermark(self, to: Offset) -> bool:
        if to <= self.high_watermark:
            return False
        self.high_watermark = to
        return True

    # Where the logs part.

    def on_leader_bounds(
        self, error: ErrorCode, *, log_start: Offset, end: Offset, now_ms: int
    ) -> FollowerEffects:
        """The leader's ListOffsets answer in this epoch, or why there is none."""
        if self.state is not FollowerState.ASKING:
            return NO_FOLLOWER_EFFECTS
        if error is ErrorCode.FENCED_LEADER_EPOCH:
            self._step(Step.FENCE)
        elif error is not ErrorCode.NONE:
            self._on_error(ErrorCode.NETWORK_EXCEPTION, now_ms=now_ms)
        elif log_start > self._log.end_offset:
            return self._restart(log_start)
        elif end < self._log.end_offset:
            return self._cut(end)
        else:
            self._step(Step.NOTHING_NEW)
        return NO_FOLLOWER_EFFECTS

    def _cut(self, to: Offset) -> FollowerEffects:
        self._cut_to = to
        if to >= self.high_watermark:
            self._step(Step.CUT)
            return FollowerEffects(truncate_to=to)
        if not self.may_lose_committed:
            self._step(Step.LOSS)
            self.failure = TruncatesCommitted(to, high_watermark=self.high_watermark)
            raise self.failure
        self._step(Step.CUT)
        return FollowerEffects(truncate_to=to, lost_records=self.high_watermark - to)

    def _restart(self, leader_start: Offset) -> FollowerEffects:
        """All that we have was deleted by the leader, or was never its own: nobody can tell any
        more, so it must not come back, not even after a crash."""
        self._step(Step.CUT)
        self._cut_to = leader_start
        return FollowerEffects(restart_at=leader_start)

    def accept_loss(self) -> FollowerEffects:
        """An operator, or metadata that tells of an unclean election, lets the cut happen."""
        self._step(Step.ACCEPT_LOSS)
        self.failure = None
        self.may_lose_committed = True
        lost = self.high_watermark - self._cut_to
        return FollowerEffects(truncate_to=self._cut_to, lost_records=lost)

    def on_log_cut(self) -> FollowerEffects:
        """The log ends at the cut, or begins anew there."""
        log = self._log
        # A batch that only ends above the cut goes whole.
        assert log.end_offset <= self._cut_to, (log.end_offset, self._cut_to)
        self._step(Step.DONE)
        if log.log_start_offset > self.high_watermark:
            # Begun anew above it: what the leader deleted was committed.
            self.high_watermark = log.log_start_offset
            return FollowerEffects(high_watermark=self.high_watermark)
        if log.end_offset < self.high_watermark:
            assert self.may_lose_committed, (log.end_offset, self.high_watermark)
            self.high_watermark = log.end_offset
            return FollowerEffects(high_watermark=self.high_watermark)
        return NO_FOLLOWER_EFFECTS

    def _step(self, step: Step) -> None:
        self.state = NEXT_STATE[self.state, step]
