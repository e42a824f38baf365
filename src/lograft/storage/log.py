"""The log of one partition: appends, reads, lookups, truncation and flushes.

`open` (with `recovery.py`) builds it from its files; `retention.py` and `cleaner.py` remove old
records. All methods run on the event loop except those documented as blocking: the `run` methods of
plans run in a worker, and so does a truncation, during which nothing else may use the log.
"""

from bisect import bisect_right
from collections import deque
from collections.abc import Callable, Iterator
from functools import partial
from typing import Final
from uuid import UUID

from crc32c import crc32c

from lograft.model.errors import DiskFailed
from lograft.model.metrics import Gauge, Sample
from lograft.model.seams import Disk, File, FileSlice
from lograft.model.types import Epoch, Offset, TopicPartition
from lograft.storage import appends, retention, truncation
from lograft.storage import recovery as recovering
from lograft.storage.epochs import LeaderEpochs
from lograft.storage.errors import (
    CorruptBatch,
    LogClosed,
    LogCorrupt,
    OffsetOutOfRange,
    StorageError,
)
from lograft.storage.flush_plan import FlushPlan
from lograft.storage.producer_snapshots import write_snapshot
from lograft.storage.producers import ProducerStates, Verification
from lograft.storage.retention import Removal
from lograft.storage.segment import Segment
from lograft.storage.timestamps import find_latest_timestamp, find_timestamp
from lograft.storage.types import (
    AbortedTransaction,
    AppendResult,
    LogConfig,
    Origin,
    RecoveryPlan,
    TimestampAndOffset,
)
from lograft.storage.validation import AppendRules, CheckedBatch, check_in_worker
from lograft.wire.batches import (
    HEADER_SIZE,
    LENGTH_OVERHEAD,
    unpack_header,
)

__all__ = ["FlushPlan", "Log"]

#: Inactive segments whose files and indexes stay open after a read.
OPEN_SEGMENTS_MAX: Final = 2
#: Offsets in an index have 31 bits and are relative to the base offset of the segment.
RELATIVE_OFFSET_MAX: Final = 2**31 - 1
ROLL_UNKNOWN: Final = -(2**63)
NO_BOUND: Final = Offset(2**63 - 1)

SEGMENTS: Final = Gauge("lograft_log_segments", "Segments of all logs of this broker.")
SIZE_BYTES: Final = Gauge("lograft_log_size_bytes", "Size of all logs of this broker.")
PRODUCERS: Final = Gauge(
    "lograft_log_producers", "Idempotent producers with state, counted for each partition."
)
OPEN_TRANSACTIONS: Final = Gauge(
    "lograft_log_open_transactions", "Open transactions, counted for each partition."
)


class LogTotals:
    """The sums over some logs."""

    __slots__ = ("_open_transactions", "_producers", "_segments", "_size_bytes")

    def __init__(self) -> None:
        self._segments = 0
        self._size_bytes = 0
        self._producers = 0
        self._open_transactions = 0

    def add(self, log: "Log") -> None:
        self._segments += len(log.segments)
        self._size_bytes += log.size_bytes
        self._producers += len(log.producers)
        self._open_transactions += log.producers.open_transactions

    def collect_samples(self) -> Iterator[Sample]:
        yield SEGMENTS.sample(self._segments)
        yield SIZE_BYTES.sample(self._size_bytes)
        yield PRODUCERS.sample(self._producers)
        yield OPEN_TRANSACTIONS.sample(self._open_transactions)


class Log:
    __slots__ = (
        "_bases",
        "_closed",
        "_config",
        "_opened",
        "_roll_after",
        "_unflushed_count",
        "created_ms",
        "directory",
        "directory_changed",
        "disk",
        "durable_offset",
        "end_offset",
        "epochs",
        "epochs_written",
        "has_lost_batches",
        "is_removing",
        "log_start_offset",
        "lower_recovery_point",
        "producers",
        "removals",
        "rules",
        "segments",
        "topic_id",
        "topic_partition",
        "truncations",
        "unflushed_files",
    )

    def __init__(
        self,
        disk: Disk,
        directory: str,
        *,
        topic_partition: TopicPartition,
        topic_id: UUID,
        config: LogConfig,
    ) -> None:
        """Builds an empty object, which `open` fills."""
        self.disk = disk
        self.directory = directory
        self.topic_partition = topic_partition
        self.topic_id = topic_id
        self.config = config
        #: Oldest first; never empty once the log is open; the last segment is active.
        self.segments: list[Segment] = []
        self._bases: list[int] = []
        #: Inactive segments with an open file, least recently used first.
        self._opened: deque[Segment] = deque()
        self.epochs = LeaderEpochs()
        self.producers = ProducerStates()
        #: Set only by `write` and by the methods in section "offsets", which documents their
        #: invariant.
        self.log_start_offset = Offset(0)
        self.durable_offset = Offset(0)
        self.end_offset = Offset(0)
        #: Recovery truncated more than a single incomplete write.
        self.has_lost_batches = False
        #: Counts truncations, so that a flush which was running during a truncation is ignored.
        self.truncations = 0
        #: Files of rolled segments that the next flush must fsync, each with its number. A file may
        #: be part of a running flush, be appended to, and be listed here again.
        self.unflushed_files: list[tuple[int, File]] = []
        self._unflushed_count = 0
        #: Files were created in the directory since its last fsync.
        self.directory_changed = False
        #: The value of `epochs.changes` when the checkpoint file was written.
        self.epochs_written = 0
        #: Segments are being deleted; the files on disk may start below the log start offset.
        self.is_removing = False
        #: (due time, paths) of files to unlink after `file.delete.delay.ms`.
        self.removals: deque[tuple[int, list[str]]] = deque()
        #: Called before a truncation below the durable offset. The recovery point checkpoint must
        #: be lowered to this offset durably before the call returns, because records written above
        #: it later are not fsynced. The log manager lowers both before it truncates a log itself.
        self.lower_recovery_point: Callable[[Offset], None] | None = None
        self._closed: Exception | None = None

    @classmethod
    def open(
        cls,
        disk: Disk,
        directory: str,
        *,
        topic_partition: TopicPartition,
        topic_id: UUID,
        config: LogConfig,
        now_ms: int,
        recovery: RecoveryPlan,
    ) -> "Log":
        """Opens the log in `directory`, or creates it. Blocks (may scan and fsync)."""
        log = cls(
            disk, directory, topic_partition=topic_partition, topic_id=topic_id, config=config
        )
        try:
            recovering.load(log, recovery, now_ms)
            if log.end_offset < recovery.log_start:
                # The deleted records were also lost through power loss; their offsets may not be
                # used again.
                truncation.restart_at(log, recovery.log_start, now_ms)
        except OSError as error:
            raise log.fail_with(error) from error
        return log

    # ── settings and state ───────────────────────────────────────────────────────────────────

    @property
    def config(self) -> LogConfig:
        return self._config

    @config.setter
    def config(self, config: LogConfig) -> None:
        self._config = config
        self.rules = AppendRules(config)
        #: A batch with a timestamp up to this one does not roll the active segment by time.
        self._roll_after = ROLL_UNKNOWN

    @property
    def log_dir(self) -> str:
        return self.directory.rpartition("/")[0]

    @property
    def active(self) -> Segment:
        return self.segments[-1]

    @property
    def latest_epoch(self) -> Epoch:
        return self.epochs.latest

    @property
    def size_bytes(self) -> int:
        return sum(segment.size for segment in self.segments)

    @property
    def has_failed(self) -> bool:
        return isinstance(self._closed, DiskFailed)

    def fail_with(self, error: OSError) -> DiskFailed:
        """Closes the log for all further writes: only recovery can find out what the file
        contains."""
        failure = DiskFailed(self.log_dir, error)
        self._closed = failure
        return failure

    def check_open(self) -> None:
        if self._closed is not None:
            raise self._closed

    def set_segments(self, segments: list[Segment]) -> None:
        self.segments = segments
        self._bases = [segment.base_offset for segment in segments]
        self._roll_after = ROLL_UNKNOWN

    def replace_segments(self, old: list[Segment], new: Segment) -> None:
        """Replaces adjacent segments by the segment into which compaction has merged them."""
        first = self.segments.index(old[0])
        self._opened = deque(s for s in self._opened if s not in old)
        self.set_segments([*self.segments[:first], new, *self.segments[first + len(old) :]])

    # ── offsets ──────────────────────────────────────────────────────────────────────────────
    #
    # The methods in this section are the only writers of the three offsets, apart from `write` (a
    # tidy test checks this). Once the log is open,
    #
    #     0 <= log_start_offset <= end_offset   and   0 <= durable_offset <= end_offset.
    #
    # The log start offset may be above or below the durable offset: DeleteRecords and retention
    # raise the log start up to the high watermark, which replication may advance past the records
    # fsynced on this broker, and a truncation lowers the durable offset before it changes a file.
    # Only `write` raises the end offset; only a truncation or a restart of the log lowers it.

    def _set_offsets(self, *, start: Offset, durable: Offset, end: Offset) -> None:
        assert 0 <= start <= end, (start, end)
        assert 0 <= durable <= end, (durable, end)
        self.log_start_offset, self.durable_offset, self.end_offset = start, durable, end

    def on_scanned(self, end: Offset) -> None:
        """Recovery has found valid batches up to `end`. The log is not open yet: `on_loaded` sets
        the log start and the durable offset."""
        assert not self.durable_offset, (end, self.durable_offset)
        self.end_offset = end

    def on_loaded(self, start: Offset) -> None:
        """The whole log was read and is on disk. Records below `start` were deleted; if the end is
        lower than `start`, deleted records were also lost through power loss."""
        end = self.end_offset
        self._set_offsets(start=min(start, end), durable=end, end=end)

    def on_emptied(self, offset: Offset) -> None:
        """The log is empty and continues at `offset`."""
        self._set_offsets(start=offset, durable=offset, end=offset)

    def on_truncated(self, end: Offset, *, last_end: Offset) -> None:
        """All records from `end` on were truncated; the last remaining batch ends at `last_end`."""
        assert end <= self.end_offset, (end, self.end_offset)
        self._set_offsets(
            start=min(self.log_start_offset, end),
            durable=min(self.durable_offset, last_end),
            end=end,
        )

    def on_durable(self, upto: Offset) -> None:
        """Everything below `upto` was fsynced."""
        if upto > self.durable_offset:
            self._set_offsets(start=self.log_start_offset, durable=upto, end=self.end_offset)

    def lower_durable(self, to: Offset) -> None:
        """Records written from `to` on are not fsynced: a truncation is about to begin."""
        if to < self.durable_offset:
            self._set_offsets(start=self.log_start_offset, durable=to, end=self.end_offset)

    def raise_start(self, to: Offset) -> None:
        """Readers can no longer read records below `to`."""
        if to > self.log_start_offset:
            self._set_offsets(start=to, durable=self.durable_offset, end=self.end_offset)

    # ── appending ────────────────────────────────────────────────────────────────────────────────

    def append_as_leader(
        self,
        batches: memoryview,
        *,
        leader_epoch: int,
        now_ms: int,
        origin: Origin = Origin.CLIENT,
        checked_by: AppendRules | None = None,
        verification: Verification | None = None,
    ) -> AppendResult:
        """Validates, numbers and writes batches. `batches` must be writable: offset and epoch are
        patched in place. A client's request contains one batch; coordinators and the Raft leader
        may append several. Raises NeedsWorker if validating the records would take too long and
        `validation_job` has not done so. A batch of a transaction that is not open in this
        partition requires the `verification` that was created when its coordinator was queried."""
        if self._closed is not None:
            raise self._closed
        size = len(batches)
        if size < HEADER_SIZE:
            raise CorruptBatch(f"a batch of {size} bytes is smaller than a batch header")
        fields = unpack_header(batches, 0)
        if fields[1] + LENGTH_OVERHEAD == size:
            return appends.append_one(
                self, batches, fields, leader_epoch, now_ms, origin, checked_by, verification
            )
        return appends.append_several(self, batches, leader_epoch, now_ms, origin)

    def validation_job(self, batch: memoryview, now_ms: int) -> Callable[[], CheckedBatch]:
        """Returns a job for a worker that validates the records of a client's batch. It raises the
        same errors as an append."""
        return partial(check_in_worker, batch, self.rules, now_ms)

    def append_as_follower(self, batches: memoryview, *, now_ms: int = -1) -> AppendResult:
        """Writes batches with the offsets that the leader assigned; ignores an incomplete last
        batch. Raises BeginsInsideBatch."""
        if self._closed is not None:
            raise self._closed
        return appends.append_followed(self, batches, now_ms)

    def write(self, batch: memoryview, last_offset: int, timestamp: int, now_ms: int) -> None:
        """Writes one validated batch to the active segment, or to a new one, and advances the end
        offset."""
        assert last_offset >= self.end_offset, (last_offset, self.end_offset)
        segment = self.segments[-1]
        rules = self.rules
        try:
            if (
                timestamp > self._roll_after
                or segment.size + len(batch) > rules.roll_check_bytes
                or last_offset - segment.base_offset > RELATIVE_OFFSET_MAX
            ) and self._is_roll_due(segment, len(batch), last_offset, timestamp, now_ms):
                self._roll(now_ms)
                segment = self.segments[-1]
            segment.append(batch, last_offset, timestamp, rules.index_interval_bytes)
        except OSError as error:
            raise self.fail_with(error) from error
        # The end offset only grows here, which preserves the invariant of the offsets.
        self.end_offset = Offset(last_offset + 1)

    # ── rolling ──────────────────────────────────────────────────────────────────────────────

    def _is_roll_due(
        self, segment: Segment, size: int, last_offset: int, timestamp: int, now_ms: int
    ) -> bool:
        """Whether a batch requires a new segment. An empty segment is not rolled for size or
        time."""
        if last_offset - segment.base_offset > RELATIVE_OFFSET_MAX:
            return True
        if not segment.size:
            return False
        rules = self.rules
        if segment.size + size > rules.segment_bytes:
            return True
        first = segment.load_first_timestamp()
        limit_ms = rules.segment_ms - self._jitter_ms(segment)
        if first is None or first < 0:
            waited_ms = now_ms - segment.created_ms
        else:
            waited_ms = timestamp - first
            self._roll_after = first + limit_ms
        return waited_ms > limit_ms or len(segment.offset_index) >= rules.index_entries_max

    def _jitter_ms(self, segment: Segment) -> int:
        """Spreads the rolls of many partitions over time. Derived from the names, so no randomness
        is needed."""
        jitter = min(self._config.segment_jitter_ms, self._config.segment_ms)
        if jitter <= 0:
            return 0
        return crc32c(f"{self.topic_partition}@{segment.base_offset}".encode()) % jitter

    def roll(self, now_ms: int) -> None:
        """Rolls a new segment, unless the active one is empty."""
        self.check_open()
        try:
            if self.active.size or self.active.base_offset != self.end_offset:
                self._roll(now_ms)
        except OSError as error:
            raise self.fail_with(error) from error

    def _roll(self, now_ms: int) -> None:
        old = self.segments[-1]
        if not old.size and old.base_offset == self.end_offset:
            return
        self._must_flush(old.file, *old.seal())
        self._must_flush(write_snapshot(self.disk, self.directory, self.end_offset, self.producers))
        self.begin_segment(self.end_offset, now_ms)
        self._keep_open(old)

    def _must_flush(self, *files: File) -> None:
        for file in files:
            self._unflushed_count += 1
            self.unflushed_files.append((self._unflushed_count, file))

    def begin_segment(self, base_offset: int, now_ms: int) -> Segment:
        segment = Segment(self.disk, self.directory, base_offset, fresh=True)
        config = self._config
        segment.create(now_ms, reserve_bytes=config.segment_bytes if config.preallocate else 0)
        segment.offset_index.write()
        segment.time_index.write()
        self.segments.append(segment)
        self._bases.append(base_offset)
        self._roll_after = ROLL_UNKNOWN
        self.directory_changed = True
        return segment

    def _keep_open(self, segment: Segment) -> None:
        opened = self._opened
        if segment in opened:
            return
        opened.append(segment)
        if len(opened) > OPEN_SEGMENTS_MAX:
            oldest = opened.popleft()
            if oldest is not self.segments[-1]:
                oldest.release()

    # ── reading ──────────────────────────────────────────────────────────────────────────────

    def read(
        self,
        offset: int,
        *,
        bytes_max: int,
        bound: int = NO_BOUND,
        at_least_one: bool = True,
    ) -> FileSlice | None:
        """Returns a slice of batches, from the batch that contains `offset` up to the first batch
        whose last offset is at or above `bound`, which is not included.

        The slice has up to `bytes_max` bytes of one segment; its last batch may be incomplete. With
        `at_least_one`, a first batch that is larger than `bytes_max` is returned completely;
        otherwise the result is None.
        """
        end = self.end_offset
        if offset < self.log_start_offset or offset > end:
            raise OffsetOutOfRange(offset, log_start=self.log_start_offset, end=end)
        if isinstance(self._closed, StorageError):
            raise self._closed
        if bound > end:
            bound = end
        try:
            return self._read(offset, bytes_max, bound, at_least_one)
        except OSError as error:
            raise self.fail_with(error) from error

    def _read(
        self, offset: int, bytes_max: int, bound: int, at_least_one: bool
    ) -> FileSlice | None:
        segments = self.segments
        slot = len(segments) - 1
        if offset < self._bases[-1]:
            slot = bisect_right(self._bases, offset) - 1
        while offset < bound:
            segment = segments[slot]
            last = slot + 1 == len(segments)
            if not last and not segment.is_open:
                self._keep_open(segment)
            start = segment.position_of(offset)
            next_base = self.end_offset if last else self._bases[slot + 1]
            stop = segment.size if bound >= next_base else segment.position_of(bound)
            size = stop - start
            if size > 0:
                if size > bytes_max:
                    first_size = segment.batch_size_at(start)
                    if not HEADER_SIZE <= first_size <= size:
                        # A reader could never receive the bytes that such a slice announces.
                        raise LogCorrupt(f"{segment.path} has no valid batch at byte {start}")
                    if first_size > bytes_max:
                        return FileSlice(segment.file, start, first_size) if at_least_one else None
                    size = bytes_max
                return FileSlice(segment.file, start, size)
            if last:
                return None
            # Compaction may leave no records at the end of a segment.
            slot += 1
            offset = next_base
        return None

    def segment_of(self, offset: int) -> Segment:
        """Returns the segment whose offset range contains `offset`."""
        return self.segments[max(bisect_right(self._bases, offset) - 1, 0)]

    def aborted_transactions(self, start: int, end: int) -> list[AbortedTransaction]:
        """Returns the aborted transactions that may have records in [start, end)."""
        found: list[AbortedTransaction] = []
        try:
            for slot in range(max(bisect_right(self._bases, start) - 1, 0), len(self.segments)):
                if self.segments[slot].transactions.collect(start, end, found):
                    break
        except OSError as error:
            raise self.fail_with(error) from error
        return found

    def find_aborted_in_slice(
        self, part: FileSlice, offset: int, bound: int
    ) -> list[AbortedTransaction]:
        """Returns the aborted transactions that may have records in the slice returned by
        `read(offset, bound=bound)`. A consumer that lags far behind does not receive all later
        aborted transactions."""
        segment = self.segment_of(offset)
        try:
            if segment.is_open and segment.file is part.file:
                end = segment.bound_at(part.position + part.size)
                bound = bound if end is None else min(bound, end)
        except OSError as error:
            raise self.fail_with(error) from error
        return self.aborted_transactions(offset, bound)

    @property
    def first_unstable_offset(self) -> Offset | None:
        """The first offset of the oldest open transaction."""
        return self.producers.first_undecided_offset

    def last_stable_offset(self, high_watermark: Offset) -> Offset:
        self.producers.forget_ended(min(high_watermark, self.durable_offset))
        first = self.producers.first_unstable_offset(high_watermark)
        if first is None or first >= high_watermark:
            return high_watermark
        return Offset(max(first, self.log_start_offset))

    def offset_for_timestamp(self, timestamp: int) -> TimestampAndOffset | None:
        """Returns the first record with a timestamp of at least `timestamp`."""
        try:
            return find_timestamp(self, timestamp)
        except OSError as error:
            raise self.fail_with(error) from error

    def max_timestamp_offset(self) -> TimestampAndOffset | None:
        """Returns the first record with the largest timestamp of the log."""
        try:
            return find_latest_timestamp(self)
        except OSError as error:
            raise self.fail_with(error) from error

    # ── epochs ───────────────────────────────────────────────────────────────────────────────

    def assign_epoch(self, epoch: int) -> None:
        """Called when a leader starts its epoch at the end of the log."""
        self.epochs.assign(epoch, self.end_offset)

    def epoch_end(self, epoch: int) -> tuple[Epoch, Offset]:
        return self.epochs.end_of(epoch, self.end_offset)

    def epoch_for_offset(self, offset: int) -> Epoch:
        return self.epochs.epoch_of(offset)

    # ── truncation and deletion ──────────────────────────────────────────────────────────────────

    def truncation_floor(self, to: Offset) -> Offset:
        """Returns the offset to which the recovery point must be lowered before `truncate(to)`."""
        return truncation.truncation_floor(self, to)

    def truncate(self, to: Offset) -> None:
        """Truncates all records from `to` on. Blocks (fsyncs)."""
        self.check_open()
        try:
            truncation.truncate(self, to)
        except OSError as error:
            raise self.fail_with(error) from error

    def truncate_fully_and_start_at(self, offset: Offset, *, now_ms: int = 0) -> None:
        """Deletes all records; the log continues at `offset`. Blocks (fsyncs)."""
        self.check_open()
        try:
            truncation.restart_at(self, offset, now_ms)
        except OSError as error:
            raise self.fail_with(error) from error

    def advance_start(self, to: Offset) -> None:
        """Raises the log start offset to `to`. The next run of retention deletes the files below
        it."""
        self.check_open()
        if to > self.end_offset:
            raise OffsetOutOfRange(to, log_start=self.log_start_offset, end=self.end_offset)
        self.raise_start(to)

    def plan_removal(
        self, now_ms: int, high_watermark: Offset, *, held: Offset | None = None
    ) -> Removal | None:
        """Plans the deletion of segments by time and size and below the log start; from `held` on,
        only of segments that no hold may keep. The plan is run in a worker and then passed to
        `finish_removal`. Until then there may be no second plan and no truncation."""
        self.check_open()
        try:
            return retention.plan_removal(self, now_ms, high_watermark, held=held)
        except OSError as error:
            raise self.fail_with(error) from error

    def finish_removal(self, removal: Removal) -> None:
        """Call this after `removal.run()` has returned."""
        retention.finish_removal(self, removal)

    def delete_old_segments(self, now_ms: int, high_watermark: Offset) -> int:
        """Runs all three steps; returns the number of deleted segments. Blocks (fsyncs)."""
        self.check_open()
        try:
            return retention.delete_old_segments(self, now_ms, high_watermark)
        except OSError as error:
            raise self.fail_with(error) from error

    def remove_expired_files(self, now_ms: int) -> int:
        """Unlinks files that were deleted `file.delete.delay.ms` ago; returns their number.
        Blocks."""
        try:
            return retention.unlink_files(self.disk, retention.take_expired_files(self, now_ms))
        except OSError as error:
            raise self.fail_with(error) from error

    # ── flushing and closing ─────────────────────────────────────────────────────────────────

    def flush_plan(self, upto: Offset | None = None) -> FlushPlan:
        """Returns a plan that makes all records below `upto` (by default, all records) durable; it
        is empty if they are durable already. It does not flush the active segment if flushing the
        rolled segments is sufficient."""
        self.check_open()
        wanted = self.end_offset if upto is None else upto
        return FlushPlan.of(
            self,
            needed=wanted > self.durable_offset,
            rolled_only=bool(
                self.unflushed_files and upto is not None and upto <= self.active.base_offset
            ),
        )

    def mark_durable(self, plan: FlushPlan) -> None:
        """Call this after `plan.run()` has returned."""
        if plan.truncations != self.truncations:
            return
        self.on_durable(plan.upto)
        # By number, not by file: the active segment may have been rolled during the flush.
        self.unflushed_files = [f for f in self.unflushed_files if f[0] > plan.unflushed_last]
        self.epochs_written = max(self.epochs_written, plan.epoch_changes)

    def switch_to_copy(self, copy: "Log") -> None:
        """Switches to the files of a copy in another log dir, which has the same records and is
        durable. Reads that are under way continue on the old files; no other operation may be using
        them."""
        assert copy.end_offset == self.end_offset, (copy.end_offset, self.end_offset)
        self.directory = copy.directory
        self.set_segments(copy.segments)
        self._opened = copy._opened
        self.on_durable(self.end_offset)
        self.unflushed_files = copy.unflushed_files
        self._unflushed_count = copy._unflushed_count
        self.directory_changed = True
        # The copy's checkpoint file does not contain epochs without records.
        self.epochs_written = -1
        self.removals.clear()
        # Invalidates the plans that were built for the old files.
        self.truncations += 1

    def close(self, *, clean: bool) -> None:
        """A clean close blocks: it writes indexes, producer state and epochs to their files and
        fsyncs them."""
        if self._closed is not None:
            return
        if clean:
            try:
                self._must_flush(*self.active.seal())
                self._must_flush(
                    write_snapshot(self.disk, self.directory, self.end_offset, self.producers)
                )
                self.directory_changed = True
                plan = FlushPlan.of(self, needed=True)
                plan.run()
                self.mark_durable(plan)
            except OSError as error:
                raise self.fail_with(error) from error
        self._closed = LogClosed(f"{self.topic_partition} is closed")
