"""Retention by time and size: whole segments go, oldest first.

A segment's files are renamed to `.deleted` and unlinked after `file.delete.delay.ms`. Each log is
gone for good before its indexes and the next segment go, so that power loss never leaves a hole.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from lograft.model.types import Offset
from lograft.storage.producer_snapshots import snapshot_path
from lograft.storage.segment import DELETED_SUFFIX, Segment

if TYPE_CHECKING:
    from lograft.storage.log import Log

#: One call deletes at most so many segments; the next call goes on.
SEGMENTS_A_CALL: Final = 64


def delete_old_segments(log: "Log", now_ms: int, high_watermark: Offset) -> int:
    """Never deletes at or above the high watermark. The active segment is rolled when its time
    has come, so that even a log without new records empties."""
    is_old = _policy(log, now_ms)
    doomed: list[Segment] = []
    for slot, segment in enumerate(log.segments):
        last = slot + 1 == len(log.segments)
        end = log.end_offset if last else log.segments[slot + 1].base_offset
        if end > high_watermark or len(doomed) == SEGMENTS_A_CALL or (last and not segment.size):
            break
        if end > log.log_start_offset and not is_old(segment):
            break
        doomed.append(segment)
    if not doomed:
        return 0
    if len(doomed) == len(log.segments):
        log.roll(now_ms)
    rest = log.segments[len(doomed) :]
    _keep_producers(log, rest[0].base_offset)
    log.set_segments(rest)
    start = Offset(max(log.log_start_offset, rest[0].base_offset))
    log.log_start_offset = start
    for segment in doomed:
        set_aside(log, segment, now_ms)
    # Not before: as long as a batch can come back, its epoch must be known.
    log.epochs.truncate_start(rest[0].base_offset)
    return len(doomed)


def _keep_producers(log: "Log", offset: int) -> None:
    """The state that the doomed batches gave must outlive them: its snapshot first."""
    path = snapshot_path(log.directory, offset)
    for _, file in log.unflushed_files:
        if file.path == path:
            file.fsync()
            log.disk.fsync_dir(log.directory)


def _policy(log: "Log", now_ms: int) -> Callable[[Segment], bool]:
    """A question to ask of one segment after the other, oldest first."""
    config = log.config
    if not config.cleanup_delete:
        return lambda segment: False
    surplus = log.size_bytes - config.retention_bytes if config.retention_bytes >= 0 else -1

    def is_old(segment: Segment) -> bool:
        nonlocal surplus
        if config.retention_ms >= 0:
            newest = segment.load_max_timestamp()
            if newest < 0:
                newest = log.disk.modified_ms(segment.path)
            if now_ms - newest > config.retention_ms:
                surplus -= segment.size
                return True
        if surplus >= segment.size > 0:
            surplus -= segment.size
            return True
        return False

    return is_old


def set_aside(log: "Log", segment: Segment, now_ms: int, *, keep_snapshot: bool = False) -> None:
    """Renames a segment's files; readers that hold them go on reading. First, and for good, the
    log: if power loss brought it back, its indexes and snapshot would have to be there."""
    paths = segment.paths()
    if not keep_snapshot:
        paths.append(snapshot_path(log.directory, segment.base_offset))
    renamed = []
    for path in paths:
        if log.disk.exists(path):
            log.disk.rename(path, path + DELETED_SUFFIX)
            renamed.append(path + DELETED_SUFFIX)
        if path == segment.path:
            log.disk.fsync_dir(log.directory)
    log.removals.append((now_ms + log.config.file_delete_delay_ms, renamed))


def remove_expired_files(log: "Log", now_ms: int) -> int:
    count = 0
    while log.removals and log.removals[0][0] <= now_ms:
        for path in log.removals[0][1]:
            if log.disk.exists(path):
                log.disk.unlink(path)
                count += 1
        log.removals.popleft()
    return count
