"""The data directory of a server: its identity, hard state, log and snapshots.

    identity                  node id and directory id, written once
    hard-state                epoch, vote and leader, as last persisted for Raft
    kv-0/                     the log, in segments
    <offset>-<epoch>.snapshot the two newest; the log starts at the end of the older one

All functions here block: they run before the server accepts connections, or in a worker.
"""

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import Final, NamedTuple
from uuid import UUID

from crc32c import crc32c

from examples.raft_kv.entries import Entries, pack_voters, read_entries, unpack_voters
from examples.raft_kv.packing import Malformed, content, number, pack, unpack_tuple, values
from lograft.consensus.types import HardState, LogEnd, ReplicaKey, SnapshotId, VoterSet
from lograft.model.errors import InvalidInput, LograftError
from lograft.model.seams import Disk, File, Randomness
from lograft.model.types import NO_EPOCH, Epoch, NodeId, Offset, TopicPartition
from lograft.storage.log import Log
from lograft.storage.log_dirs import read_checkpoint, write_atomically, write_checkpoint
from lograft.storage.segment import LOG_SUFFIX
from lograft.storage.types import FixedLogConfig, RecoveryPlan

IDENTITY: Final = "identity"
HARD_STATE: Final = "hard-state"
RECOVERY_POINT: Final = "recovery-point"
LOCK: Final = ".lock"
LOG: Final = TopicPartition("kv", 0)
LOG_ID: Final = UUID(int=1)
#: A snapshot that is being received from the leader.
ARRIVING: Final = "arriving.part"
PART_SUFFIX: Final = ".part"
READ_BYTES: Final = 1 << 20
SNAPSHOTS_KEPT: Final = 2
_SNAPSHOT_NAME: Final = re.compile(r"([0-9]{20})-([0-9]{10})\.snapshot")
_MAGIC: Final = b"lograft kv 1"
_NEVER: Final = -1


class FolderDamaged(LograftError):
    """A file that was complete is damaged. The server does not repair it, because that could lose
    committed records."""


class Snapshot(NamedTuple):
    id: SnapshotId
    #: The voters at the end of the snapshot.
    voters: VoterSet
    state: bytes
    size_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Loaded:
    me: ReplicaKey
    log: Log
    #: The start offset of the log, and the epoch of the record before it.
    log_start: LogEnd
    hard_state: HardState
    #: The newest snapshot.
    snapshot: Snapshot | None
    #: All snapshots in ascending order, with their sizes.
    snapshots: dict[SnapshotId, int]
    epochs: tuple[tuple[Epoch, Offset], ...]
    #: The voter sets in the log after the snapshot, with their offsets.
    voter_history: tuple[tuple[Offset, VoterSet], ...]


# ── loading ──────────────────────────────────────────────────────────────────────────────────


def load(
    disk: Disk, folder: str, node_id: NodeId, *, segment_bytes: int, randomness: Randomness,
    now_ms: int,
) -> Loaded:  # fmt: skip
    """Recovers the directory after a clean stop, a kill or a power loss."""
    me = _identify(disk, folder, node_id, randomness)
    for name in disk.list_dir(folder):
        if name.endswith(PART_SUFFIX):
            disk.unlink(f"{folder}/{name}")
    ids = snapshot_ids(disk, folder)
    newest = read_snapshot(disk, folder, ids[-1]) if ids else None
    _check_log_is_there(disk, folder, Offset(0) if newest is None else newest.id.end_offset)
    log = _open_log(disk, folder, segment_bytes, ids[0].end_offset if ids else Offset(0), now_ms)
    if newest is not None and not _continues(log, newest.id):
        # The snapshot is from a leader; a crash prevented it from replacing the log.
        log.truncate_fully_and_start_at(newest.id.end_offset, now_ms=now_ms)
        for old in ids[:-1]:
            disk.unlink(snapshot_path(folder, old))
        ids = ids[-1:]
    log_start = _start_of(log, ids)
    floor = Offset(0) if newest is None else newest.id.end_offset
    return Loaded(
        me=me,
        log=log,
        log_start=log_start,
        hard_state=read_hard_state(disk, folder),
        snapshot=newest,
        snapshots={i: disk.open(snapshot_path(folder, i)).size for i in ids},
        epochs=_epochs(log, log_start.offset),
        voter_history=tuple(
            entry.voters
            for entry in read_all(log, log_start.offset)
            if entry.voters is not None and entry.voters[0] >= floor
        ),
    )


def _identify(disk: Disk, folder: str, node_id: NodeId, randomness: Randomness) -> ReplicaKey:
    path = f"{folder}/{IDENTITY}"
    if not disk.exists(path):
        me = ReplicaKey(node_id, randomness.uuid())
        text = json.dumps({"node_id": node_id, "directory_id": str(me.directory_id)})
        write_atomically(disk, path, text.encode())
        return me
    try:
        known = json.loads(disk.read(path))
        me = ReplicaKey(NodeId(int(known["node_id"])), UUID(known["directory_id"]))
    except (ValueError, KeyError, TypeError, AttributeError):
        raise FolderDamaged(f"{path} cannot be read: restore it from a backup") from None
    if me.node_id != node_id:
        raise InvalidInput(
            f"{folder} belongs to server {me.node_id}, not to {node_id}: use the folder of"
            f" server {node_id}, or an empty one"
        )
    return me


def _open_log(disk: Disk, folder: str, segment_bytes: int, log_start: Offset, now_ms: int) -> Log:
    recovery_point = read_recovery_point(disk, folder)
    log = Log.open(
        disk,
        f"{folder}/{LOG}",
        topic_partition=LOG,
        topic_id=LOG_ID,
        config=FixedLogConfig(
            segment_bytes=segment_bytes,
            max_message_bytes=segment_bytes,
            # Snapshots determine what may be deleted, not the age of a segment.
            retention_ms=_NEVER,
            retention_bytes=_NEVER,
            cleanup_delete=False,
            file_delete_delay_ms=0,
        ),
        now_ms=now_ms,
        recovery=RecoveryPlan(clean=False, recovery_point=recovery_point, log_start=log_start),
    )
    log.lower_recovery_point = partial(write_recovery_point, disk, folder)
    return log


def _check_log_is_there(disk: Disk, folder: str, floor: Offset) -> None:
    """An empty log is valid on the first start, but not if records were flushed before: a replica
    that lost acknowledged records must not vote."""
    path, flushed = f"{folder}/{LOG}", read_recovery_point(disk, folder)
    names = disk.list_dir(path) if disk.is_dir(path) else []
    if flushed > floor and not any(name.endswith(LOG_SUFFIX) for name in names):
        raise FolderDamaged(
            f"{path}: the log is missing, and no snapshot contains its records from {floor} to"
            f" {flushed}: remove this server from the cluster and add it again with an empty folder"
        )


def _continues(log: Log, snapshot: SnapshotId) -> bool:
    """Returns whether the log contains the last record of the snapshot, and so all records before
    it. This includes a log that starts right after the snapshot."""
    if log.end_offset < snapshot.end_offset:
        return False
    if log.log_start_offset >= snapshot.end_offset:
        return True
    return log.epoch_for_offset(snapshot.end_offset - 1) == snapshot.epoch


def _start_of(log: Log, ids: list[SnapshotId]) -> LogEnd:
    """A log starts at 0 or at the end of a snapshot."""
    if log.log_start_offset == 0:
        return LogEnd(NO_EPOCH, Offset(0))
    for each in ids:
        if each.end_offset >= log.log_start_offset:
            log.advance_start(each.end_offset)
            return LogEnd(each.epoch, each.end_offset)
    raise FolderDamaged(
        f"{log.directory} starts at {log.log_start_offset}, and no snapshot contains what was"
        " before: remove this server from the cluster and add it again with an empty folder"
    )


def _epochs(log: Log, start: Offset) -> tuple[tuple[Epoch, Offset], ...]:
    entries = [(Epoch(e.epoch), Offset(max(e.start_offset, start))) for e in log.epochs.entries]
    following = [*(offset for _, offset in entries[1:]), log.end_offset]
    return tuple(each for each, end in zip(entries, following, strict=False) if each[1] < end)


def read_all(log: Log, start: Offset) -> Iterator[Entries]:
    offset = start
    while offset < log.end_offset:
        for entry in read_some(log, offset, log.end_offset):
            yield entry
            offset = entry.end


def read_some(log: Log, offset: Offset, bound: Offset) -> list[Entries]:
    """Reads at least one batch. A batch that was complete at the start and is not any more is a
    disk failure."""
    part = log.read(offset, bytes_max=READ_BYTES, bound=bound)
    entries: list[Entries] = []
    if part is not None:
        try:
            entries = list(read_entries(part.file.pread(part.size, part.position)))
        except Malformed as error:
            raise FolderDamaged(f"{log.directory} at offset {offset}: {error}") from None
    if not entries:
        raise FolderDamaged(f"{log.directory}: cannot read a batch at offset {offset}")
    return entries


# ── hard state and recovery point ────────────────────────────────────────────────────────────


def read_hard_state(disk: Disk, folder: str) -> HardState:
    """A server without this file has never voted."""
    path = f"{folder}/{HARD_STATE}"
    if not disk.exists(path):
        return HardState()
    try:
        state = json.loads(disk.read(path))
        voted = state["voted_for"]
        return HardState(
            Epoch(int(state["epoch"])),
            NodeId(int(state["leader"])),
            None if voted is None else ReplicaKey(NodeId(int(voted[0])), UUID(voted[1])),
        )
    except (ValueError, KeyError, TypeError, IndexError, AttributeError):
        # Voting without knowing the last vote could elect two leaders in one epoch.
        raise FolderDamaged(f"{path} cannot be read: restore it from a backup") from None


def write_hard_state(disk: Disk, folder: str, state: HardState) -> None:
    voted = state.voted_for
    known = {
        "epoch": state.epoch,
        "leader": state.leader,
        "voted_for": None if voted is None else [voted.node_id, str(voted.directory_id)],
    }
    write_atomically(disk, f"{folder}/{HARD_STATE}", json.dumps(known).encode())


def read_recovery_point(disk: Disk, folder: str) -> Offset:
    return read_checkpoint(disk, f"{folder}/{RECOVERY_POINT}").get(LOG, Offset(0))


def write_recovery_point(disk: Disk, folder: str, offset: Offset) -> None:
    """All records below this offset are flushed: damage there is not an incomplete write, and is
    never truncated."""
    write_checkpoint(disk, f"{folder}/{RECOVERY_POINT}", {LOG: offset})


# ── snapshots ────────────────────────────────────────────────────────────────────────────────


def snapshot_path(folder: str, snapshot: SnapshotId) -> str:
    return f"{folder}/{snapshot.end_offset:020d}-{snapshot.epoch:010d}.snapshot"


def snapshot_ids(disk: Disk, folder: str) -> list[SnapshotId]:
    """Returns the snapshots, oldest first."""
    found = (_SNAPSHOT_NAME.fullmatch(name) for name in disk.list_dir(folder))
    return sorted(SnapshotId(Offset(int(m[1])), Epoch(int(m[2]))) for m in found if m)


def write_snapshot(
    disk: Disk, folder: str, snapshot: SnapshotId, voters: VoterSet, state: bytes
) -> int:
    """Returns the size. After a crash the file is either complete under its final name, or does not
    exist."""
    path = snapshot_path(folder, snapshot)
    body = pack((snapshot.end_offset, snapshot.epoch, pack_voters(voters), state))
    file = disk.open(path + PART_SUFFIX, create=True)
    file.truncate(0)
    file.append(_MAGIC, crc32c(body).to_bytes(4, "big"), body)
    _put_in_place(disk, file, path)
    return file.size


def install_snapshot(disk: Disk, folder: str, snapshot: SnapshotId) -> Snapshot:
    """Validates a received snapshot and renames it."""
    file = disk.open(f"{folder}/{ARRIVING}")
    arrived = _parse_snapshot(disk.read(file.path), snapshot, file.path)
    _put_in_place(disk, file, snapshot_path(folder, snapshot))
    return arrived


def _put_in_place(disk: Disk, file: File, path: str) -> None:
    file.fsync()
    disk.rename(file.path, path)
    disk.fsync_dir(path.rpartition("/")[0])


def read_snapshot(disk: Disk, folder: str, snapshot: SnapshotId) -> Snapshot:
    path = snapshot_path(folder, snapshot)
    return _parse_snapshot(disk.read(path), snapshot, path)


def _parse_snapshot(data: bytes, snapshot: SnapshotId, path: str) -> Snapshot:
    head = len(_MAGIC)
    try:
        if data[:head] != _MAGIC or crc32c(data[head + 4 :]) != int.from_bytes(
            data[head : head + 4], "big"
        ):
            raise Malformed("invalid header or CRC")
        end, epoch, voters, state = values(unpack_tuple(data[head + 4 :]), 4)
        if (number(end), number(epoch)) != snapshot:
            raise Malformed(f"it ends at offset {number(end)}")
        return Snapshot(snapshot, unpack_voters(content(voters)), content(state), len(data))
    except Malformed as error:
        raise FolderDamaged(
            f"{path} is not a complete snapshot ({error}): remove this server from the cluster and"
            " add it again with an empty folder"
        ) from None
