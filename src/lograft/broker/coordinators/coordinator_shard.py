"""One coordinator core in one leadership of its partition: writes for it, answers for it, watches
the clock for it.

A shard lives in one leader epoch. What it has appended may be lost with that epoch, so nobody is
told of it before it is committed in it; when the epoch ends the shard goes with all that waits
(KAFKA-20634: a watermark that moves later moves over other records).
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
#: So many things that are due are done before the loop gets its turn.
DUE_PER_TURN: Final = 50
#: Replies that have waited too long for a commit are looked for at most this often.
COMMIT_LOOK_MS: Final = 100
TOO_LARGE: Final = (MessageTooLarge, RecordListTooLarge)


class Waiter(Ticket):
    """A request and its reply. The future is made only if somebody has to wait."""

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
        """The reply if it is there, else what brings it. Raises what the request failed with."""
        if self._error is not None:
            raise self._error
        if self._reply is not None:
            return self._reply
        if self._future is None:
            self._future = asyncio.get_running_loop().create_future()
        return self._future


class Uncommitted(NamedTuple):
    """What is said and done once everything below `end` is committed."""

    end: Offset
    replies: Sequence[Reply]
    effects: Sequence[Effect]
    give_up_ms: int


class ShardSettings(NamedTuple):
    #: How long replies wait for a commit.
    commit_timeout_ms: Callable[[], int]
    compression: Callable[[], int]
    #: Must not ask a coordinator before it returns.
    on_effect: Callable[[Effect], None]


class Shard(Generic[C]):
    """A `partition.LogWatcher`."""

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
        #: Where the log ends for the core: it has replayed everything below.
        self._end = Offset(0)
        #: By `end`.
        self._uncommitted: deque[Uncommitted] = deque()
        #: Requests that were not answered at once. (A dict as a set with an order.)
        self._waiting: dict[Waiter, None] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._timer_ms = 0
        self._commit_timer: asyncio.TimerHandle | None = None

    # ── life ─────────────────────────────────────────────────────────────────────────────────

    def is_of(self, partition: Partition) -> bool:
        """Whether this is still the leadership in which the shard was made."""
        leader = partition.leader
        return (
            partition is self.partition
            and leader is not None
            and leader.leader_epoch == self.leader_epoch
            and not partition.is_deleted
            and not partition.offline
        )

    def on_loaded(self, end: Offset) -> None:
        """The core has replayed the whole log."""
        self.is_loaded = True
        self._end = end
        self.partition.watchers[self] = None
        self.apply(self.core.on_loaded(self._clock.mono_ms()))

    def close(self) -> None:
        """The leadership is over: nobody learns from here what became of what was written."""
        self.is_over = True
        self.partition.watchers.pop(self, None)
        for timer in (self._timer, self._commit_timer):
            if timer is not None:
                timer.cancel()
        self._uncommitted.clear()
        if self.is_loaded:
            _answer(self.core.on_unloaded())
        waiting, self._waiting = self._waiting, {}
        for waiter in waiting:
            waiter.fail(NotCoordinator(f"{self.partition.topic_partition} has a new leader"))

    @property
    def end(self) -> Offset:
        return self._end

    # ── asking the core ──────────────────────────────────────────────────────────────────────

    def ask(
        self, decide: Callable[[C, Ticket, int], CoordinatorResult]
    ) -> "Message | asyncio.Future[Message]":
        """The reply, or what brings it. What the decision raises comes out unchanged."""
        waiter = Waiter()
        self.apply(decide(self.core, waiter, self._clock.mono_ms()))
        found = waiter.take()
        if isinstance(found, asyncio.Future):
            self._waiting[waiter] = None
            found.add_done_callback(lambda _: self._waiting.pop(waiter, None))
        return found

    def apply(self, outcome: CoordinatorResult) -> None:
        """Writes, replays, and answers once it is safe to."""
        if outcome.records:
            try:
                self._write(outcome)
            except LograftError as error:
                if outcome.separable and len(outcome.records) > 1 and isinstance(error, TOO_LARGE):
                    for half in _halves(outcome):
                        self.apply(half)
                    return
                self._refuse(outcome, as_told(error))
                self._set_timer()
                return
        if not outcome.waits:
            _answer(outcome.replies)
            self._when_committed((), outcome.effects)
        else:
            self._when_committed(outcome.replies, outcome.effects)
        if outcome.then is not None:
            self.apply(outcome.then())
        self._set_timer()

    def append_marker(self, end: TransactionEnd) -> Offset:
        """Ends a producer's transaction here; returns the end of the log, to be committed."""
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

    def _refuse(self, outcome: CoordinatorResult, error: LograftError) -> None:
        LOGGER.info("%s: no records were appended: %s", self.partition.topic_partition, error)
        if outcome.failed is not None:
            _answer(outcome.failed(code_told(error)))
        for ticket, _ in outcome.replies:
            assert isinstance(ticket, Waiter)
            ticket.fail(error)

    # ── answers that wait for the commit ─────────────────────────────────────────────────────

    def _when_committed(self, replies: Sequence[Reply], effects: Sequence[Effect]) -> None:
        if not replies and not effects:
            return
        if not self._uncommitted and self._end <= self.partition.high_watermark:
            self._release(replies, effects)
            return
        give_up_ms = self._clock.mono_ms() + self._settings.commit_timeout_ms()
        self._uncommitted.append(Uncommitted(self._end, replies, effects, give_up_ms))
        if self._commit_timer is None:
            self._set_commit_timer()

    def on_committed(self, partition: Partition) -> None:
        reached = partition.high_watermark
        uncommitted = self._uncommitted
        while uncommitted and uncommitted[0].end <= reached:
            first = uncommitted.popleft()
            self._release(first.replies, first.effects)

    def on_moved(self, partition: Partition) -> None:
        pass

    def _release(self, replies: Sequence[Reply], effects: Sequence[Effect]) -> None:
        _answer(replies)
        for effect in effects:
            self._settings.on_effect(effect)

    def _set_commit_timer(self) -> None:
        give_up_ms = next((one.give_up_ms for one in self._uncommitted if one.replies), None)
        if give_up_ms is not None:
            wait_ms = max(COMMIT_LOOK_MS, give_up_ms - self._clock.mono_ms())
            loop = asyncio.get_running_loop()
            self._commit_timer = loop.call_later(wait_ms / 1000, self._on_commit_timer)

    def _on_commit_timer(self) -> None:
        """Whoever waited too long is told so: the records may be committed yet. What is to be done
        then stays."""
        self._commit_timer = None
        now_ms = self._clock.mono_ms()
        kept: deque[Uncommitted] = deque()
        for one in self._uncommitted:
            if one.give_up_ms > now_ms:
                kept.append(one)
                continue
            for ticket, _ in one.replies:
                assert isinstance(ticket, Waiter)
                ticket.fail(CoordinatorNotAvailable("the records are not committed yet"))
            if one.effects:
                kept.append(one._replace(replies=()))
        self._uncommitted = kept
        self._set_commit_timer()

    # ── time ─────────────────────────────────────────────────────────────────────────────────

    def _set_timer(self) -> None:
        """A timer that comes too early finds nothing to do: most deadlines are only put off."""
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
        for _ in range(DUE_PER_TURN):
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


def as_told(error: LograftError) -> LograftError:
    """Clients of a coordinator know nothing of the log behind it."""
    if isinstance(error, NotLeader | PartitionOffline | DiskFailed):
        return NotCoordinator(str(error))
    if isinstance(error, NotEnoughReplicas):
        return CoordinatorNotAvailable(str(error))
    if isinstance(error, TOO_LARGE):
        # As Kafka: MESSAGE_TOO_LARGE is what producers are told, who can send less.
        return Rejected(ErrorCode.UNKNOWN_SERVER_ERROR, str(error))
    return error


def code_told(error: LograftError) -> ErrorCode:
    if isinstance(error, Rejected):
        return error.code
    if isinstance(error, NotCoordinator):
        return ErrorCode.NOT_COORDINATOR
    if isinstance(error, CoordinatorLoading):
        return ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    if isinstance(error, CoordinatorNotAvailable):
        return ErrorCode.COORDINATOR_NOT_AVAILABLE
    return ErrorCode.UNKNOWN_SERVER_ERROR


def _answer(replies: Sequence[Reply]) -> None:
    for ticket, reply in replies:
        assert isinstance(ticket, Waiter)
        ticket.answer(reply)
