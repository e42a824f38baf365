"""Loads the state of a replica of the metadata log at startup.

That is the newest complete snapshot, and the batches of the log after it. Whether these batches are
committed is unknown until the quorum has a leader.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final
from uuid import UUID

from lograft.broker.errors import MetadataCorrupt
from lograft.broker.quorum.metadata_batches import BATCH_BYTES_MAX, MetadataBatch, read_batches
from lograft.broker.quorum.quorum_state import read_quorum_state
from lograft.broker.quorum.snapshots import (
    Quorum,
    Snapshot,
    SnapshotId,
    quorum_of,
    read_bootstrap,
    read_newest_snapshot,
    remove_parts,
    snapshot_ids,
)
from lograft.consensus.types import HardState, LogEnd, ReplicaKey, Voter, VoterEndpoint, VoterSet
from lograft.model.errors import InvalidInput
from lograft.model.seams import Disk
from lograft.model.settings.broker import BrokerConfig
from lograft.model.types import (
    METADATA_TOPIC,
    METADATA_TOPIC_ID,
    NO_EPOCH,
    Offset,
    TopicPartition,
)
from lograft.storage.log import Log
from lograft.storage.log_dirs import (
    RECOVERY_POINTS,
    read_checkpoint,
    read_partition_metadata,
    write_checkpoint,
    write_partition_metadata,
)
from lograft.storage.segment import LOG_SUFFIX
from lograft.storage.types import FixedLogConfig, RecoveryPlan
from lograft.wire.message import Message

METADATA_PARTITION: Final = TopicPartition(METADATA_TOPIC, 0)
_READ_BYTES: Final = 1 << 20
_UNLIMITED: Final = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadedMetadata:
    me: ReplicaKey
    folder: str
    log: Log
    hard_state: HardState
    #: From the snapshot or, without a snapshot, from the settings; changes in `tail` not applied.
    quorum: Quorum
    snapshot: Snapshot | None
    snapshot_size_bytes: int
    #: Log start offset, and the epoch of the record before it.
    log_start: LogEnd
    #: Batches of the log after the snapshot.
    tail: tuple[MetadataBatch, ...]
    #: Bootstrap records written by `storage format`.
    bootstrap: tuple[Message, ...]
    #: Errors of snapshots that could not be read.
    damaged: tuple[str, ...]


def metadata_folder(config: BrokerConfig) -> str:
    return f"{config.metadata_log_dir}/{METADATA_PARTITION}"


def load_metadata(
    disk: Disk, config: BrokerConfig, *, directory_id: UUID, now_ms: int
) -> LoadedMetadata:
    """Loads the state; blocks. A torn tail of the log is truncated, committed records are kept."""
    folder = metadata_folder(config)
    disk.make_dir(folder)
    disk.fsync_dir(config.metadata_log_dir)
    remove_parts(disk, folder)
    damaged: list[str] = []
    snapshot = read_newest_snapshot(disk, folder, damaged=damaged)
    log = _open_log(disk, config, folder, snapshot, now_ms)
    tail = tuple(
        _read_tail(log, log.log_start_offset if snapshot is None else snapshot.id.end_offset)
    )
    me = ReplicaKey(config.node_id, directory_id)
    named = None if snapshot is None else snapshot.quorum
    base = named or _static_quorum(config)
    latest = base
    for batch in tail:
        latest = quorum_of(batch.control, latest)
    _check_quorum(latest, me, config)
    size = 0 if snapshot is None else disk.open(f"{folder}/{snapshot.id.file_name}").size
    return LoadedMetadata(
        me=me,
        folder=folder,
        log=log,
        hard_state=read_quorum_state(disk, folder),
        quorum=base or Quorum(0, VoterSet(())),
        snapshot=snapshot,
        snapshot_size_bytes=size,
        log_start=_log_start(log, snapshot, snapshot_ids(disk, folder)),
        tail=tail,
        bootstrap=read_bootstrap(disk, config.metadata_log_dir),
        damaged=tuple(damaged),
    )


def _open_log(
    disk: Disk, config: BrokerConfig, folder: str, snapshot: Snapshot | None, now_ms: int
) -> Log:
    ids = snapshot_ids(disk, folder)
    floor = Offset(0) if snapshot is None else snapshot.id.end_offset
    oldest = ids[0].end_offset if ids and snapshot is not None else Offset(0)
    flushed = read_recovery_point(disk, folder)
    if flushed > floor and not any(name.endswith(LOG_SUFFIX) for name in disk.list_dir(folder)):
        raise MetadataCorrupt(
            f"{folder}: the log is missing, and no complete snapshot contains its records from"
            f" {floor} to {flushed}: restore the folder from a backup"
        )
    log = Log.open(
        disk,
        folder,
        topic_partition=METADATA_PARTITION,
        topic_id=METADATA_TOPIC_ID,
        config=FixedLogConfig(
            segment_bytes=config.internal_metadata_log_segment_bytes
            or config.metadata_log_segment_bytes,
            segment_ms=config.metadata_log_segment_ms,
            max_message_bytes=BATCH_BYTES_MAX,
            # Snapshots decide what may be deleted, not the age of a segment.
            retention_ms=_UNLIMITED,
            retention_bytes=_UNLIMITED,
            cleanup_delete=False,
            file_delete_delay_ms=config.internal_metadata_delete_delay_millis,
        ),
        now_ms=now_ms,
        # A snapshot that this node took contains fsynced records only, and the recovery point is
        # written before it, so damage below it is not a torn tail. If a crash occurred before a
        # fetched snapshot replaced the log, that snapshot proves nothing about it. (Kafka writes no
        # recovery point here.)
        recovery=RecoveryPlan(
            clean=False,
            recovery_point=flushed if has_recovery_point(disk, folder) else floor,
            log_start=oldest,
        ),
    )
    if log.end_offset < floor or (snapshot is not None and _diverges_from(log, snapshot)):
        # The snapshot came from another node, or the log's files are missing: the snapshot replaces
        # the log.
        log.truncate_fully_and_start_at(floor, now_ms=now_ms)
    if log.log_start_offset > floor:
        raise MetadataCorrupt(
            f"{folder}: the log starts at {log.log_start_offset}, and no complete snapshot contains"
            " the records before that offset: restore the folder from a backup"
        )
    if read_partition_metadata(disk, folder) is None:
        write_partition_metadata(disk, folder, METADATA_TOPIC_ID)
    return log


def _diverges_from(log: Log, snapshot: Snapshot) -> bool:
    """Whether the log diverges from the snapshot: the process terminated after it had fetched the
    leader's snapshot, but before that replaced the log."""
    last = snapshot.id.end_offset - 1
    if last < log.log_start_offset:
        return False
    epoch = log.epoch_for_offset(last)
    # Also a higher epoch: its leader could not commit the records that it wrote to this log.
    return epoch not in (NO_EPOCH, snapshot.id.epoch)


def _log_start(log: Log, snapshot: Snapshot | None, ids: Sequence[SnapshotId]) -> LogEnd:
    start = log.log_start_offset
    if start == 0:
        return LogEnd(NO_EPOCH, Offset(0))
    assert snapshot is not None, "a log without a snapshot starts at 0"
    for snapshot_id in ids:
        if snapshot_id.end_offset == start:
            return LogEnd(snapshot_id.epoch, start)
    # The snapshot at the log start was deleted: the newest one replaces more of the log.
    log.advance_start(snapshot.id.end_offset)
    return LogEnd(snapshot.id.epoch, snapshot.id.end_offset)


def has_recovery_point(disk: Disk, folder: str) -> bool:
    return disk.exists(f"{folder}/{RECOVERY_POINTS}")


def read_recovery_point(disk: Disk, folder: str) -> Offset:
    """Returns an offset up to which the log was fsynced; 0 without a recovery point."""
    points = read_checkpoint(disk, f"{folder}/{RECOVERY_POINTS}")
    return points.get(METADATA_PARTITION, Offset(0))


def write_recovery_point(disk: Disk, folder: str, offset: Offset) -> None:
    """Writes the recovery point to a separate file, because the log dir's checkpoint covers topic
    partitions only; blocks."""
    write_checkpoint(disk, f"{folder}/{RECOVERY_POINTS}", {METADATA_PARTITION: offset})


def _read_tail(log: Log, start: Offset) -> Iterator[MetadataBatch]:
    offset = start
    while offset < log.end_offset:
        part = log.read(offset, bytes_max=_READ_BYTES, bound=log.end_offset)
        if part is None:
            return
        data = part.file.pread(part.size, part.position)
        before = offset
        for batch in read_batches(data, source=f"{log.directory} at offset {offset}"):
            yield batch
            offset = Offset(batch.last_offset + 1)
        if offset == before:
            raise MetadataCorrupt(f"{log.directory}: nothing can be read at offset {offset}")


def _static_quorum(config: BrokerConfig) -> Quorum | None:
    voters = config.controller_quorum_voters
    if not voters:
        return None
    name = config.controller_listener_names[0]
    return Quorum(
        0,
        VoterSet(
            tuple(
                Voter(
                    ReplicaKey(voter.node_id),
                    (VoterEndpoint(name, voter.address.host, voter.address.port),),
                )
                for voter in voters
            ),
            is_static=True,
        ),
    )


def _check_quorum(quorum: Quorum | None, me: ReplicaKey, config: BrokerConfig) -> None:
    if quorum is None:
        if not config.controller_quorum_bootstrap_servers:
            raise InvalidInput(
                "no controllers found: set controller.quorum.bootstrap.servers or"
                " controller.quorum.voters (the metadata log contains no controllers either)"
            )
        return
    if quorum.voters.node_ids == (me.node_id,) and not quorum.voters.has(me):
        # There is no other voter that could add it to the voter set.
        raise InvalidInput(
            f"node {me.node_id} with the directory.id of {config.metadata_log_dir} is not the"
            " voter in the metadata log: correct node.id, or restore the meta.properties file of"
            " that folder"
        )
