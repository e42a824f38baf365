"""A partition that follows one leader: does what its role says with the leader's answers.

Appends happen at once, on the loop. A cut is a worker's job; until it is done nobody else uses the
log, and whatever the metadata says about the partition waits for it.
"""

import logging
from collections.abc import Awaitable, Callable
from typing import Final, NamedTuple, Protocol
from uuid import UUID

from lograft.broker.partitions.partition import KeptOffsets, Partition
from lograft.broker.partitions.replication_throttle import is_throttled
from lograft.model.errors import DiskFailed, ErrorCode, LograftError
from lograft.model.seams import Clock, Spawn
from lograft.model.types import Epoch, NodeId, Offset
from lograft.replication.errors import TruncatesCommitted
from lograft.replication.roles import FollowerRole
from lograft.replication.types import EpochEnd, FollowerEffects, FollowerFetch, LeaderResponse
from lograft.storage.errors import BeginsInsideBatch
from lograft.wire.messages.fetch import PartitionData

LOGGER: Final = logging.getLogger(__name__)


class Bounds(NamedTuple):
    """Where the leader's log begins and ends, or why that is not known."""

    error: ErrorCode
    log_start: Offset
    end: Offset


class LogCutter(Protocol):
    """`LogManager`, as far as followers need it."""

    async def truncate(self, partition: Partition, to: Offset) -> None: ...

    async def truncate_fully_and_start_at(self, partition: Partition, offset: Offset) -> None: ...


class Stream(Protocol):
    """The fetches from one leader that this partition is part of (`replica_fetcher.py`)."""

    def consider(self, followed: "FollowerPartition") -> None:
        """It may have something to ask for."""

    def fetch_bounds(self, followed: "FollowerPartition") -> Awaitable[Bounds]: ...

    def last_contact_ms(self, followed: "FollowerPartition") -> int: ...


class FollowerPartition:
    __slots__ = (
        "_clock",
        "_cutter",
        "_on_lost",
        "_spawn",
        "_stream",
        "is_over",
        "partition",
        "role",
    )

    def __init__(
        self,
        partition: Partition,
        role: FollowerRole,
        stream: Stream,
        *,
        cutter: LogCutter,
        clock: Clock,
        spawn: Spawn,
        on_lost: Callable[[Partition, int], None],
    ) -> None:
        """`on_lost` hears of committed records that are cut away, or would be."""
        self.partition = partition
        self.role = role
        self._stream = stream
        self._cutter = cutter
        self._clock = clock
        self._spawn = spawn
        self._on_lost = on_lost
        #: The role has ended: whatever still comes back from the leader is not for the next one.
        self.is_over = False

    @property
    def key(self) -> tuple[UUID, int]:
        return self.partition.topic_id, self.partition.index

    @property
    def retry_at_ms(self) -> int:
        return self.role.retry_at_ms

    @property
    def is_throttled(self) -> bool:
        """Whether the limit on reassignments holds for this replica now."""
        partition = self.partition
        named = partition.config.follower_replication_throttled_replicas
        return (
            bool(named)
            and is_throttled(named, partition, partition.me)
            and partition.me not in partition.assignment.isr
        )

    def next_fetch(self, now_ms: int) -> FollowerFetch | None:
        if self.is_over or self.partition.kept_offsets is not None:
            return None
        return self.role.next_fetch(now_ms)

    @property
    def is_disk_busy(self) -> bool:
        """Whether only the disk keeps the partition from its next fetch."""
        if self.is_over or self.partition.offline:
            return False
        return self.partition.kept_offsets is not None or self.role.waits_for_flush

    @property
    def last_contact_ms(self) -> int:
        """When the leader was last known to lead this partition; -1: not since its last answer."""
        return self._stream.last_contact_ms(self)

    def consider(self) -> None:
        """The role may have something to ask for."""
        self._stream.consider(self)

    def on_flushed(self) -> None:
        self._stream.consider(self)

    def on_request_failed(self, fetch: FollowerFetch, *, now_ms: int) -> None:
        if not self.is_over:
            self.role.on_request_failed(fetch, now_ms=now_ms)

    def on_response(self, fetch: FollowerFetch, data: PartitionData, *, now_ms: int) -> None:
        """`data.records` is a view that lives only during the call."""
        if self.is_over:
            return
        diverging = data.diverging_epoch
        answer = LeaderResponse(
            _code(data.error_code),
            Offset(data.high_watermark),
            Offset(data.log_start_offset),
            None
            if diverging is None
            else EpochEnd(Epoch(diverging.epoch), Offset(diverging.end_offset)),
            bool(data.records),
            NodeId(-1 if data.current_leader is None else data.current_leader.leader_id),
            Epoch(-1 if data.current_leader is None else data.current_leader.leader_epoch),
        )
        try:
            effects = self.role.on_response(fetch, answer, now_ms=now_ms)
        except TruncatesCommitted as failure:
            self._failed(failure)
            return
        if effects.append:
            assert isinstance(data.records, memoryview | bytes), "an answer's records are in memory"
            self._append(memoryview(data.records), now_ms=now_ms)
        else:
            self._do(effects)

    def _append(self, records: memoryview, *, now_ms: int) -> None:
        try:
            self.partition.append_as_follower(records, now_ms=self._clock.wall_ms())
        except DiskFailed:
            # The log dir is offline by now: nobody fetches for it any more.
            return
        except BeginsInsideBatch as found:
            self._hold_log()
            work = self._begin_inside(found.base, bytearray(records))
            self._spawn(work, name=f"begin {self._name}")
            return
        except LograftError as error:
            LOGGER.warning("%s: records of the leader refused: %s", self._name, error)
            self.role.on_append_failed(now_ms=now_ms)
            return
        self._do(self.role.on_appended())

    def _do(self, effects: FollowerEffects) -> None:
        if effects.lost_records:
            LOGGER.error(
                "%s: %d committed records are lost: its leader was elected uncleanly",
                self._name,
                effects.lost_records,
            )
            self._on_lost(self.partition, effects.lost_records)
        if effects.truncate_to is not None:
            self._cut(self._cutter.truncate, effects.truncate_to)
        elif effects.restart_at is not None:
            self._cut(self._cutter.truncate_fully_and_start_at, effects.restart_at)
        elif effects.fetch_bounds:
            self._spawn(self._ask_bounds(), name=f"bounds {self._name}")
        if effects.high_watermark is not None:
            self.partition.notify_committed()
        if effects.advance_log_start is not None:
            self.partition.advance_log_start(effects.advance_log_start)

    def _hold_log(self) -> None:
        """From now on, not only from when the worker begins: no new role may write meanwhile."""
        log = self.partition.log
        assert log is not None
        self.partition.begin_truncation(KeptOffsets(log.durable_offset, log.log_start_offset))

    async def _begin_inside(self, base: Offset, records: bytearray) -> None:
        """The leader's log begins inside a batch. The own one, empty so far, takes it whole, and
        begins for readers where it did."""
        partition = self.partition
        assert partition.log is not None
        log_start = partition.log.log_start_offset
        try:
            await self._cutter.truncate_fully_and_start_at(partition, base)
        except LograftError as error:
            LOGGER.warning("%s did not begin at %d: %s", self._name, base, error)
            return
        finally:
            partition.end_truncation()
        self._append(memoryview(records), now_ms=self._clock.mono_ms())
        if partition.log is not None and partition.log.end_offset >= log_start:
            partition.advance_log_start(log_start)
        partition.on_truncated()
        self._stream.consider(self)

    def _cut(self, cut: Callable[[Partition, Offset], Awaitable[None]], to: Offset) -> None:
        self._hold_log()
        self._spawn(self._run_cut(cut, to), name=f"cut {self._name}")

    async def _run_cut(
        self, cut: Callable[[Partition, Offset], Awaitable[None]], to: Offset
    ) -> None:
        partition = self.partition
        try:
            await cut(partition, to)
        except LograftError as error:
            # The dir went offline, or the partition was deleted: its role is over.
            LOGGER.warning("%s was not cut to %d: %s", self._name, to, error)
            return
        finally:
            partition.end_truncation()
        # The role could not change while the log was being cut.
        LOGGER.info("%s: cut to offset %d, where it parts from its leader's", self._name, to)
        self._do(self.role.on_log_truncated())
        partition.on_truncated()
        self._stream.consider(self)

    async def _ask_bounds(self) -> None:
        error, log_start, end = await self._stream.fetch_bounds(self)
        if self.is_over:
            return
        try:
            effects = self.role.on_leader_bounds(
                error, log_start=log_start, end=end, now_ms=self._clock.mono_ms()
            )
        except TruncatesCommitted as failure:
            self._failed(failure)
            return
        self._do(effects)
        self._stream.consider(self)

    def _failed(self, failure: TruncatesCommitted) -> None:
        """It stays as it is, out of sync, until a person or new metadata decides."""
        LOGGER.error("%s stops following: %s", self._name, failure)
        self._on_lost(self.partition, 0)

    @property
    def _name(self) -> str:
        return f"{self.partition.topic}-{self.partition.index}"


def _code(number: int) -> ErrorCode:
    try:
        return ErrorCode(number)
    except ValueError:
        return ErrorCode.UNKNOWN_SERVER_ERROR
