"""Snapshots of the metadata log: `<end offset>-<epoch>.checkpoint`, in Kafka's format.

A snapshot consists of a header batch (with the voters of a dynamic quorum), the records of an image
and a footer batch. It is written under a temporary name, fsynced and renamed, so a file with the
right name and a footer is complete. The log start and the oldest snapshot advance together: the
snapshot at the log start replaces everything before it.
"""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from lograft.broker.errors import MetadataCorrupt
from lograft.broker.quorum.metadata_batches import (
    Control,
    control_batch,
    read_batches,
    records_batch,
)
from lograft.consensus import types
from lograft.consensus.types import ReplicaKey, Voter, VoterEndpoint, VoterSet
from lograft.model.seams import Disk
from lograft.model.types import Epoch, NodeId, Offset
from lograft.wire import record_frames as frames
from lograft.wire.message import Message
from lograft.wire.records import voters_record
from lograft.wire.records.kraft_version_record import KRaftVersionRecord
from lograft.wire.records.snapshot_footer_record import SnapshotFooterRecord
from lograft.wire.records.snapshot_header_record import SnapshotHeaderRecord

_NAME: Final = re.compile(r"([0-9]{20})-([0-9]{10})\.checkpoint")
#: Suffixes of a snapshot that is being written, and of one that is being fetched.
PART_SUFFIX: Final = ".part"
DOWNLOAD_SUFFIX: Final = ".download"
BOOTSTRAP: Final = "bootstrap.checkpoint"
#: Number of records in a batch of a snapshot, the unit of writing and reading.
_BATCH_RECORDS: Final = 2_000


class SnapshotId(types.SnapshotId):
    """Snapshot id with its file name."""

    __slots__ = ()

    @property
    def file_name(self) -> str:
        return f"{self.end_offset:020d}-{self.epoch:010d}.checkpoint"


@dataclass(frozen=True, slots=True)
class Quorum:
    """kraft.version and voters in the log. With kraft.version 0 the voters are those in the
    settings."""

    kraft_version: int
    voters: VoterSet


@dataclass(frozen=True, slots=True)
class Snapshot:
    id: SnapshotId
    records: tuple[Message, ...]
    #: None if the snapshot has no voters.
    quorum: Quorum | None
    last_timestamp_ms: int


def snapshot_ids(disk: Disk, folder: str) -> list[SnapshotId]:
    """Returns the ids of all snapshots, oldest first."""
    found = (_NAME.fullmatch(name) for name in disk.list_dir(folder))
    return sorted(SnapshotId(Offset(int(m[1])), Epoch(int(m[2]))) for m in found if m)


def remove_parts(disk: Disk, folder: str) -> None:
    """Deletes incomplete snapshots that a crash has left behind."""
    _remove(disk, folder, (f".checkpoint{PART_SUFFIX}", f".checkpoint{DOWNLOAD_SUFFIX}"))


def _remove(disk: Disk, folder: str, suffixes: tuple[str, ...]) -> None:
    for name in disk.list_dir(folder):
        if name.endswith(suffixes):
            disk.unlink(f"{folder}/{name}")


def read_snapshot(
    disk: Disk, folder: str, snapshot_id: SnapshotId, *, suffix: str = ""
) -> Snapshot:
    """Reads a snapshot. Raises MetadataCorrupt if the file is not a complete snapshot."""
    records, controls = _read_file(disk, f"{folder}/{snapshot_id.file_name}{suffix}")
    quorum = quorum_of(controls)
    header = controls[0][1]
    assert isinstance(header, SnapshotHeaderRecord)
    return Snapshot(snapshot_id, tuple(records), quorum, header.last_contained_log_timestamp)


def write_part(
    disk: Disk, folder: str, snapshot_id: SnapshotId, position: int, data: bytes
) -> None:
    """Writes a chunk of a fetched snapshot; the first one starts a new file."""
    if position == 0:
        _remove(disk, folder, (f".checkpoint{DOWNLOAD_SUFFIX}",))
    file = disk.open(f"{folder}/{snapshot_id.file_name}{DOWNLOAD_SUFFIX}", create=True)
    if file.size != position:
        raise MetadataCorrupt(
            f"{file.path} has {file.size} bytes, but a chunk for position {position} arrived"
        )
    file.append(data)


def finish_parts(disk: Disk, folder: str, snapshot_id: SnapshotId) -> Snapshot:
    """Checks the fetched snapshot and renames its file durably; blocks."""
    path = f"{folder}/{snapshot_id.file_name}"
    snapshot = read_snapshot(disk, folder, snapshot_id, suffix=DOWNLOAD_SUFFIX)
    disk.open(path + DOWNLOAD_SUFFIX).fsync()
    disk.rename(path + DOWNLOAD_SUFFIX, path)
    disk.fsync_dir(folder)
    return snapshot


def read_newest_snapshot(disk: Disk, folder: str, *, damaged: list[str]) -> Snapshot | None:
    """Returns the newest intact snapshot, if any. Adds the errors of damaged ones to `damaged`."""
    for snapshot_id in reversed(snapshot_ids(disk, folder)):
        try:
            return read_snapshot(disk, folder, snapshot_id)
        except MetadataCorrupt as error:
            damaged.append(str(error))
    return None


def read_bootstrap(disk: Disk, metadata_dir: str) -> tuple[Message, ...]:
    """Returns the records with which the storage was formatted; empty without the file."""
    path = f"{metadata_dir}/{BOOTSTRAP}"
    if not disk.exists(path):
        return ()
    return tuple(_read_file(disk, path)[0])


def write_snapshot(
    disk: Disk,
    folder: str,
    snapshot_id: SnapshotId,
    records: Iterable[Message],
    *,
    quorum: Quorum,
    last_timestamp_ms: int,
    now_ms: int,
) -> int:
    """Writes a snapshot to disk and returns its size; blocks."""
    path = f"{folder}/{snapshot_id.file_name}"
    file = disk.open(path + PART_SUFFIX, create=True)
    if file.size:
        file.truncate(0)
    header = SnapshotHeaderRecord(version=0, last_contained_log_timestamp=last_timestamp_ms)
    head: list[Control] = [(frames.SNAPSHOT_HEADER, header), *quorum_controls(quorum)]
    epoch = snapshot_id.epoch
    file.append(control_batch(head, base_offset=0, epoch=epoch, now_ms=now_ms))
    offset = len(head)
    chunk: list[Message] = []
    for record in records:
        chunk.append(record)
        if len(chunk) == _BATCH_RECORDS:
            file.append(records_batch(chunk, base_offset=offset, epoch=epoch, now_ms=now_ms))
            offset += len(chunk)
            chunk = []
    if chunk:
        file.append(records_batch(chunk, base_offset=offset, epoch=epoch, now_ms=now_ms))
        offset += len(chunk)
    footer: list[Control] = [(frames.SNAPSHOT_FOOTER, SnapshotFooterRecord(version=0))]
    file.append(control_batch(footer, base_offset=offset, epoch=epoch, now_ms=now_ms))
    file.fsync()
    disk.rename(path + PART_SUFFIX, path)
    disk.fsync_dir(folder)
    return file.size


def quorum_controls(quorum: Quorum) -> list[Control]:
    if quorum.kraft_version == 0:
        return []
    return [
        (
            frames.KRAFT_VERSION,
            KRaftVersionRecord(version=0, kraft_version=quorum.kraft_version),
        ),
        voters_control(quorum.voters),
    ]


def quorum_of(controls: Sequence[Control], before: Quorum | None = None) -> Quorum | None:
    """Returns the quorum after these control records, starting from `before`."""
    kraft_version = 0 if before is None else before.kraft_version
    voters = None if before is None else before.voters
    for _, message in controls:
        if isinstance(message, KRaftVersionRecord):
            kraft_version = message.kraft_version
        elif isinstance(message, voters_record.VotersRecord):
            voters = _voter_set(message)
    return before if voters is None else Quorum(kraft_version, voters)


def _read_file(disk: Disk, path: str) -> tuple[list[Message], list[Control]]:
    records: list[Message] = []
    controls: list[Control] = []
    size = 0
    data = disk.read(path)
    for batch in read_batches(data, source=path):
        records += batch.records
        controls += batch.control
        size += batch.size_bytes
    if size != len(data) or len(controls) < 2:
        raise MetadataCorrupt(f"{path} is incomplete: only {size} of {len(data)} bytes are valid")
    if controls[0][0] != frames.SNAPSHOT_HEADER or controls[-1][0] != frames.SNAPSHOT_FOOTER:
        raise MetadataCorrupt(f"{path} lacks its header or its footer")
    return records, controls


def voters_in(base_offset: Offset, controls: Sequence[Control]) -> list[tuple[Offset, VoterSet]]:
    """Returns the voter sets in a control batch, each with the offset of its record."""
    return [
        (Offset(base_offset + number), _voter_set(message))
        for number, (_, message) in enumerate(controls)
        if isinstance(message, voters_record.VotersRecord)
    ]


def voters_control(voters: VoterSet) -> Control:
    return frames.KRAFT_VOTERS, _voters_record(voters)


def _voters_record(voters: VoterSet) -> voters_record.VotersRecord:
    return voters_record.VotersRecord(
        version=0,
        voters=[
            voters_record.Voter(
                voter_id=voter.key.node_id,
                voter_directory_id=voter.key.directory_id,
                endpoints=[
                    voters_record.Endpoint(name=end.name, host=end.host, port=end.port)
                    for end in voter.endpoints
                ],
                kraft_version_feature=voters_record.KRaftVersionFeature(
                    min_supported_version=voter.kraft_version_min,
                    max_supported_version=voter.kraft_version_max,
                ),
            )
            for voter in voters.voters
        ],
    )


def _voter_set(record: voters_record.VotersRecord) -> VoterSet:
    return VoterSet(
        tuple(
            Voter(
                ReplicaKey(NodeId(voter.voter_id), voter.voter_directory_id),
                tuple(VoterEndpoint(end.name, end.host, end.port) for end in voter.endpoints),
                voter.kraft_version_feature.min_supported_version,
                voter.kraft_version_feature.max_supported_version,
            )
            for voter in record.voters
        )
    )
