"""Retention by time and size: whole segments go, oldest first, but for what is held (`holds.py`).

A segment's files are renamed to `.deleted` and unlinked after `file.delete.delay.ms`. Each log is
gone for good before its indexes and the next segment go, so that power loss never leaves a hole.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from lograft.model.errors import DiskFailed
from lograft.model.seams import Disk
from lograft.model.types import Offset
from lograft.storage.holds import OldSegment, count_unheld
from lograft.storage.producer_snapshots import snapshot_path
from lograft.storage.segment import DELETED_SUFFIX, Segment

if TYPE_CHECKING:
    from lograft.storage.log import Log

#: One call deletes at most so many segments; the next call goes on.
SEGMENTS_A_CALL: Final = 64


class Removal:
    """Segments on their way out: made on the loop, run in a worker (lane: the log dir), then given
    to `finish_removal` on the loop. Readers no longer see them from the first step on.

    Until it is finished the log's start must stay in the checkpoint: the files may come back.
    """

    __slots__ = ("_directory", "_disk", "_fsync_first", "_segments", "due_ms", "renamed")

    def __init__(self, log: "Log", segments: list[Segment], next_base: int, due_ms: int) -> None:
        self._disk = log.disk
        self._directory = log.directory
        self._segments = segments
        #: The state that the doomed batches gave must outlive them: its snapshot first.
        path = snapshot_path(log.directory, next_base)
        self._fsync_first = [file for _, file in log.unflushed_files if file.path == path]
        self.due_ms = due_ms
        #: The files as they are called now; known after `run`.
        self.renamed: list[str] = []

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
            self.renamed += set_aside(self._disk, self._directory, segment)


def plan_removal(
    log: "Log", now_ms: int, high_watermark: Offset, *, held: Offset | None = None
) -> Removal | None:
    """Never at or above the high watermark. The active segment is rolled when its time has come,
    so that even a log without new records empties. `held`: records from there on are held."""
    is_old = _policy(log, now_ms)
    doomed: list[Segment] = []
    # A hold is measured against all that it keeps, not only against what one call deletes.
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
    # Not before: as long as a batch can come back, its epoch must be known.
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
    """A question to ask of one segment after the other, oldest first."""
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
    """What DeleteRecords took is not held. Without a limit of age, a hold's own limit is one."""
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
    return doomed[: count_unheld(old, held=held, bytes_max=config.retention_hold_max_bytes)]


def _end_of(log: "Log", slot: int) -> int:
    """The offset after a segment's last one."""
    is_last = slot + 1 == len(log.segments)
    return log.end_offset if is_last else log.segments[slot + 1].base_offset


def set_aside(
    disk: Disk, directory: str, segment: Segment, *, keep_snapshot: bool = False
) -> list[str]:
    """Renames a segment's files; readers that hold them go on reading. First, and for good, the
    log: if power loss brought it back, its indexes and snapshot would have to be there."""
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
    """Those whose delay is over; the caller unlinks them."""
    expired: list[str] = []
    while log.removals and log.removals[0][0] <= now_ms:
        expired += log.removals.popleft()[1]
    return expired


def unlink_files(disk: Disk, paths: list[str]) -> int:
    """Blocks: large files take long. A folder that was deleted meanwhile took its files along."""
    count = 0
    for path in paths:
        try:
            disk.unlink(path)
            count += 1
        except FileNotFoundError:
            pass
    return count
