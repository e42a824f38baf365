"""The follower's side of ISR replication: one object for one leader epoch of one partition.

It fetches from the end of its own log and includes the epoch of its last record. The leader's
response contains records, or the point where the logs diverge. The order that protects readers of
this replica (KAFKA-14704): truncate first, and raise the high watermark only after a response that
found this log to be a prefix of the leader's.

A response counts only if it belongs to the fetch in flight. A delayed one, from an earlier leader
or from before a truncation, does not describe the present log.
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
    LeaderResponse,
    ReplicaLog,
    ReplicationSettings,
)

#: First backoff after an error; it doubles up to replica.fetch.backoff.ms.
BACKOFF_MS_MIN: Final = 20
BACKOFF_DOUBLINGS_MAX: Final = 16


class FollowerState(Enum):
    READY = "ready"
    #: A fetch is in flight.
    FETCHING = "fetching"
    #: The shell appends the fetched records.
    APPENDING = "appending"
    #: The shell truncates or restarts the log.
    TRUNCATING = "truncating"
    #: The fetch offset is out of range: the leader's log start and log end are being requested.
    FETCHING_BOUNDS = "fetching bounds"
    #: After an error, until `retry_at_ms`.
    BACKING_OFF = "backing off"
    #: The leader knows a newer epoch: waits for the metadata.
    FENCED = "fenced"
    #: A truncation would lose committed records.
    FAILED = "failed"


class Step(Enum):
    FETCH = "fetch"
    RECORDS = "records"
    NOTHING_NEW = "nothing new"
    TRUNCATE = "truncate"
    OUT_OF_RANGE = "out of range"
    DONE = "done"
    ERROR = "error"
    TIME = "time"
    FENCE = "fence"
    LOSS = "loss"


NEXT_STATE: Final = {
    (FollowerState.READY, Step.FETCH): FollowerState.FETCHING,
    (FollowerState.FETCHING, Step.RECORDS): FollowerState.APPENDING,
    (FollowerState.FETCHING, Step.NOTHING_NEW): FollowerState.READY,
    (FollowerState.FETCHING, Step.TRUNCATE): FollowerState.TRUNCATING,
    (FollowerState.FETCHING, Step.OUT_OF_RANGE): FollowerState.FETCHING_BOUNDS,
    (FollowerState.FETCHING, Step.ERROR): FollowerState.BACKING_OFF,
    (FollowerState.FETCHING, Step.FENCE): FollowerState.FENCED,
    (FollowerState.FETCHING, Step.LOSS): FollowerState.FAILED,
    (FollowerState.APPENDING, Step.DONE): FollowerState.READY,
    (FollowerState.APPENDING, Step.ERROR): FollowerState.BACKING_OFF,
    (FollowerState.TRUNCATING, Step.DONE): FollowerState.READY,
    (FollowerState.FETCHING_BOUNDS, Step.TRUNCATE): FollowerState.TRUNCATING,
    (FollowerState.FETCHING_BOUNDS, Step.NOTHING_NEW): FollowerState.READY,
    (FollowerState.FETCHING_BOUNDS, Step.ERROR): FollowerState.BACKING_OFF,
    (FollowerState.FETCHING_BOUNDS, Step.FENCE): FollowerState.FENCED,
    (FollowerState.FETCHING_BOUNDS, Step.LOSS): FollowerState.FAILED,
    (FollowerState.BACKING_OFF, Step.TIME): FollowerState.READY,
}


class IsrFollower:
    __slots__ = (
        "_errors",
        "_in_flight",
        "_log",
        "_response",
        "_truncate_to",
        "broker_epoch",
        "can_lose_committed",
        "failure",
        "high_watermark",
        "leader",
        "leader_epoch",
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
        can_lose_committed: bool,
    ) -> None:
        assert log.log_start_offset <= high_watermark <= log.end_offset, (high_watermark, log)
        self.me = me
        self.broker_epoch = broker_epoch
        self.leader = leader
        self.leader_epoch = leader_epoch
        #: Never decreases while the process runs, except when committed records are lost.
        self.high_watermark = high_watermark
        self.settings = settings
        #: An unclean election took place or is allowed: the leader's log may lack committed
        #: records.
        self.can_lose_committed = can_lose_committed
        self.state = FollowerState.READY
        self.retry_at_ms = 0
        self.failure: TruncatesCommitted | None = None
        self._log = log
        self._in_flight: FollowerFetch | None = None
        self._response = LeaderResponse()
        self._truncate_to = NO_OFFSET
        #: Number of consecutive errors.
        self._errors = 0

    # Fetching.

    def next_fetch(self, now_ms: int) -> FollowerFetch | None:
        """Returns the next fetch, or None if none is due. Where only records on disk count, the
        fetch offset promises that they are, so the fetch waits for the flush."""
        if self.state is FollowerState.BACKING_OFF and now_ms >= self.retry_at_ms:
            self._step(Step.TIME)
        if self.state is not FollowerState.READY or self.waits_for_flush:
            return None
        log = self._log
        self._step(Step.FETCH)
        self._in_flight = FollowerFetch(
            self.me,
            self.broker_epoch,
            self.leader_epoch,
            log.end_offset,
            log.latest_epoch,
            log.log_start_offset,
        )
        return self._in_flight

    @property
    def waits_for_flush(self) -> bool:
        return self.settings.durable_only and self._log.durable_offset < self._log.end_offset

    def on_response(
        self, fetch: FollowerFetch, response: LeaderResponse, *, now_ms: int
    ) -> FollowerEffects:
        if not self._is_in_flight(fetch):
            return NO_FOLLOWER_EFFECTS
        if response.error is not ErrorCode.NONE:
            return self._on_error(response.error, now_ms=now_ms)
        self._errors = 0
        if response.diverging is not None:
            own = EpochEnd(*self._log.epoch_end(response.diverging.epoch))
            return self._truncate(
                truncation_offset(response.diverging, own=own, log_end=self._log.end_offset)
            )
        if self._log.log_start_offset < self._log.end_offset <= response.log_start_offset:
            return self._restart_log(response.log_start_offset)
        self._response = response
        if response.has_records:
            self._step(Step.RECORDS)
            return FollowerEffects(append=True)
        self._step(Step.NOTHING_NEW)
        return self._follow_leader()

    def on_request_failed(self, fetch: FollowerFetch, *, now_ms: int) -> None:
        """The connection broke, or the request timed out."""
        if self._is_in_flight(fetch):
            self._on_error(ErrorCode.NETWORK_EXCEPTION, now_ms=now_ms)

    def on_appended(self) -> FollowerEffects:
        """The records of the response are in the log."""
        self._step(Step.DONE)
        return self._follow_leader()

    def on_append_failed(self, *, now_ms: int) -> None:
        """The records were corrupt or do not continue the log: they are fetched again later."""
        self._back_off(now_ms)

    def _is_in_flight(self, fetch: FollowerFetch) -> bool:
        return self.state is FollowerState.FETCHING and fetch is self._in_flight

    def _on_error(self, error: ErrorCode, *, now_ms: int) -> FollowerEffects:
        if error is ErrorCode.OFFSET_OUT_OF_RANGE:
            self._step(Step.OUT_OF_RANGE)
            return FollowerEffects(fetch_bounds=True)
        if error is ErrorCode.FENCED_LEADER_EPOCH:
            self._step(Step.FENCE)
            return NO_FOLLOWER_EFFECTS
        self._back_off(now_ms)
        return NO_FOLLOWER_EFFECTS

    def _back_off(self, now_ms: int) -> None:
        """Backs off, briefly at first: most often the leader's metadata is just older than ours."""
        self._step(Step.ERROR)
        wait_ms = BACKOFF_MS_MIN << min(self._errors, BACKOFF_DOUBLINGS_MAX)
        self.retry_at_ms = now_ms + min(wait_ms, self.settings.replica_fetch_backoff_ms)
        self._errors += 1

    def _follow_leader(self) -> FollowerEffects:
        """Adopts the leader's high watermark and log start, up to the end of this log. A newly
        elected leader may report a lower high watermark than ours, which is ignored."""
        moved = self._raise_high_watermark(min(self._response.high_watermark, self._log.end_offset))
        start = self._response.log_start_offset
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

    # Divergence.

    def on_leader_bounds(
        self, error: ErrorCode, *, log_start: Offset, end: Offset, now_ms: int
    ) -> FollowerEffects:
        """Handles the leader's ListOffsets response in this epoch, or its error."""
        if self.state is not FollowerState.FETCHING_BOUNDS:
            return NO_FOLLOWER_EFFECTS
        if error is ErrorCode.FENCED_LEADER_EPOCH:
            self._step(Step.FENCE)
        elif error is not ErrorCode.NONE:
            self._on_error(ErrorCode.NETWORK_EXCEPTION, now_ms=now_ms)
        elif log_start > self._log.end_offset:
            return self._restart_log(log_start)
        elif end < self._log.end_offset:
            return self._truncate(end)
        else:
            self._step(Step.NOTHING_NEW)
        return NO_FOLLOWER_EFFECTS

    def _truncate(self, to: Offset) -> FollowerEffects:
        self._truncate_to = to
        if to >= self.high_watermark:
            self._step(Step.TRUNCATE)
            return FollowerEffects(truncate_to=to)
        if not self.can_lose_committed:
            self._step(Step.LOSS)
            self.failure = TruncatesCommitted(to, high_watermark=self.high_watermark)
            raise self.failure
        self._step(Step.TRUNCATE)
        return FollowerEffects(truncate_to=to, lost_records=self.high_watermark - to)

    def _restart_log(self, leader_start: Offset) -> FollowerEffects:
        """Restarts the log. The leader has deleted all offsets of this log, so nothing can prove
        that our records were the leader's: they must not reappear, not even after a crash."""
        self._step(Step.TRUNCATE)
        self._truncate_to = leader_start
        return FollowerEffects(restart_at=leader_start)

    def on_log_truncated(self) -> FollowerEffects:
        """The log was truncated to the offset, or restarted there."""
        log = self._log
        # A batch that contains the offset was removed completely.
        assert log.end_offset <= self._truncate_to, (log.end_offset, self._truncate_to)
        self._step(Step.DONE)
        if log.log_start_offset > self.high_watermark:
            # Restarted above it: the records that the leader deleted were committed.
            self.high_watermark = log.log_start_offset
            return FollowerEffects(high_watermark=self.high_watermark)
        if log.end_offset < self.high_watermark:
            assert self.can_lose_committed, (log.end_offset, self.high_watermark)
            self.high_watermark = log.end_offset
            return FollowerEffects(high_watermark=self.high_watermark)
        return NO_FOLLOWER_EFFECTS

    def _step(self, step: Step) -> None:
        self.state = NEXT_STATE[self.state, step]
