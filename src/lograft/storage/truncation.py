"""Truncation of a log such that power loss at any time leaves a prefix.

First the recovery point is lowered, then whole segments are deleted, highest first, each durably
before the next; then the last file is truncated and fsynced before batches are appended to it.
"""

from typing import TYPE_CHECKING

from lograft.model.types import Offset
from lograft.storage import recovery
from lograft.storage.log_dirs import write_epochs
from lograft.storage.producer_snapshots import snapshot_path
from lograft.storage.segment import Segment

if TYPE_CHECKING:
    from lograft.storage.log import Log


def truncate(log: "Log", to: Offset) -> None:
    if to >= log.end_offset:
        # A leader without records has left an epoch entry that the cluster may not have.
        log.epochs.truncate_end(to)
        return
    if to < log.segments[0].base_offset:
        restart_at(log, to, 0)
        return
    active, position, end = _find_cut(log, to)
    _lower_recovery_point(log, end)
    log.truncations += 1
    segments = list(log.segments)
    while segments[-1] is not active:
        _remove_segment(log, segments.pop())
        log.set_segments(list(segments))
    active.offset_index.truncate(end)
    active.time_index.truncate(end)
    active.transactions.truncate(end)
    active.truncate_file(position)
    active.file.fsync()
    last_end = Offset(active.resume())
    active.forget_recent(end)
    log.on_truncated(end, last_end=last_end)
    log.epochs.truncate_end(end)
    log.directory_changed = True
    recovery.rebuild_producers(log, upto=end)


def truncation_floor(log: "Log", to: Offset) -> Offset:
    """Returns the lowest offset that may no longer be durable once `truncate` has begun."""
    if to < log.segments[0].base_offset:
        return to
    return _find_cut(log, to)[2]


def _find_cut(log: "Log", to: Offset) -> tuple[Segment, int, Offset]:
    """Returns the segment and position at which to truncate, and the log's new end offset."""
    active = log.segment_of(to)
    position = active.position_of(to)
    end = to
    if position < active.size:
        # A batch that begins below `to` and ends above it is removed completely.
        fields = next(active.scan(position))[1]
        end = Offset(min(to, fields[0]))
    return active, position, end


def restart_at(log: "Log", offset: Offset, now_ms: int) -> None:
    # The lowest remaining offset if a crash interrupts this, whatever the log start offset is.
    _lower_recovery_point(log, Offset(min(offset, log.segments[0].base_offset)))
    log.truncations += 1
    # If a crash interrupts this, the remaining log must not have producer state of deleted batches.
    for snapshot in recovery.snapshot_offsets(log):
        log.disk.unlink(snapshot_path(log.directory, snapshot))
    segments = list(log.segments)
    while segments:
        _remove_segment(log, segments.pop())
    log.set_segments([])
    log.unflushed_files.clear()
    # Later batches may have lower epochs than the deleted ones. With the old epochs, a restart
    # would assign a wrong epoch to them or treat them as an incomplete write.
    log.epochs.clear()
    write_epochs(log.disk, log.directory, [])
    log.epochs_written = log.epochs.changes
    log.begin_segment(offset, now_ms)
    log.disk.fsync_dir(log.directory)
    log.directory_changed = False
    log.producers.clear()
    log.on_emptied(offset)


def _lower_recovery_point(log: "Log", to: Offset) -> None:
    if to < log.durable_offset:
        log.lower_durable(to)
        if log.lower_recovery_point is not None:
            log.lower_recovery_point(to)


def _remove_segment(log: "Log", segment: Segment) -> None:
    segment.release()
    log.disk.unlink(segment.path)
    log.disk.fsync_dir(log.directory)
    for path in segment.paths()[1:]:
        if log.disk.exists(path):
            log.disk.unlink(path)
