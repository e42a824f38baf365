"""Reads everything that a replica of the metadata log knows when it starts.

The newest whole snapshot stands for the past, the log's batches after it follow. What was in the
log is not yet known to be committed: that shows only once the quorum has a leader.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final
from uuid import UUID

from lograft.broker.errors import MetadataCorrupt
from lograft.broker.metadata_batches import BATCH_BYTES_MAX, MetadataBatch, read_batches
from lograft.broker.quorum_state import read_quorum_state
from lograft.broker.snapshots import (
    Quorum,
    Snapshot,
    quorum_of,
    read_bootstrap,
    read_newest_snapshot,
    remove_parts,
    snapshot_ids,
)
from lograft.consensus.types import HardState, ReplicaKey, Voter, VoterEndpoint, VoterSet
from lograft.model.broker_configs import BrokerConfig
from lograft.model.errors import InvalidInput
from lograft.model.seams import Disk
from lograft.model.types import METADATA_TOPIC, METADATA_TOPIC_ID, Offset, TopicPartition
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
_NEVER: Final = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadedMetadata:
    me: ReplicaKey
    folder: str
    log: Log
    hard_state: HardState
    quorum: Quorum
    snapshot: Snapshot | None
    #: The log after the snapshot.
    tail: tuple[MetadataBatch, ...]
    #: What the storage was formatted with.
    bootstrap: tuple[Message, ...]
    #: Snapshots that could not be read, each with its reason.
    damaged: tuple[str, ...]


def metadata_folder(config: BrokerConfig) -> str:
    return f"{config.metadata_log_dir}/{METADATA_PARTITION}"


def load_metadata(
    disk: Disk, config: BrokerConfig, *, directory_id: UUID, now_ms: int
) -> LoadedMetadata:
    """Blocks. Changes nothing that was committed; a torn tail of the log is cut."""
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
    quorum = _static_quorum(config) if snapshot is None else snapshot.quorum
    for batch in tail:
        quorum = quorum_of(batch.control, quorum)
    quorum = quorum or _static_quorum(config)
    _check_quorum(quorum, me, config)
    assert quorum is not None
    return LoadedMetadata(
        me=me,
        folder=folder,
        log=log,
        hard_state=read_quorum_state(disk, folder),
        quorum=quorum,
        snapshot=snapshot,
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
            f"{folder}: the log is gone, and no whole snapshot stands for its records from {floor}"
            f" to {flushed}: restore the folder from a backup"
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
            # Snapshots decide what may go, not the age of a segment.
            retention_ms=_NEVER,
            retention_bytes=_NEVER,
            cleanup_delete=False,
            file_delete_delay_ms=config.internal_metadata_delete_delay_millis,
        ),
        now_ms=now_ms,
        # Only committed, hence fsynced, records are in a snapshot: damage below it is no torn
        # tail either.
        recovery=RecoveryPlan(
            clean=False,
            recovery_point=max(floor, flushed),
            log_start=oldest,
        ),
    )
    if log.end_offset < floor:
        # The snapshot came from another node, or the log's files are gone: it stands for them.
        log.truncate_fully_and_start_at(floor, now_ms=now_ms)
    if log.log_start_offset > floor:
        raise MetadataCorrupt(
            f"{folder}: the log begins at {log.log_start_offset} and no whole snapshot stands for"
            " what was before: restore the folder from a backup"
        )
    if read_partition_metadata(disk, folder) is None:
        write_partition_metadata(disk, folder, METADATA_TOPIC_ID)
    return log


def read_recovery_point(disk: Disk, folder: str) -> Offset:
    """Up to where the log was fsynced at least; 0 where no one wrote it down."""
    points = read_checkpoint(disk, f"{folder}/{RECOVERY_POINTS}")
    return points.get(METADATA_PARTITION, Offset(0))


def write_recovery_point(disk: Disk, folder: str, offset: Offset) -> None:
    """In a file of its own: the one of the log dir belongs to the logs of topics. Blocks."""
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
            )
        ),
    )


def _check_quorum(quorum: Quorum | None, me: ReplicaKey, config: BrokerConfig) -> None:
    if quorum is None:
        raise InvalidInput(
            "no controller is named, neither by the settings (controller.quorum.voters) nor by the"
            f" metadata log: format {config.metadata_log_dir} with 'lograft storage format"
            " --standalone', since joining a running quorum comes in a later version"
        )
    if len(quorum.voters.voters) > 1:
        raise InvalidInput(
            f"the quorum has {len(quorum.voters.voters)} controllers: this version of Lograft runs"
            " a quorum of one, clusters come in a later version"
        )
    if not quorum.voters.has(me):
        raise InvalidInput(
            f"node {me.node_id} with the directory.id of {config.metadata_log_dir} is not the"
            " controller that the metadata log names: correct node.id, or restore that folder's"
            " meta.properties"
        )
