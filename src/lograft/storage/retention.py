"""Retention by time and size: deletes whole segments, oldest first, unless they are held
(`retention_holds.py`).

The files of a segment are renamed to `.deleted` and unlinked after `file.delete.delay.ms`. Each log
file is deleted durably before its indexes and before the next segment, so that power loss never
leaves a gap.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from lograft.model.errors import DiskFailed
from lograft.model.seams import Disk
from lograft.model.types import Offset
from lograft.storage.producer_snapshots import snapshot_path
from lograft.storage.retention_holds import OldSegment, count_deletable
from lograft.storage.segment import DELETED_SUFFIX, Segment

if TYPE_CHECKING:
    from lograft.storage.log import Log

#: One call deletes at most this many segments; the next call continues.
SEGMENTS_A_CALL: Final = 64


class Removal:
    """Segments to delete: built on the event loop, run in a worker (the lane of the log dir), then
    passed to `finish_removal` on the event loop. Readers do not see the segments from the first
    step on.

    Until the removal is finished, the log start checkpoint must keep the old log start: a crash may
    bring the files back.
    """

    __slots__ = (
        "_directory",
        "_disk",
        "_fsync_first",
        "_segments",
        "due_ms",
        "renamed",
        "size_bytes",
    )

    def __init__(self, log: "Log", segments: list[Segment], next_base: int, due_ms: int) -> None:
        self._disk = log.disk
        self._directory = log.directory
        self._segments = segments
        #: Producer state derived from the deleted batches must survive them, so its snapshot is
        #: fsynced first.
        path = snapshot_path(log.directory, next_base)
        self._fsync_first = [file for _, file in log.unflushed_files if file.path == path]
        self.due_ms = due_ms
        #: The current paths of the files; set by `run`.
        self.renamed: list[str] = []
        #: Size of the deleted segments; set by `run`.
        self.size_bytes = 0

    def __len__(self) -> int:
        return len(self._segments)

    def run(self) -> None:
        """Blocks. A failure is final for the log dir."""
        try:
            self._run()
        except OSError as error:
            raise DiskFailed(self._directory.rpartition("/")[0], error) from error

    def _run(self) -> None:
        for file in self._fsync_first:
            file.fsync()
            self._disk.fsync_dir(self._directory)
        for segment in self._segments:
            # Before the file is renamed: after a restart the size may not have been read yet.
            self.size_bytes += segment.size
            self.renamed += set_aside(self._disk, self._directory, segment)


def plan_removal(
    log: "Log", now_ms: int, high_watermark: Offset, *, held: Offset | None = None
) -> Removal | None:
    """Never deletes records at or above the high watermark. Rolls the active segment once it has
    expired, so that a log without new records is emptied too. `held`: records from this offset on
    are held."""
    is_old = _policy(log, now_ms)
    doomed: list[Segment] = []
    # The size limit of a hold applies to everything that it keeps, not only to what one call
    # deletes.
    count_max = SEGMENTS_A_CALL if held is None else len(log.segments)
    for slot, segment in enumerate(log.segments):
        last = slot + 1 == len(log.segments)
        end = _end_of(log, slot)
        if end > high_watermark or len(doomed) == count_max or (last and not segment.size):
            break
        if end > log.log_start_offset and not is_old(segment):
            break
        doomed.append(segment)
    if held is not None:
        doomed = _unheld(log, doomed, held, now_ms)[:SEGMENTS_A_CALL]
    if not doomed:
        return None
    if len(doomed) == len(log.segments):
        log.roll(now_ms)
    rest = log.segments[len(doomed) :]
    base = rest[0].base_offset
    removal = Removal(log, doomed, base, now_ms + log.config.file_delete_delay_ms)
    log.set_segments(rest)
    log.raise_start(Offset(base))
    log.is_removing = True
    return removal


def finish_removal(log: "Log", removal: Removal) -> None:
    log.removals.append((removal.due_ms, removal.renamed))
    # Only now: while a batch can come back after a crash, its epoch must be known.
    log.epochs.truncate_start(log.segments[0].base_offset)
    log.is_removing = False


def delete_old_segments(log: "Log", now_ms: int, high_watermark: Offset) -> int:
    removal = plan_removal(log, now_ms, high_watermark)
    if removal is None:
        return 0
    removal._run()
    finish_removal(log, removal)
    return len(removal)


def _policy(log: "Log", now_ms: int) -> Callable[[Segment], bool]:
    """Returns a predicate that must be called with each segment in turn, oldest first."""
    config = log.config
    if not config.cleanup_delete:
        return lambda segment: False
    surplus = log.size_bytes - config.retention_bytes if config.retention_bytes >= 0 else -1

    def is_old(segment: Segment) -> bool:
        nonlocal surplus
        if config.retention_ms >= 0 and _is_older(log, segment, config.retention_ms, now_ms):
            surplus -= segment.size
            return True
        if surplus >= segment.size > 0:
            surplus -= segment.size
            return True
        return False

    return is_old


def _is_older(log: "Log", segment: Segment, age_ms: int, now_ms: int) -> bool:
    newest = segment.load_max_timestamp()
    if now_ms - newest > age_ms:
        newest = segment.prove_max_timestamp()
    if newest < 0:
        newest = log.disk.modified_ms(segment.path)
    return now_ms - newest > age_ms


def _unheld(log: "Log", doomed: list[Segment], held: Offset, now_ms: int) -> list[Segment]:
    """Returns the segments to delete although there is a hold. Records deleted by DeleteRecords are
    not held. If `retention.ms` is unlimited, the maximum age is that of the hold alone."""
    config = log.config
    age_ms = max(config.retention_ms, 0) + config.retention_hold_max_ms
    held = max(held, log.log_start_offset)
    old = [
        OldSegment(
            _end_of(log, slot),
            segment.size,
            _end_of(log, slot) > held and _is_older(log, segment, age_ms, now_ms),
        )
        for slot, segment in enumerate(doomed)
    ]
    return doomed[: count_deletable(old, held=held, bytes_max=config.retention_hold_max_bytes)]


def _end_of(log: "Log", slot: int) -> int:
    """Returns the offset after the last one of a segment."""
    is_last = slot + 1 == len(log.segments)
    return log.end_offset if is_last else log.segments[slot + 1].base_offset


def set_aside(
    disk: Disk, directory: str, segment: Segment, *, keep_snapshot: bool = False
) -> list[str]:
    """Renames a segment's files; readers with open files continue to read them. The log file is
    renamed first, and durably: if power loss brought it back, its indexes and snapshot would have
    to exist."""
    paths = segment.paths()
    if not keep_snapshot:
        paths.append(snapshot_path(directory, segment.base_offset))
    renamed = []
    for path in paths:
        if disk.exists(path):
            disk.rename(path, path + DELETED_SUFFIX)
            renamed.append(path + DELETED_SUFFIX)
        if path == segment.path:
            disk.fsync_dir(directory)
    return renamed


def take_expired_files(log: "Log", now_ms: int) -> list[str]:
    """Returns the files whose delay has passed; the caller unlinks them."""
    expired: list[str] = []
    while log.removals and log.removals[0][0] <= now_ms:
        expired += log.removals.popleft()[1]
    return expired


def unlink_files(disk: Disk, paths: list[str]) -> int:
    """Blocks: unlinking large files takes a long time. Files of a directory that was deleted in the
    meantime no longer exist."""
    count = 0
    for path in paths:
        try:
            disk.unlink(path)
            count += 1
        except FileNotFoundError:
            pass
    return count
