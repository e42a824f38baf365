"""Loading a log from its files.

After a clean shutdown, only the end of the last segment is read. After an unclean shutdown, every
batch from the segment of the recovery point on is validated, an incomplete end is truncated, and
the indexes, leader epochs and producer state of these segments are rebuilt. Damage below the
recovery point raises an error, and nothing on disk is changed: those bytes were fsynced, so the
damage is corruption and not an incomplete write.
"""

from bisect import bisect_right
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final, NamedTuple

from crc32c import crc32c

from lograft.model.types import Offset
from lograft.storage.epochs import LeaderEpochs
from lograft.storage.errors import (
    BatchCorruptBelowRecoveryPoint,
    InvalidCheckpoint,
    LogCorrupt,
    SnapshotCorrupt,
)
from lograft.storage.log_dirs import LEADER_EPOCHS, read_epochs, write_epochs
from lograft.storage.markers import read_marker
from lograft.storage.producer_snapshots import decode_snapshot, encode_snapshot, snapshot_path
from lograft.storage.producers import ProducerBatch, ProducerStates
from lograft.storage.segment import LOG_SUFFIX, SNAPSHOT_SUFFIX, HeaderFields, Segment
from lograft.storage.types import AbortedTransaction, RecoveryPlan
from lograft.storage.unfinished_files import tidy
from lograft.wire.batches import (
    CONTROL_FLAG,
    CRC_START,
    HEADER_SIZE,
    LENGTH_OVERHEAD,
    MAGIC,
    SEQUENCE_MAX,
    TRANSACTIONAL_FLAG,
    unpack_header,
)
from lograft.wire.errors import MalformedMessage

if TYPE_CHECKING:
    from lograft.storage.log import Log

SCAN_BYTES: Final = 1 << 20
RELATIVE_OFFSET_MAX: Final = 2**31 - 1


def load(log: "Log", plan: RecoveryPlan, now_ms: int) -> None:
    disk, directory = log.disk, log.directory
    if not disk.is_dir(directory):
        disk.make_dir(directory)
        disk.fsync_dir(log.log_dir)
    names = tidy(disk, directory)
    bases = sorted(int(name[:20]) for name in names if name.endswith(LOG_SUFFIX))
    if not bases:
        # A new log, a log that a crash interrupted while it was being emptied, or a log whose files
        # were deleted by other means. As in Kafka it starts at the checkpointed log start offset,
        # whatever the recovery point was: a follower then fetches all records again, and is not
        # mistaken for one that has them.
        _begin(log, names, plan.log_start, now_ms)
        return
    log.set_segments([Segment(disk, directory, base, fresh=False) for base in bases])
    epochs_known = _load_epochs(log)
    if not plan.clean or not _load_clean(log, plan, epochs_known):
        _recover(log, plan, epochs_known)
    log.on_loaded(Offset(max(plan.log_start, bases[0])))
    log.epochs.truncate_start(bases[0])
    log.active.created_ms = now_ms


def _begin(log: "Log", names: list[str], start: Offset, now_ms: int) -> None:
    """Creates the first segment of a log without segments."""
    for name in names:
        if name.endswith(SNAPSHOT_SUFFIX):
            log.disk.unlink(f"{log.directory}/{name}")
    if LEADER_EPOCHS in names:
        write_epochs(log.disk, log.directory, [])
    # The first file name must be durable before a later one is created; otherwise recovery could
    # not detect that the first is missing.
    log.begin_segment(start, now_ms)
    log.disk.fsync_dir(log.directory)
    log.directory_changed = False
    log.on_emptied(start)


def _load_epochs(log: "Log") -> bool:
    """Returns False if the file is damaged, so that the epochs must be rebuilt from the batches."""
    try:
        log.epochs = LeaderEpochs(read_epochs(log.disk, log.directory))
    except InvalidCheckpoint:
        return False
    return True


# ── after a clean shutdown ───────────────────────────────────────────────────────────────────────


def _load_clean(log: "Log", plan: RecoveryPlan, epochs_known: bool) -> bool:
    """Returns False if the last segment is not as a clean shutdown leaves it: then the log is
    recovered."""
    active = log.active
    try:
        log.on_scanned(Offset(active.resume()))
        if log.end_offset < plan.recovery_point:
            raise LogCorrupt(
                f"{active.path} ends before offset {plan.recovery_point}, although all records"
                " below it were flushed"
            )
        if not epochs_known:
            rebuild_epochs(log)
        log.epochs.truncate_end(log.end_offset)
        rebuild_producers(log, upto=log.end_offset)
    except (LogCorrupt, MalformedMessage):
        log.set_segments(
            [Segment(log.disk, log.directory, s.base_offset, fresh=False) for s in log.segments]
        )
        return False
    return True


def rebuild_epochs(log: "Log") -> None:
    log.epochs = LeaderEpochs()
    log.epochs.changes += 1
    for segment in log.segments:
        for _, fields in segment.scan():
            if fields[2] > log.epochs.latest:
                log.epochs.assign(fields[2], fields[0])


# ── producer state ───────────────────────────────────────────────────────────────────────────


def snapshot_offsets(log: "Log") -> list[int]:
    """Oldest first."""
    return [
        int(name[:20])
        for name in log.disk.list_dir(log.directory)
        if name.endswith(SNAPSHOT_SUFFIX) and name[:20].isdigit()
    ]


def rebuild_producers(log: "Log", *, upto: int) -> None:
    """Rebuilds the state as of `upto` from the latest snapshot up to there and the batches after
    it."""
    start, useless = load_snapshot(log, upto)
    _replay(log, start, upto)
    _unlink_snapshots(log, useless)


def load_snapshot(log: "Log", upto: int) -> tuple[int, list[int]]:
    """Loads the latest valid snapshot at or below `upto`. Returns the offset from which batches
    must be replayed, and the offsets of all snapshots to delete: later ones, damaged ones, and
    those from before the first segment, since the batches that follow them were deleted."""
    log.producers.clear()
    useless: list[int] = []
    first = log.segments[0].base_offset
    for offset in reversed(snapshot_offsets(log)):
        if first <= offset <= upto:
            try:
                data = log.disk.read(snapshot_path(log.directory, offset))
                log.producers.load(decode_snapshot(data))
            except SnapshotCorrupt:
                pass
            else:
                return offset, useless
        useless.append(offset)
    return first, useless


def _unlink_snapshots(log: "Log", offsets: list[int]) -> None:
    for offset in offsets:
        log.disk.unlink(snapshot_path(log.directory, offset))


def _replay(log: "Log", start: int, upto: int) -> None:
    for slot, segment in enumerate(log.segments):
        if segment.base_offset >= upto:
            break
        if slot + 1 < len(log.segments) and log.segments[slot + 1].base_offset <= start:
            continue
        for position, fields in segment.scan(segment.position_of(start)):
            if fields[0] + fields[6] >= upto:
                break
            if fields[9] >= 0 and fields[0] + fields[6] >= start:
                marker_bytes = None
                if fields[5] & CONTROL_FLAG:
                    marker_bytes = segment.read_batch(position, fields[1] + LENGTH_OVERHEAD)
                replay_batch(log.producers, fields, marker_bytes)


def replay_batch(
    producers: ProducerStates, fields: HeaderFields, control_batch: bytes | memoryview | None
) -> AbortedTransaction | None:
    """Updates producer state with a batch of the log, exactly as its append did."""
    base, last_offset = fields[0], fields[0] + fields[6]
    if control_batch is not None:
        marker = read_marker(control_batch)
        if marker is None:
            return None
        return producers.add_marker(fields[9], fields[10], marker, base, fields[8], -1)
    sequence = fields[11]
    last_sequence = (sequence + fields[6]) & SEQUENCE_MAX if sequence >= 0 else sequence
    producers.add_batch(
        fields[9],
        fields[10],
        ProducerBatch(sequence, last_sequence, base, last_offset, fields[8]),
        bool(fields[5] & TRANSACTIONAL_FLAG),
        -1,
    )
    return None


# ── after an unclean shutdown ────────────────────────────────────────────────────────────────────


class _Cut(NamedTuple):
    """The end of the recovered log: the number of segments, and the size of the last one."""

    segments: int
    size: int


def _recover(log: "Log", plan: RecoveryPlan, epochs_known: bool) -> None:
    recovery_point = plan.recovery_point
    # Files that a killed process unlinked must not come back after power loss once this log has
    # continued without them.
    log.disk.fsync_dir(log.directory)
    # If a segment begins at the recovery point, the previous one may have been rolled after the
    # last flush: its log is durable, its indexes and the snapshot at its end may not be.
    first = max(bisect_right([s.base_offset for s in log.segments], recovery_point - 1) - 1, 0)
    scan_base = log.segments[first].base_offset
    log.on_scanned(Offset(scan_base))
    epochs_before = log.epochs.entries if epochs_known else None
    if epochs_known:
        log.epochs.truncate_end(scan_base)
    else:
        kept = log.segments
        log.set_segments(kept[:first])
        rebuild_epochs(log)
        log.set_segments(kept)
    snapshots: dict[int, bytes] = {}
    snapshot_offset, useless = load_snapshot(log, scan_base)
    _replay(log, snapshot_offset, scan_base)
    if snapshot_offset != scan_base:
        snapshots[scan_base] = encode_snapshot(log.producers)
    cut = _check_segments(log, first, snapshots)
    if log.end_offset < recovery_point and recovery_point > plan.log_start:
        raise BatchCorruptBelowRecoveryPoint(
            log.segments[cut.segments - 1].path,
            position=cut.size,
            offset=log.end_offset,
            recovery_point=recovery_point,
        )
    log.has_lost_batches = _loses_whole_batches(log, cut)
    _unlink_snapshots(log, useless)
    is_whole = cut.segments == len(log.segments) and cut.size == log.active.file.size
    if (
        is_whole
        and not snapshots
        and log.end_offset == recovery_point
        and log.epochs.entries == epochs_before
    ):
        # The log is as the checkpoints say, like many logs of a node that stopped uncleanly. The
        # fsync covers a truncation by a killed process, and is cheap if there was none.
        log.active.file.fsync()
        log.epochs_written = log.epochs.changes
    else:
        _apply(log, first, cut, snapshots)


def _loses_whole_batches(log: "Log", cut: _Cut) -> bool:
    """Whether the truncated bytes are more than an incomplete batch."""
    if cut.segments < len(log.segments):
        return True
    file = log.active.file
    rest = file.size - cut.size
    if rest < HEADER_SIZE:
        return False
    size = unpack_header(memoryview(file.pread(HEADER_SIZE, cut.size)), 0)[1] + LENGTH_OVERHEAD
    return bool(HEADER_SIZE <= size <= rest)


def _check_segments(log: "Log", first: int, snapshots: dict[int, bytes]) -> _Cut:
    """Validates every batch from segment `first` on, without changing anything on disk."""
    segments = list(log.segments)
    for slot in range(first, len(segments)):
        base = segments[slot].base_offset
        if slot > first:
            if base != log.end_offset:
                # Either the end of the previous segment is lost, or this segment was deleted before
                # power loss and came back. In both cases its batches do not continue the log.
                return _Cut(slot, segments[slot - 1].size)
            snapshots[base] = encode_snapshot(log.producers)
        segment = Segment(log.disk, log.directory, base, fresh=True)
        file_size = segment.file.size
        segment.use(segment.file, 0)
        segments[slot] = segment
        log.set_segments(segments)
        for position, fields, batch in _checked_batches(log, segment, file_size):
            _take_in(log, segment, position, fields, batch)
        if segment.size < file_size:
            return _Cut(slot + 1, segment.size)
    return _Cut(len(segments), segments[-1].size)


def _checked_batches(
    log: "Log", segment: Segment, file_size: int
) -> Iterator[tuple[int, HeaderFields, memoryview]]:
    """Yields batches up to the first bytes that are not a valid next batch."""
    file = segment.file
    position, chunk_start, chunk = 0, 0, memoryview(b"")
    while position + HEADER_SIZE <= file_size:
        at = position - chunk_start
        if at + HEADER_SIZE > len(chunk):
            chunk, chunk_start, at = memoryview(file.pread(SCAN_BYTES, position)), position, 0
            if len(chunk) < HEADER_SIZE:
                return
        fields = unpack_header(chunk, at)
        size = fields[1] + LENGTH_OVERHEAD
        if fields[3] != MAGIC or size < HEADER_SIZE or position + size > file_size:
            return
        if at + size > len(chunk):
            chunk = memoryview(file.pread(max(size, SCAN_BYTES), position))
            chunk_start, at = position, 0
            if len(chunk) < size:
                return
        batch = chunk[at : at + size]
        if (
            crc32c(batch[CRC_START:]) != fields[4]
            or fields[0] < log.end_offset
            or fields[6] < 0
            or fields[0] + fields[6] - segment.base_offset > RELATIVE_OFFSET_MAX
            or 0 <= fields[2] < log.epochs.latest
        ):
            return
        yield position, fields, batch
        position += size


def _take_in(
    log: "Log", segment: Segment, position: int, fields: HeaderFields, batch: memoryview
) -> None:
    last_offset = fields[0] + fields[6]
    segment.note(position, len(batch), last_offset, fields[8], log.config.index_interval_bytes)
    if fields[2] > log.epochs.latest:
        log.epochs.assign(fields[2], fields[0])
    if fields[9] >= 0:
        control = batch if fields[5] & CONTROL_FLAG else None
        aborted = replay_batch(log.producers, fields, control)
        if aborted is not None:
            segment.transactions.append(aborted)
    log.on_scanned(Offset(last_offset + 1))


def _apply(log: "Log", first: int, cut: _Cut, snapshots: dict[int, bytes]) -> None:
    """Changes the files to what validation has found. A crash may happen after each step."""
    disk, directory = log.disk, log.directory
    segments = list(log.segments)
    while len(segments) > cut.segments:
        doomed = segments.pop()
        disk.unlink(doomed.path)
        disk.fsync_dir(directory)
        for path in doomed.paths()[1:]:
            if disk.exists(path):
                disk.unlink(path)
    log.set_segments(segments)
    files = []
    for segment in segments[first:]:
        if segment.file.size > segment.size:
            segment.file.truncate(segment.size)
        files.append(segment.file)
        if segment is not segments[-1]:
            files.extend(segment.seal())
            segment.release()
    for offset, data in snapshots.items():
        if offset <= segments[-1].base_offset:
            snapshot = disk.open(snapshot_path(directory, offset), create=True)
            snapshot.truncate(0)
            snapshot.append(data)
            files.append(snapshot)
    for file in files:
        file.fsync()
    write_epochs(disk, directory, log.epochs.entries)
    log.epochs_written = log.epochs.changes
    # The index files of the active segment are written when it is rolled or closed.
    segments[-1].offset_index.write()
    segments[-1].time_index.write()
    disk.fsync_dir(directory)
    log.directory_changed = False
