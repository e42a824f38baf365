"""A partition that follows one leader: executes the effects of its role for the leader's responses.

Appends are made at once, on the event loop. A worker truncates the log; until it is done nothing
else uses the log, and new assignments in the metadata wait.
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
    """Log start and log end of the leader, or the error."""

    error: ErrorCode
    log_start: Offset
    end: Offset


class LogTruncator(Protocol):
    """The part of `LogManager` that followers need."""

    async def truncate(self, partition: Partition, to: Offset) -> None: ...

    async def truncate_fully_and_start_at(self, partition: Partition, offset: Offset) -> None: ...


class Stream(Protocol):
    """The fetch stream of the partition's leader (`replica_fetcher.py`)."""

    def consider(self, followed: "FollowerPartition") -> None:
        """The partition may have a fetch to send."""

    def fetch_bounds(self, followed: "FollowerPartition") -> Awaitable[Bounds]: ...

    def last_contact_ms(self, followed: "FollowerPartition") -> int: ...


class FollowerPartition:
    __slots__ = (
        "_clock",
        "_on_lost",
        "_spawn",
        "_stream",
        "_truncator",
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
        truncator: LogTruncator,
        clock: Clock,
        spawn: Spawn,
        on_lost: Callable[[Partition, int], None],
    ) -> None:
        """`on_lost` is called with the number of committed records that a truncation removes, or
        with 0 if the follower stops before that."""
        self.partition = partition
        self.role = role
        self._stream = stream
        self._truncator = truncator
        self._clock = clock
        self._spawn = spawn
        self._on_lost = on_lost
        #: The role has ended: later responses from the leader are ignored.
        self.is_over = False

    @property
    def key(self) -> tuple[UUID, int]:
        return self.partition.topic_id, self.partition.index

    @property
    def retry_at_ms(self) -> int:
        return self.role.retry_at_ms

    @property
    def is_throttled(self) -> bool:
        """Whether the throttle of reassignments applies to this replica now."""
        partition = self.partition
        replicas = partition.config.follower_replication_throttled_replicas
        return (
            bool(replicas)
            and is_throttled(replicas, partition, partition.me)
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
        """Time of the last sign that the leader leads this partition; -1 if none since its last
        response."""
        return self._stream.last_contact_ms(self)

    def consider(self) -> None:
        """The role may have a fetch to send."""
        self._stream.consider(self)

    def on_flushed(self) -> None:
        self._stream.consider(self)

    def on_request_failed(self, fetch: FollowerFetch, *, now_ms: int) -> None:
        if not self.is_over:
            self.role.on_request_failed(fetch, now_ms=now_ms)

    def on_response(self, fetch: FollowerFetch, data: PartitionData, *, now_ms: int) -> None:
        """Handles a response; `data.records` is a view that is valid only during the call."""
        if self.is_over:
            return
        diverging = data.diverging_epoch
        response = LeaderResponse(
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
            effects = self.role.on_response(fetch, response, now_ms=now_ms)
        except TruncatesCommitted as failure:
            self._stop_following(failure)
            return
        if effects.append:
            assert isinstance(data.records, memoryview | bytes), "fetched records are in memory"
            self._append(memoryview(data.records), now_ms=now_ms)
        else:
            self._execute(effects)

    def _append(self, records: memoryview, *, now_ms: int) -> None:
        try:
            self.partition.append_as_follower(records, now_ms=self._clock.wall_ms())
        except DiskFailed:
            # The log dir is offline now, and fetching has stopped.
            return
        except BeginsInsideBatch as found:
            self._hold_log()
            work = self._start_inside_batch(found.base, bytearray(records))
            self._spawn(work, name=f"restart log {self._name}")
            return
        except LograftError as error:
            LOGGER.warning("%s: rejected the leader's records: %s", self._name, error)
            self.role.on_append_failed(now_ms=now_ms)
            return
        self._execute(self.role.on_appended())

    def _execute(self, effects: FollowerEffects) -> None:
        if effects.lost_records:
            LOGGER.error(
                "%s: lost %d committed records after an unclean leader election",
                self._name,
                effects.lost_records,
            )
            self._on_lost(self.partition, effects.lost_records)
        if effects.truncate_to is not None:
            self._truncate(self._truncator.truncate, effects.truncate_to)
        elif effects.restart_at is not None:
            self._truncate(self._truncator.truncate_fully_and_start_at, effects.restart_at)
        elif effects.fetch_bounds:
            self._spawn(self._fetch_bounds(), name=f"bounds {self._name}")
        if effects.high_watermark is not None:
            self.partition.notify_committed()
        if effects.advance_log_start is not None:
            self.partition.advance_log_start(effects.advance_log_start)

    def _hold_log(self) -> None:
        """Reserves the log from now on, not only when the worker starts, so that no new role
        writes."""
        log = self.partition.log
        assert log is not None
        self.partition.begin_truncation(KeptOffsets(log.durable_offset, log.log_start_offset))

    async def _start_inside_batch(self, base: Offset, records: bytearray) -> None:
        """The leader's log starts inside a batch. This log, which is still empty, stores the whole
        batch and keeps its log start offset for readers."""
        partition = self.partition
        assert partition.log is not None
        log_start = partition.log.log_start_offset
        try:
            await self._truncator.truncate_fully_and_start_at(partition, base)
        except LograftError as error:
            LOGGER.warning("%s: could not restart the log at %d: %s", self._name, base, error)
            return
        finally:
            partition.end_truncation()
        self._append(memoryview(records), now_ms=self._clock.mono_ms())
        if partition.log is not None and partition.log.end_offset >= log_start:
            partition.advance_log_start(log_start)
        partition.on_truncated()
        self._stream.consider(self)

    def _truncate(
        self, truncate: Callable[[Partition, Offset], Awaitable[None]], to: Offset
    ) -> None:
        self._hold_log()
        self._spawn(self._run_truncation(truncate, to), name=f"truncate {self._name}")

    async def _run_truncation(
        self, truncate: Callable[[Partition, Offset], Awaitable[None]], to: Offset
    ) -> None:
        partition = self.partition
        try:
            await truncate(partition, to)
        except LograftError as error:
            # The log dir went offline, or the partition was deleted: its role has ended.
            LOGGER.warning("%s: could not truncate the log to %d: %s", self._name, to, error)
            return
        finally:
            partition.end_truncation()
        # The role could not change during the truncation.
        LOGGER.info(
            "%s: truncated the log to offset %d, where it diverged from the leader's",
            self._name,
            to,
        )
        self._execute(self.role.on_log_truncated())
        partition.on_truncated()
        self._stream.consider(self)

    async def _fetch_bounds(self) -> None:
        error, log_start, end = await self._stream.fetch_bounds(self)
        if self.is_over:
            return
        try:
            effects = self.role.on_leader_bounds(
                error, log_start=log_start, end=end, now_ms=self._clock.mono_ms()
            )
        except TruncatesCommitted as failure:
            self._stop_following(failure)
            return
        self._execute(effects)
        self._stream.consider(self)

    def _stop_following(self, failure: TruncatesCommitted) -> None:
        """Stops fetching and stays out of sync until an operator or new metadata decides."""
        LOGGER.error("%s: stopped fetching from the leader: %s", self._name, failure)
        self._on_lost(self.partition, 0)

    @property
    def _name(self) -> str:
        return f"{self.partition.topic}-{self.partition.index}"


def _code(number: int) -> ErrorCode:
    try:
        return ErrorCode(number)
    except ValueError:
        return ErrorCode.UNKNOWN_SERVER_ERROR
