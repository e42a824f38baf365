"""One partition's log: appends, reads, look-ups, truncation and flushes.

`open` (with `recovery.py`) makes it from the files; `retention.py` and `cleaner.py` take old
records away. All methods run on the loop, but for those that say that they block: the `run` of
plans is a worker's job, truncation one during which nobody else uses the log.
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
from lograft.storage import appending, retention, truncation
from lograft.storage import recovery as recovering
from lograft.storage.epochs import LeaderEpochs
from lograft.storage.errors import (
    CorruptBatch,
    LogClosed,
    LogCorrupt,
    OffsetOutOfRange,
    StorageError,
)
from lograft.storage.flushing import FlushPlan
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

#: Inactive segments whose file and index stay open after a read.
OPEN_SEGMENTS_MAX: Final = 2
#: Offsets in an index are 31 bits, relative to their segment's base.
RELATIVE_OFFSET_MAX: Final = 2**31 - 1
ROLL_UNKNOWN: Final = -(2**63)
NO_BOUND: Final = Offset(2**63 - 1)

SEGMENTS: Final = Gauge("lograft_log_segments", "Segments of all logs of this broker.")
SIZE_BYTES: Final = Gauge("lograft_log_size_bytes", "Size of all logs of this broker.")
PRODUCERS: Final = Gauge(
    "lograft_log_producers", "Idempotent producers whose state is kept, counted for each partition."
)
OPEN_TRANSACTIONS: Final = Gauge(
    "lograft_log_open_transactions", "Open transactions, counted for each partition."
)
LOG_GAUGES: Final = (SEGMENTS, SIZE_BYTES, PRODUCERS, OPEN_TRANSACTIONS)


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
        "is_removing",
        "log_start_offset",
        "lost_in_recovery",
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
        """An empty shell that `open` fills."""
        self.disk = disk
        self.directory = directory
        self.topic_partition = topic_partition
        self.topic_id = topic_id
        self.config = config
        #: Oldest first; never empty once open; the last one is active.
        self.segments: list[Segment] = []
        self._bases: list[int] = []
        #: Inactive segments that hold a file open, oldest use first.
        self._opened: deque[Segment] = deque()
        self.epochs = LeaderEpochs()
        self.producers = ProducerStates()
        #: Set by the methods under "offsets" and by `write` only, where their invariant stands.
        self.log_start_offset = Offset(0)
        self.durable_offset = Offset(0)
        self.end_offset = Offset(0)
        #: Opening it cut away more than one write that never came to its end.
        self.lost_in_recovery = False
        #: Counts cuts, so that a flush that was under way then is not believed.
        self.truncations = 0
        #: Files of rolled segments that the next flush must fsync, each with its number. A file
        #: may be part of a flush under way, get more bytes, and stand here again.
        self.unflushed_files: list[tuple[int, File]] = []
        self._unflushed_count = 0
        #: Names were added to the folder since it was last fsynced.
        self.directory_changed = False
        #: `epochs.changes` as of the checkpoint file.
        self.epochs_written = 0
        #: Segments are on their way out; the files on disk may begin before the log does.
        self.is_removing = False
        #: (due time, paths) of files that wait for `file.delete.delay.ms`.
        self.removals: deque[tuple[int, list[str]]] = deque()
        #: Called before a truncation below the durable offset: the checkpoint of the recovery
        #: point must come down to this offset, durably, before it returns, because what is written
        #: there afterwards is not fsynced. The log manager has lowered both before it truncates.
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
        """Opens the log in `directory`, or begins one there. Blocks (may scan and fsync)."""
        log = cls(
            disk, directory, topic_partition=topic_partition, topic_id=topic_id, config=config
        )
        try:
            recovering.load(log, recovery, now_ms)
            if log.end_offset < recovery.log_start:
                # Records were deleted that power loss took too: their offsets are used up.
                truncation.restart_at(log, recovery.log_start, now_ms)
        except OSError as error:
            raise log.disk_failed(error) from error
        return log

    # ── settings and state ───────────────────────────────────────────────────────────────────

    @property
    def config(self) -> LogConfig:
        return self._config

    @config.setter
    def config(self, config: LogConfig) -> None:
        self._config = config
        self.rules = AppendRules(config)
        #: A batch with a timestamp up to this one is not too late for the active segment.
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
    def failed(self) -> bool:
        return isinstance(self._closed, DiskFailed)

    def collect_samples(self) -> Iterator[Sample]:
        yield SEGMENTS.sample(len(self.segments))
        yield SIZE_BYTES.sample(self.size_bytes)
        yield PRODUCERS.sample(len(self.producers))
        yield OPEN_TRANSACTIONS.sample(self.producers.open_transactions)

    def disk_failed(self, error: OSError) -> DiskFailed:
        """The log takes nothing more: what the file holds now is known only to recovery."""
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
        """Compaction has put one segment in the place of some neighbours."""
        first = self.segments.index(old[0])
        self._opened = deque(s for s in self._opened if s not in old)
        self.set_segments([*self.segments[:first], new, *self.segments[first + len(old) :]])

    # ── offsets ──────────────────────────────────────────────────────────────────────────────
    #
    # The only writers of the three offsets (a tidy test looks). Once the log is open,
    #
    #     0 <= log_start_offset <= end_offset   and   0 <= durable_offset <= end_offset.
    #
    # The log start and the durable offset have no order between them: DeleteRecords and retention
    # move the start up to the high watermark, which replication may carry past what is fsynced
    # here, and a truncation lowers the durable offset before it touches a file. Only `write` moves
    # the end up, only a truncation or a new beginning moves it down.

    def _set_offsets(self, *, start: Offset, durable: Offset, end: Offset) -> None:
        assert 0 <= start <= end, (start, end)
        assert 0 <= durable <= end, (durable, end)
        self.log_start_offset, self.durable_offset, self.end_offset = start, durable, end

    def on_scanned(self, end: Offset) -> None:
        """Recovery has found good batches up to `end`. The log is not open yet: its start and its
        durable offset come with `on_loaded`."""
        assert not self.durable_offset, (end, self.durable_offset)
        self.end_offset = end

    def on_loaded(self, start: Offset) -> None:
        """Everything that the files hold was found, and is on disk. Records below `start` were
        deleted; if the end is lower, power loss has taken what was deleted too."""
        end = self.end_offset
        self._set_offsets(start=min(start, end), durable=end, end=end)

    def on_emptied(self, offset: Offset) -> None:
        """The log holds nothing and goes on at `offset`."""
        self._set_offsets(start=offset, durable=offset, end=offset)

    def on_truncated(self, end: Offset, *, last_end: Offset) -> None:
        """Everything from `end` on was cut away; the last batch that is left ends at `last_end`."""
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
        """What is written from `to` on is not fsynced: a truncation is about to begin."""
        if to < self.durable_offset:
            self._set_offsets(start=self.log_start_offset, durable=to, end=self.end_offset)

    def raise_start(self, to: Offset) -> None:
        """Records below `to` are gone for readers."""
        if to > self.log_start_offset:
            self._set_offsets(start=to, durable=self.durable_offset, end=self.end_offset)

    # ── appending ────────────────────────────────────────────────────────────────────────────

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
        """Checks, numbers and writes. `batches` must be writable: offset and epoch are patched in
        place. Clients send one batch; our own writers may send several. Raises NeedsWorker for
        one that takes long to look at, unless `batch_check` has. A batch of a transaction that is
        not open here needs the `verification` that it began with."""
        if self._closed is not None:
            raise self._closed
        size = len(batches)
        if size < HEADER_SIZE:
            raise CorruptBatch(f"{size} bytes are too few for a batch")
        fields = unpack_header(batches, 0)
        if fields[1] + LENGTH_OVERHEAD == size:
            return appending.append_one(
                self, batches, fields, leader_epoch, now_ms, origin, checked_by, verification
            )
        return appending.append_several(self, batches, leader_epoch, now_ms, origin)

    def batch_check(self, batch: memoryview, now_ms: int) -> Callable[[], CheckedBatch]:
        """A worker's job: looks at the records of a client's batch. Raises what an append does."""
        return partial(check_in_worker, batch, self.rules, now_ms)

    def append_as_follower(self, batches: memoryview, *, now_ms: int = -1) -> AppendResult:
        """Writes batches as their leader has numbered them; a cut last one is left out. Raises
        BeginsInsideBatch."""
        if self._closed is not None:
            raise self._closed
        return appending.append_followed(self, batches, now_ms)

    def write(self, batch: memoryview, last_offset: int, timestamp: int, now_ms: int) -> None:
        """Puts one checked batch at the end of the active segment, or of a new one, and moves the
        end of the log behind it."""
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
            raise self.disk_failed(error) from error
        # The end only grows here, which keeps the invariant of the offsets.
        self.end_offset = Offset(last_offset + 1)

    # ── rolling ──────────────────────────────────────────────────────────────────────────────

    def _is_roll_due(
        self, segment: Segment, size: int, last_offset: int, timestamp: int, now_ms: int
    ) -> bool:
        """Whether a batch must go to a new segment; for size and time not if this one is empty."""
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
        """Spreads the rolls of many partitions; chosen from the names, so no chance is needed."""
        jitter = min(self._config.segment_jitter_ms, self._config.segment_ms)
        if jitter <= 0:
            return 0
        return crc32c(f"{self.topic_partition}@{segment.base_offset}".encode()) % jitter

    def roll(self, now_ms: int) -> None:
        """Begins a new segment, unless the active one is empty."""
        self.check_open()
        try:
            if self.active.size or self.active.base_offset != self.end_offset:
                self._roll(now_ms)
        except OSError as error:
            raise self.disk_failed(error) from error

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
        """Batches from the one that holds `offset` on, none that ends at or after `bound`.

        About `bytes_max` of one segment; the last batch may be cut. The first is whole even above
        `bytes_max` if `at_least_one`, else nothing comes.
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
            raise self.disk_failed(error) from error

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
                        # Nobody would ever get the bytes that such a slice promises.
                        raise LogCorrupt(f"{segment.path} holds no batch at byte {start}")
                    if first_size > bytes_max:
                        return FileSlice(segment.file, start, first_size) if at_least_one else None
                    size = bytes_max
                return FileSlice(segment.file, start, size)
            if last:
                return None
            # Compaction may leave the end of a segment without records.
            slot += 1
            offset = next_base
        return None

    def segment_of(self, offset: int) -> Segment:
        """The segment whose range holds `offset`."""
        return self.segments[max(bisect_right(self._bases, offset) - 1, 0)]

    def aborted_transactions(self, start: int, end: int) -> list[AbortedTransaction]:
        """Those whose records may lie in [start, end)."""
        found: list[AbortedTransaction] = []
        try:
            for slot in range(max(bisect_right(self._bases, start) - 1, 0), len(self.segments)):
                if self.segments[slot].transactions.collect(start, end, found):
                    break
        except OSError as error:
            raise self.disk_failed(error) from error
        return found

    def aborted_in(self, part: FileSlice, offset: int, bound: int) -> list[AbortedTransaction]:
        """Those whose records may lie in what `read(offset, bound=bound)` gave: a reader far back
        is not told of all that was aborted since."""
        segment = self.segment_of(offset)
        try:
            if segment.is_open and segment.file is part.file:
                end = segment.bound_at(part.position + part.size)
                bound = bound if end is None else min(bound, end)
        except OSError as error:
            raise self.disk_failed(error) from error
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
        """The first record that is not older than `timestamp`."""
        try:
            return find_timestamp(self, timestamp)
        except OSError as error:
            raise self.disk_failed(error) from error

    def max_timestamp_offset(self) -> TimestampAndOffset | None:
        """The first record that has the largest timestamp of all."""
        try:
            return find_latest_timestamp(self)
        except OSError as error:
            raise self.disk_failed(error) from error

    # ── epochs ───────────────────────────────────────────────────────────────────────────────

    def assign_epoch(self, epoch: int) -> None:
        """A leader tells that its epoch begins at the end of the log."""
        self.epochs.assign(epoch, self.end_offset)

    def epoch_end(self, epoch: int) -> tuple[Epoch, Offset]:
        return self.epochs.end_of(epoch, self.end_offset)

    def epoch_for_offset(self, offset: int) -> Epoch:
        return self.epochs.epoch_of(offset)

    # ── taking away ──────────────────────────────────────────────────────────────────────────

    def truncation_floor(self, to: Offset) -> Offset:
        """How low the recovery point must be before `truncate(to)`."""
        return truncation.truncation_floor(self, to)

    def truncate(self, to: Offset) -> None:
        """Cuts away everything from `to` on; blocks (fsyncs)."""
        self.check_open()
        try:
            truncation.truncate(self, to)
        except OSError as error:
            raise self.disk_failed(error) from error

    def truncate_fully_and_start_at(self, offset: Offset, *, now_ms: int = 0) -> None:
        """Empties the log; it goes on at `offset`. Blocks (fsyncs)."""
        self.check_open()
        try:
            truncation.restart_at(self, offset, now_ms)
        except OSError as error:
            raise self.disk_failed(error) from error

    def advance_start(self, to: Offset) -> None:
        """Records below `to` are gone for readers; their files go with the next retention."""
        self.check_open()
        if to > self.end_offset:
            raise OffsetOutOfRange(to, log_start=self.log_start_offset, end=self.end_offset)
        self.raise_start(to)

    def plan_removal(
        self, now_ms: int, high_watermark: Offset, *, held: Offset | None = None
    ) -> Removal | None:
        """Retention by time and size, and what lies below the log start; from `held` on only what
        no hold may keep. A plan is run in a worker and then given to `finish_removal`; no second
        one and no truncation in between."""
        self.check_open()
        try:
            return retention.plan_removal(self, now_ms, high_watermark, held=held)
        except OSError as error:
            raise self.disk_failed(error) from error

    def finish_removal(self, removal: Removal) -> None:
        """`removal.run()` has returned."""
        retention.finish_removal(self, removal)

    def delete_old_segments(self, now_ms: int, high_watermark: Offset) -> int:
        """All three steps at once; returns how many. Blocks (fsyncs)."""
        self.check_open()
        try:
            return retention.delete_old_segments(self, now_ms, high_watermark)
        except OSError as error:
            raise self.disk_failed(error) from error

    def remove_expired_files(self, now_ms: int) -> int:
        """Unlinks files deleted `file.delete.delay.ms` ago; returns how many. Blocks."""
        try:
            return retention.unlink_files(self.disk, retention.take_expired_files(self, now_ms))
        except OSError as error:
            raise self.disk_failed(error) from error

    # ── flushing and closing ─────────────────────────────────────────────────────────────────

    def flush_plan(self, upto: Offset | None = None) -> FlushPlan:
        """What makes everything below `upto`, or up to now, durable; a plan without work if it
        is. The active segment is left alone where the rolled ones are enough."""
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
        """`plan.run()` has returned."""
        if plan.truncations != self.truncations:
            return
        self.on_durable(plan.upto)
        # By number, not by file: the active one may have been rolled while the plan ran.
        self.unflushed_files = [f for f in self.unflushed_files if f[0] > plan.unflushed_last]
        self.epochs_written = max(self.epochs_written, plan.epoch_changes)

    def go_on_in(self, copy: "Log") -> None:
        """Takes the files of a copy in another log dir, which holds the same and is on disk. Who
        reads in the old ones reads on; nothing else may be under way in them."""
        assert copy.end_offset == self.end_offset, (copy.end_offset, self.end_offset)
        self.directory = copy.directory
        self.set_segments(copy.segments)
        self._opened = copy._opened
        self.on_durable(self.end_offset)
        self.unflushed_files = copy.unflushed_files
        self._unflushed_count = copy._unflushed_count
        self.directory_changed = True
        # Epochs without records are not in the copy's file.
        self.epochs_written = -1
        self.removals.clear()
        # Plans that were made for the old files are void.
        self.truncations += 1

    def close(self, *, clean: bool) -> None:
        """A clean close blocks: indexes, producer state and epochs go to their files, fsynced."""
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
                raise self.disk_failed(error) from error
        self._closed = LogClosed(f"{self.topic_partition} is closed")
