"""Compaction of a log.

`find_cleanable` decides on the event loop whether a log needs compaction. `Cleaning.run` writes the
new segments next to the old ones, in a worker. `begin_swap`, `run_swap` (in a worker) and
`finish_swap` then replace the old segments:

    written and fsynced as .cleaned → renamed to .swap: the result is now valid → the old
    segments are renamed to .deleted → the new segment is renamed to its final name

After a crash before the rename to `.log.swap`, the log has its old segments. After a later crash,
the swap is completed when the log is opened (`unfinished_files.py`).
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from lograft.model.errors import DiskFailed
from lograft.model.types import Offset
from lograft.storage.compaction import BatchFilter, LatestOffsets, TransactionTracker
from lograft.storage.errors import LogCorrupt
from lograft.storage.retention import set_aside, unlink_files
from lograft.storage.segment import (
    CLEANED_SUFFIX,
    LOG_SUFFIX,
    SWAP_SUFFIX,
    Segment,
    offset_name,
)
from lograft.storage.types import LONG_MAX
from lograft.storage.validation import unpacked_bytes_max
from lograft.wire.batches import CONTROL_FLAG, LENGTH_OVERHEAD, check_crc, read_records

if TYPE_CHECKING:
    from lograft.storage.log import Log

KEYS_MAX: Final = 1_000_000
RELATIVE_OFFSET_MAX: Final = 2**31 - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Cleanable:
    """What compaction can clean in a log."""

    #: Records below were cleaned by an earlier pass (`cleaner-offset-checkpoint`).
    first_dirty: Offset
    #: Kafka's first uncleanable offset: the start of the active segment, of the first open
    #: transaction, or of the records younger than `min.compaction.lag.ms`.
    upto: Offset
    #: Records at or above may still be truncated.
    high_watermark: Offset
    clean_bytes: int
    dirty_bytes: int
    #: The oldest dirty record is older than `max.compaction.lag.ms`.
    is_late: bool

    @property
    def dirty_ratio(self) -> float:
        total = self.clean_bytes + self.dirty_bytes
        return self.dirty_bytes / total if total else 0.0


def find_cleanable(
    log: "Log", *, first_dirty: Offset, now_ms: int, high_watermark: Offset
) -> Cleanable | None:
    """Returns None if the log needs no compaction now, by the topic's dirty ratio and lags."""
    config = log.config
    if not config.cleanup_compact:
        return None
    first = Offset(max(first_dirty, log.log_start_offset))
    if first > log.end_offset:
        first = log.log_start_offset  # the log was truncated since the checkpoint
    # Only a record that survives power loss may supersede a value or mark a transaction as
    # committed, because the result of the pass itself is durable immediately.
    safe = Offset(min(high_watermark, log.durable_offset))
    upto = int(min(log.last_stable_offset(safe), log.active.base_offset, safe))
    clean_bytes = dirty_bytes = 0
    oldest: int | None = None
    for slot, segment in enumerate(log.segments[:-1]):
        end = log.segments[slot + 1].base_offset
        if end <= first:
            clean_bytes += segment.size
            continue
        if segment.base_offset >= upto:
            break
        if config.min_compaction_lag_ms > 0 and (
            segment.load_max_timestamp() > now_ms - config.min_compaction_lag_ms
        ):
            upto = segment.base_offset
            break
        dirty_bytes += segment.size
        if oldest is None:
            oldest = segment.load_first_timestamp()
    if upto <= first:
        return None
    is_late = (
        config.max_compaction_lag_ms < LONG_MAX
        and oldest is not None
        and now_ms - oldest > config.max_compaction_lag_ms
    )
    found = Cleanable(
        first_dirty=first,
        upto=Offset(upto),
        high_watermark=high_watermark,
        clean_bytes=clean_bytes,
        dirty_bytes=dirty_bytes,
        is_late=is_late,
    )
    if dirty_bytes and (is_late or found.dirty_ratio > config.min_cleanable_dirty_ratio):
        return found
    return None


class Cleaning:
    """One compaction pass over one log."""

    __slots__ = (
        "_config",
        "_disk",
        "_filter",
        "_group_ends",
        "_latest",
        "_log_dir",
        "_renamed",
        "_replaced",
        "_sources",
        "_tracker_for_map",
        "_truncations",
        "_work",
        "cleanable",
        "cleaned",
        "directory",
        "first_dirty",
        "is_done",
        "now_ms",
    )

    def __init__(
        self, log: "Log", cleanable: Cleanable, *, now_ms: int, keys_max: int = KEYS_MAX
    ) -> None:
        """On the event loop: captures everything that the worker needs."""
        self.cleanable = cleanable
        self.directory = log.directory
        self.now_ms = now_ms
        #: Where the next pass begins; set by `run`.
        self.first_dirty = cleanable.first_dirty
        self.cleaned: list[tuple[Segment, list[int]]] = []
        #: New segments in the log, each with the old segments that it replaced.
        self._replaced: list[tuple[Segment, list[Segment]]] = []
        self._renamed: list[str] = []
        self._disk = log.disk
        self._log_dir = log.log_dir
        self._config = log.config
        self._truncations = log.truncations
        self._work: Iterator[int] | None = None
        #: All new segments are written.
        self.is_done = False
        self._sources: list[Segment] = []
        self._group_ends: dict[int, int] = {}
        for slot, segment in enumerate(log.segments[:-1]):
            if segment.base_offset >= cleanable.upto:
                break
            # Separate Segment objects: a worker must not load indexes of the objects that the event
            # loop uses.
            source = Segment(log.disk, log.directory, segment.base_offset, fresh=False)
            source.use(log.disk.open(source.path), segment.size)
            self._sources.append(source)
            self._group_ends[segment.base_offset] = log.segments[slot + 1].base_offset
        aborted = []
        if self._sources:
            end = self._group_ends[self._sources[-1].base_offset]
            aborted = log.aborted_transactions(self._sources[0].base_offset, end)
        self._latest = LatestOffsets(keys_max)
        self._tracker_for_map = TransactionTracker(aborted)
        producers = log.producers.all()
        last_offsets = {p.producer_id: p.batches[-1].last_offset for p in producers if p.batches}
        self._filter = BatchFilter(
            self._latest,
            TransactionTracker(aborted),
            now_ms=now_ms,
            delete_retention_ms=log.config.delete_retention_ms,
            bytes_max=unpacked_bytes_max(log.config),
            last_offsets=last_offsets,
            unsettled=frozenset(
                producer_id
                for producer_id, last_offset in last_offsets.items()
                if last_offset >= cleanable.high_watermark
            ),
            marker_epochs={p.producer_id: p.epoch for p in producers if not p.batches},
        )

    def run(self) -> None:
        """In a worker: reads the old segments, writes the new ones and fsyncs them."""
        while not self.is_done:
            self.run_part(LONG_MAX)

    def run_part(self, bytes_max: int) -> int:
        """In a worker: like `run`, but returns after about `bytes_max` bytes were read and written
        (at most one batch more). Returns the number of bytes; the caller repeats the call until
        `is_done`."""
        if self._work is None:
            self._work = self._do_all()
        moved = 0
        try:
            for size_bytes in self._work:
                moved += size_bytes
                if moved >= bytes_max:
                    return moved
        except OSError as error:
            raise DiskFailed(self._log_dir, error) from error
        self.is_done = True
        return moved

    # ── in the worker ────────────────────────────────────────────────────────────────────────

    def _do_all(self) -> Iterator[int]:
        """Yields the number of bytes read or written since the previous yield."""
        yield from self._build_map()
        self.first_dirty = Offset(max(self._latest.latest + 1, self.cleanable.first_dirty))
        for group in self._group_segments():
            yield from self._clean_group(group)
        self._disk.fsync_dir(self.directory)

    def _build_map(self) -> Iterator[int]:
        tracker = self._tracker_for_map
        bytes_max = unpacked_bytes_max(self._config)
        for source in self._sources:
            for position, fields in source.scan():
                last_offset = fields[0] + fields[6]
                if last_offset >= self.cleanable.upto:
                    return
                batch = source.read_batch(position, fields[1] + LENGTH_OVERHEAD)
                yield len(batch)
                if fields[5] & CONTROL_FLAG:
                    tracker.is_spent_marker(fields, batch)
                elif (
                    not tracker.is_aborted_data(fields)
                    and last_offset >= self.cleanable.first_dirty
                ):
                    if self._latest.is_full:
                        return
                    for record in read_records(batch, bytes_max=bytes_max):
                        if record.key is not None and record.offset >= self.cleanable.first_dirty:
                            self._latest.put(record.key, record.offset)
                if last_offset >= self.cleanable.first_dirty:
                    self._latest.latest = last_offset

    def _group_segments(self) -> list[list[Segment]]:
        """Groups adjacent segments that fit into one new segment."""
        groups: list[list[Segment]] = []
        size = 0
        for source in self._sources:
            if source.base_offset > self._latest.latest:
                break
            end = self._group_ends[source.base_offset]
            if (
                groups
                and size + source.size <= self._config.segment_bytes
                and end - groups[-1][0].base_offset <= RELATIVE_OFFSET_MAX
            ):
                groups[-1].append(source)
                size += source.size
            else:
                groups.append([source])
                size = source.size
        return groups

    def _clean_group(self, group: list[Segment]) -> Iterator[int]:
        target = Segment(
            self._disk, self.directory, group[0].base_offset, fresh=True, suffix=CLEANED_SUFFIX
        )
        target.create(self.now_ms)
        self._filter.transactions.kept_aborts = target.transactions
        last_source = next((s for s in reversed(group) if s.size), group[-1])
        for source in group:
            for position, fields in source.scan():
                size = fields[1] + LENGTH_OVERHEAD
                batch = source.read_batch(position, size)
                if not check_crc(batch, 0, size):
                    # Never copy a damaged batch under a new, valid CRC.
                    raise LogCorrupt(f"{source.path} contains a damaged batch at byte {position}")
                is_last = source is last_source and position + size >= source.size
                kept = self._filter.keep(fields, batch, is_last=is_last)
                if kept is not None:
                    timestamp = int.from_bytes(kept[35:43], "big", signed=True)
                    interval = self._config.index_interval_bytes
                    target.append(kept, fields[0] + fields[6], timestamp, interval)
                yield size if kept is None else size + len(kept)
        files = [target.file, *target.seal()]
        for file in files:
            file.fsync()
        # While the files are being renamed, readers must not need to open them by name.
        target.offset_index.load()
        target.time_index.load()
        self.cleaned.append((target, [source.base_offset for source in group]))

    # ── replacing the old segments ───────────────────────────────────────────────────────────────

    def begin_swap(self, log: "Log") -> bool:
        """On the event loop: readers use the new segments from now on. Returns False if the log was
        truncated, or its segments replaced or deleted, in the meantime. The caller continues with
        `run_swap` in a worker (the lane of the log dir), then `finish_swap`."""
        bases = {segment.base_offset for segment in log.segments[:-1]}
        if log.truncations != self._truncations or not all(
            base in bases for _, group in self.cleaned for base in group
        ):
            return False
        for target, group in self.cleaned:
            first = next(i for i, s in enumerate(log.segments) if s.base_offset == group[0])
            old = log.segments[first : first + len(group)]
            assert [segment.base_offset for segment in old] == group, (group, old)
            # Its file stays open and its indexes are in memory, so renames do not affect it.
            log.replace_segments(old, target)
            self._replaced.append((target, old))
        return True

    def run_swap(self) -> None:
        """Blocks. A failure is final for the log dir."""
        try:
            self._run_swap()
        except OSError as error:
            raise DiskFailed(self._log_dir, error) from error

    def finish_swap(self, log: "Log") -> None:
        """On the event loop: replaces the new segments by objects that can close their files and
        open them again by name."""
        for target, _ in self._replaced:
            new = Segment(self._disk, self.directory, target.base_offset, fresh=False)
            log.replace_segments([target], new)
        log.removals.append((self.now_ms + self._config.file_delete_delay_ms, self._renamed))

    def swap_in(self, log: "Log") -> bool:
        """Runs all three steps. Returns False if the log was changed in the meantime. Blocks."""
        try:
            if not self.begin_swap(log):
                self.discard()
                return False
            self._run_swap()
        except OSError as error:
            raise log.fail_with(error) from error
        self.finish_swap(log)
        return True

    def discard(self) -> None:
        """Deletes the new segments. Blocks."""
        unlink_files(self._disk, [path for target, _ in self.cleaned for path in target.paths()])

    def _run_swap(self) -> None:
        for target, old in self._replaced:
            self._swap_group(target, old)

    def _swap_group(self, target: Segment, old: list[Segment]) -> None:
        disk = self._disk
        stem = f"{self.directory}/{offset_name(target.base_offset)}"
        cleaned_paths = [path for path in target.paths() if disk.exists(path)]
        swap_paths = [path.removesuffix(CLEANED_SUFFIX) + SWAP_SUFFIX for path in cleaned_paths]
        pairs = list(zip(cleaned_paths, swap_paths, strict=True))
        for cleaned, swap in pairs[1:] + pairs[:1]:  # the log last: it makes the result valid
            if swap == stem + LOG_SUFFIX + SWAP_SUFFIX:
                disk.fsync_dir(self.directory)
            disk.rename(cleaned, swap)
        disk.fsync_dir(self.directory)
        for segment in reversed(old):
            keep_snapshot = segment.base_offset == target.base_offset
            self._renamed += set_aside(disk, self.directory, segment, keep_snapshot=keep_snapshot)
        for swap in swap_paths[1:] + swap_paths[:1]:
            disk.rename(swap, swap.removesuffix(SWAP_SUFFIX))
        disk.fsync_dir(self.directory)
