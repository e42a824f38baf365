"""The shell of a coordinator core: appends its records, sends its replies and runs its timers.

A shard exists during one leader epoch of its partition. Records that it has appended may be lost
when that epoch ends, so a reply is released only after its records are committed in the same epoch.
When the epoch ends, the shard is closed and all waiting requests fail with NotCoordinator: a high
watermark that advances later may cover other records at the same offsets (KAFKA-20634).
"""

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Final, Generic, NamedTuple, TypeVar

from lograft.broker.coordinators.coordinator_records import records_batch
from lograft.broker.errors import (
    NotEnoughReplicas,
    NotLeader,
    PartitionOffline,
)
from lograft.broker.partitions.partition import Partition
from lograft.coordination.errors import (
    CoordinatorLoading,
    CoordinatorNotAvailable,
    NotCoordinator,
)
from lograft.coordination.types import CoordinatorResult, Core, Effect, Reply, Ticket
from lograft.model.errors import DiskFailed, ErrorCode, LograftError, Rejected
from lograft.model.seams import Clock
from lograft.model.types import Epoch, Offset
from lograft.storage.errors import MessageTooLarge, RecordListTooLarge
from lograft.storage.types import Origin, TransactionEnd
from lograft.wire.message import Message

LOGGER: Final = logging.getLogger(__name__)
C = TypeVar("C", bound=Core)
#: Expired deadlines that are handled before other tasks of the event loop run.
DEADLINES_PER_TURN: Final = 50
#: Minimum interval between checks for replies whose commit timed out.
COMMIT_CHECK_INTERVAL_MS: Final = 100
TOO_LARGE: Final = (MessageTooLarge, RecordListTooLarge)


class Waiter(Ticket):
    """The reply or error of a command. Has a future only if a caller must wait."""

    __slots__ = ("_error", "_future", "_reply")

    def __init__(self) -> None:
        self._reply: Message | None = None
        self._error: LograftError | None = None
        self._future: asyncio.Future[Message] | None = None

    def answer(self, reply: Message) -> None:
        if self._future is None:
            if self._reply is None and self._error is None:
                self._reply = reply
        elif not self._future.done():
            self._future.set_result(reply)

    def fail(self, error: LograftError) -> None:
        if self._future is None:
            if self._reply is None and self._error is None:
                self._error = error
        elif not self._future.done():
            self._future.set_exception(error)

    def take(self) -> "Message | asyncio.Future[Message]":
        """Returns the reply, or a future for it. Raises the error of the command."""
        if self._error is not None:
            raise self._error
        if self._reply is not None:
            return self._reply
        if self._future is None:
            self._future = asyncio.get_running_loop().create_future()
        return self._future


class Uncommitted(NamedTuple):
    """Replies and effects that are released when all records below `end` are committed."""

    end: Offset
    replies: Sequence[Reply]
    effects: Sequence[Effect]
    deadline_ms: int


class ShardSettings(NamedTuple):
    #: How long replies wait for a commit.
    commit_timeout_ms: Callable[[], int]
    compression: Callable[[], int]
    #: Must not call a coordinator before it returns.
    on_effect: Callable[[Effect], None]


class Shard(Generic[C]):
    """A `partition.LogWatcher`. `on_loaded` comes first, `close` last."""

    def __init__(
        self, partition: Partition, core: C, *, clock: Clock, settings: ShardSettings
    ) -> None:
        assert partition.leader is not None, partition
        self.partition = partition
        self.leader_epoch: Epoch = partition.leader.leader_epoch
        self.core = core
        self.is_loaded = False
        self.is_over = False
        self._clock = clock
        self._settings = settings
        #: The end of the log that the core has replayed.
        self._end = Offset(0)
        #: Ordered by `end`.
        self._uncommitted: deque[Uncommitted] = deque()
        #: Commands whose replies are pending, in order.
        self._waiting: dict[Waiter, None] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._timer_ms = 0
        self._commit_timer: asyncio.TimerHandle | None = None

    # ── lifecycle ────────────────────────────────────────────────────────────────────────────

    def is_current(self, partition: Partition) -> bool:
        """Returns whether the partition is still in the leader epoch of this shard."""
        leader = partition.leader
        return (
            partition is self.partition
            and leader is not None
            and leader.leader_epoch == self.leader_epoch
            and not partition.is_deleted
            and not partition.offline
        )

    def on_loaded(self, end: Offset) -> None:
        """Called when the core has replayed the whole log."""
        self.is_loaded = True
        self._end = end
        self.partition.watchers[self] = None
        self.apply(self.core.on_loaded(self._clock.mono_ms()))

    def close(self) -> None:
        """Called when the leadership ends. Whether the last records were committed is unknown."""
        self.is_over = True
        self.partition.watchers.pop(self, None)
        for timer in (self._timer, self._commit_timer):
            if timer is not None:
                timer.cancel()
        self._uncommitted.clear()
        if self.is_loaded:
            _send(self.core.on_unloaded())
        waiting, self._waiting = self._waiting, {}
        for waiter in waiting:
            waiter.fail(NotCoordinator(f"{self.partition.topic_partition} has a new leader"))

    @property
    def end(self) -> Offset:
        return self._end

    # ── commands ─────────────────────────────────────────────────────────────────────────────

    def ask(
        self, decide: Callable[[C, Ticket, int], CoordinatorResult]
    ) -> "Message | asyncio.Future[Message]":
        """Executes a command; returns the reply or a future for it. Raises its errors."""
        waiter = Waiter()
        self.apply(decide(self.core, waiter, self._clock.mono_ms()))
        reply = waiter.take()
        if isinstance(reply, asyncio.Future):
            self._waiting[waiter] = None
            reply.add_done_callback(lambda _: self._waiting.pop(waiter, None))
        return reply

    def apply(self, outcome: CoordinatorResult) -> None:
        """Appends and replays the records; releases the replies when they are committed."""
        if outcome.records:
            try:
                self._write(outcome)
            except LograftError as error:
                if outcome.separable and len(outcome.records) > 1 and isinstance(error, TOO_LARGE):
                    for half in _halves(outcome):
                        self.apply(half)
                    return
                self._fail(outcome, coordinator_error(error))
                self._set_timer()
                return
        if not outcome.waits:
            _send(outcome.replies)
            self._release_when_committed((), outcome.effects)
        else:
            self._release_when_committed(outcome.replies, outcome.effects)
        if outcome.then is not None:
            self.apply(outcome.then())
        self._set_timer()

    def append_marker(self, end: TransactionEnd) -> Offset:
        """Appends a transaction marker; returns the log end offset, which is not committed yet."""
        self._end = self.partition.append_marker(end, now_ms=self._clock.wall_ms()).end_offset
        self.core.replay_marker(end.producer_id, end.producer_epoch, committed=end.commit)
        self._set_timer()
        return self._end

    def _write(self, outcome: CoordinatorResult) -> None:
        wall_ms = self._clock.wall_ms()
        batch = records_batch(
            outcome.records,
            wall_ms=wall_ms,
            producer=outcome.producer,
            compression=self._settings.compression(),
        )
        base_offset = self._append(batch, wall_ms)
        replay = self.core.replay
        if outcome.producer is None:
            for index, record in enumerate(outcome.records):
                replay(record, offset=Offset(base_offset + index))
            return
        producer_id, producer_epoch = outcome.producer
        for index, record in enumerate(outcome.records):
            replay(
                record,
                offset=Offset(base_offset + index),
                producer_id=producer_id,
                producer_epoch=producer_epoch,
            )

    def _append(self, batch: bytearray, wall_ms: int) -> Offset:
        self.partition.check_append(acks_all=True)
        result = self.partition.append(memoryview(batch), now_ms=wall_ms, origin=Origin.COORDINATOR)
        self._end = result.end_offset
        return result.base_offset

    def _fail(self, outcome: CoordinatorResult, error: LograftError) -> None:
        LOGGER.info("%s: could not append records: %s", self.partition.topic_partition, error)
        if outcome.on_failure is not None:
            _send(outcome.on_failure(error_code_of(error)))
        for ticket, _ in outcome.replies:
            assert isinstance(ticket, Waiter)
            ticket.fail(error)

    # ── replies that wait for the commit ─────────────────────────────────────────────────────

    def _release_when_committed(self, replies: Sequence[Reply], effects: Sequence[Effect]) -> None:
        if not replies and not effects:
            return
        if not self._uncommitted and self._end <= self.partition.high_watermark:
            self._release(replies, effects)
            return
        deadline_ms = self._clock.mono_ms() + self._settings.commit_timeout_ms()
        self._uncommitted.append(Uncommitted(self._end, replies, effects, deadline_ms))
        if self._commit_timer is None:
            self._set_commit_timer()

    def on_committed(self, partition: Partition) -> None:
        high_watermark = partition.high_watermark
        uncommitted = self._uncommitted
        while uncommitted and uncommitted[0].end <= high_watermark:
            first = uncommitted.popleft()
            self._release(first.replies, first.effects)

    def on_moved(self, partition: Partition) -> None:
        pass

    def _release(self, replies: Sequence[Reply], effects: Sequence[Effect]) -> None:
        _send(replies)
        for effect in effects:
            self._settings.on_effect(effect)

    def _set_commit_timer(self) -> None:
        deadlines = (entry.deadline_ms for entry in self._uncommitted if entry.replies)
        deadline_ms = next(deadlines, None)
        if deadline_ms is not None:
            wait_ms = max(COMMIT_CHECK_INTERVAL_MS, deadline_ms - self._clock.mono_ms())
            loop = asyncio.get_running_loop()
            self._commit_timer = loop.call_later(wait_ms / 1000, self._on_commit_timer)

    def _on_commit_timer(self) -> None:
        """Fails the requests whose commit timed out. Their records may still be committed, so their
        effects remain."""
        self._commit_timer = None
        now_ms = self._clock.mono_ms()
        remaining: deque[Uncommitted] = deque()
        for entry in self._uncommitted:
            if entry.deadline_ms > now_ms:
                remaining.append(entry)
                continue
            for ticket, _ in entry.replies:
                assert isinstance(ticket, Waiter)
                ticket.fail(CoordinatorNotAvailable("the records are not committed yet"))
            if entry.effects:
                remaining.append(entry._replace(replies=()))
        self._uncommitted = remaining
        self._set_commit_timer()

    # ── deadlines of the core ────────────────────────────────────────────────────────────────

    def _set_timer(self) -> None:
        """Does not restart a timer that expires too early, because most deadlines are extended all
        the time: `_on_timer` sets the next one."""
        next_ms = self.core.next_deadline_ms()
        if (
            next_ms is None
            or self.is_over
            or (self._timer is not None and self._timer_ms <= next_ms)
        ):
            return
        if self._timer is not None:
            self._timer.cancel()
        wait_ms = max(0, next_ms - self._clock.mono_ms())
        self._timer_ms = next_ms
        self._timer = asyncio.get_running_loop().call_later(wait_ms / 1000, self._on_timer)

    def _on_timer(self) -> None:
        self._timer = None
        for _ in range(DEADLINES_PER_TURN):
            now_ms = self._clock.mono_ms()
            next_ms = self.core.next_deadline_ms()
            if next_ms is None or next_ms > now_ms or self.is_over:
                break
            self.apply(self.core.on_time(now_ms))
        self._set_timer()


def _halves(outcome: CoordinatorResult) -> tuple[CoordinatorResult, CoordinatorResult]:
    assert not outcome.effects or len(outcome.effects) == len(outcome.records), outcome
    middle = len(outcome.records) // 2
    return (
        replace(
            outcome, records=outcome.records[:middle], effects=outcome.effects[:middle], replies=()
        ),
        replace(outcome, records=outcome.records[middle:], effects=outcome.effects[middle:]),
    )


def coordinator_error(error: LograftError) -> LograftError:
    """Returns the error of a coordinator for an error of its log, which clients do not know."""
    if isinstance(error, NotLeader | PartitionOffline | DiskFailed):
        return NotCoordinator(str(error))
    if isinstance(error, NotEnoughReplicas):
        return CoordinatorNotAvailable(str(error))
    if isinstance(error, TOO_LARGE):
        # As in Kafka. MESSAGE_TOO_LARGE is for producers, which can send smaller batches.
        return Rejected(ErrorCode.UNKNOWN_SERVER_ERROR, str(error))
    return error


def error_code_of(error: LograftError) -> ErrorCode:
    if isinstance(error, Rejected):
        return error.code
    if isinstance(error, NotCoordinator):
        return ErrorCode.NOT_COORDINATOR
    if isinstance(error, CoordinatorLoading):
        return ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    if isinstance(error, CoordinatorNotAvailable):
        return ErrorCode.COORDINATOR_NOT_AVAILABLE
    return ErrorCode.UNKNOWN_SERVER_ERROR


def _send(replies: Sequence[Reply]) -> None:
    for ticket, reply in replies:
        assert isinstance(ticket, Waiter)
        ticket.answer(reply)
