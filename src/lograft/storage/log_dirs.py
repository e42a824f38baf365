"""The small files of a log dir and of a partition's directory, in Kafka's formats.

Checkpoints are text files: a version, the number of entries, one entry per line. Every write is
atomic: temporary file, fsync, rename, fsync of the directory. A reader finds either the old or the
new file.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final
from uuid import UUID

from lograft.model.errors import InvalidInput
from lograft.model.seams import Disk
from lograft.model.types import Offset, TopicPartition
from lograft.model.uuids import uuid_from_text, uuid_to_text
from lograft.storage.errors import InvalidCheckpoint
from lograft.storage.types import EpochEntry

RECOVERY_POINTS: Final = "recovery-point-offset-checkpoint"
LOG_STARTS: Final = "log-start-offset-checkpoint"
HIGH_WATERMARKS: Final = "replication-offset-checkpoint"
CLEANER_OFFSETS: Final = "cleaner-offset-checkpoint"
LEADER_EPOCHS: Final = "leader-epoch-checkpoint"
META_PROPERTIES: Final = "meta.properties"
PARTITION_METADATA: Final = "partition.metadata"
MOVED_FROM: Final = "lograft.moved-from"
MOVING_TO: Final = "lograft.moving-to"
CLEAN_SHUTDOWN: Final = ".kafka_cleanshutdown"
RUNNING: Final = ".lograft_running"
LOCK: Final = ".lock"
TEMPORARY_SUFFIX: Final = ".tmp"

DELETE_SUFFIX: Final = "-delete"
FUTURE_SUFFIX: Final = "-future"
_FOLDER: Final = re.compile(r"(?P<topic>[a-zA-Z0-9._-]{1,249})-(?P<partition>[0-9]{1,10})")
_DELETED_DIRECTORY: Final = re.compile(r".+\.[0-9a-f]{32}-(delete|stray)")
_FUTURE_FOLDER: Final = re.compile(r".+-(?P<partition>[0-9]{1,10})\.[0-9a-f]{32}-future")
#: As in Kafka, a directory name including its suffix is never longer than a file name may be.
NAME_LENGTH_MAX: Final = 255


def write_atomically(disk: Disk, path: str, data: bytes, *, sync_name: bool = True) -> None:
    """Blocks (two fsyncs). Without `sync_name`, the caller fsyncs the directory."""
    temporary = path + TEMPORARY_SUFFIX
    file = disk.open(temporary, create=True)
    if file.size:
        file.truncate(0)
    file.append(data)
    file.fsync()
    disk.rename(temporary, path)
    if sync_name:
        disk.fsync_dir(path.rpartition("/")[0])


# ── checkpoints ──────────────────────────────────────────────────────────────────────────────


def read_checkpoint(disk: Disk, path: str) -> dict[TopicPartition, Offset]:
    """Returns offsets by partition; empty if the file does not exist."""
    # Kafka leaves the file empty until it writes the first entry.
    if disk.exists(path) and not disk.read(path):
        return {}
    offsets = {}
    for words in _read_lines(disk, path, words=3):
        offsets[TopicPartition(words[0], int(words[1]))] = Offset(int(words[2]))
    return offsets


def write_checkpoint(disk: Disk, path: str, offsets: Mapping[TopicPartition, int]) -> None:
    lines = [f"{tp.topic} {tp.partition} {offset}" for tp, offset in offsets.items()]
    _write_lines(disk, path, lines)


def read_epochs(disk: Disk, directory: str) -> list[EpochEntry]:
    path = f"{directory}/{LEADER_EPOCHS}"
    return [EpochEntry(int(w[0]), int(w[1])) for w in _read_lines(disk, path, words=2)]


def write_epochs(disk: Disk, directory: str, entries: Sequence[EpochEntry]) -> None:
    lines = [f"{entry.epoch} {entry.start_offset}" for entry in entries]
    _write_lines(disk, f"{directory}/{LEADER_EPOCHS}", lines)


def _write_lines(disk: Disk, path: str, lines: list[str]) -> None:
    text = "\n".join(["0", str(len(lines)), *lines]) + "\n"
    write_atomically(disk, path, text.encode())


def _read_lines(disk: Disk, path: str, *, words: int) -> list[list[str]]:
    if not disk.exists(path):
        return []
    try:
        lines = disk.read(path).decode().splitlines()
        if int(lines[0]) != 0:
            raise InvalidCheckpoint(f"{path} has version {lines[0]}; only version 0 is supported")
        entries = [line.split() for line in lines[2:] if line.strip()]
        if len(entries) != int(lines[1]) or any(len(entry) != words for entry in entries):
            raise InvalidCheckpoint(
                f"{path} does not contain the {lines[1]} entries that its header declares"
            )
        for entry in entries:
            for number in entry[-2:]:
                int(number)
    except (ValueError, IndexError):
        raise InvalidCheckpoint(f"{path} is not a checkpoint file") from None
    return entries


# ── identity files ───────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True, slots=True, kw_only=True)
class MetaProperties:
    """`meta.properties`: the node and cluster to which a log dir belongs."""

    node_id: int
    cluster_id: str
    #: None in log dirs formatted by a Kafka version before 3.7.
    directory_id: UUID | None = None
    version: int = 1


def read_meta_properties(disk: Disk, log_dir: str) -> MetaProperties | None:
    """Returns None if the log dir was never formatted."""
    path = f"{log_dir}/{META_PROPERTIES}"
    if not disk.exists(path):
        return None
    values = {}
    try:
        for line in disk.read(path).decode().splitlines():
            name, equals, value = line.partition("=")
            if equals and not line.startswith(("#", "!")):
                values[name.strip()] = value.strip().replace("\\:", ":").replace("\\=", "=")
        version = int(values.get("version", "1"))
        node_id = int(values["node.id"] if "node.id" in values else values["broker.id"])
        directory = values.get("directory.id")
        return MetaProperties(
            node_id=node_id,
            cluster_id=values.get("cluster.id", ""),
            directory_id=uuid_from_text(directory) if directory else None,
            version=version,
        )
    except (ValueError, KeyError, InvalidInput):
        raise InvalidCheckpoint(
            f"{path} does not contain a valid node.id and directory.id"
        ) from None


def write_meta_properties(disk: Disk, log_dir: str, meta: MetaProperties) -> None:
    lines = ["#", f"cluster.id={meta.cluster_id}"]
    if meta.directory_id is not None:
        lines.append(f"directory.id={uuid_to_text(meta.directory_id)}")
    lines += [f"node.id={meta.node_id}", f"version={meta.version}"]
    write_atomically(disk, f"{log_dir}/{META_PROPERTIES}", ("\n".join(lines) + "\n").encode())


def read_partition_metadata(disk: Disk, directory: str) -> UUID | None:
    """Returns the topic id of the log in this directory; None if the file does not exist."""
    path = f"{directory}/{PARTITION_METADATA}"
    if not disk.exists(path):
        return None
    values = {}
    try:
        for line in disk.read(path).decode().splitlines():
            name, _, value = line.partition(":")
            values[name.strip()] = value.strip()
        if int(values["version"]) != 0:
            raise InvalidCheckpoint(
                f"{path} has version {values['version']}; only version 0 is supported"
            )
        return uuid_from_text(values["topic_id"])
    except (ValueError, KeyError, InvalidInput):
        raise InvalidCheckpoint(f"{path} does not contain a valid topic id") from None


def write_partition_metadata(
    disk: Disk, directory: str, topic_id: UUID, *, sync_name: bool = True
) -> None:
    text = f"version: 0\ntopic_id: {uuid_to_text(topic_id)}"
    path = f"{directory}/{PARTITION_METADATA}"
    write_atomically(disk, path, text.encode(), sync_name=sync_name)


# ── replicas that move between log dirs ──────────────────────────────────────────────────────────


def read_moved_from(disk: Disk, directory: str) -> tuple[UUID, ...]:
    """Returns the ids of the log dirs in which the replica in this directory was previously a
    voter."""
    return _read_uuids(disk, f"{directory}/{MOVED_FROM}")


def write_moved_from(disk: Disk, directory: str, directory_ids: Sequence[UUID]) -> None:
    _write_uuids(disk, f"{directory}/{MOVED_FROM}", directory_ids)


def read_moving_to(disk: Disk, directory: str) -> UUID | None:
    """Returns the log dir to which the replica in this directory was about to move. If that log dir
    has a directory of the same name, that directory is the replica, and this one is the source of
    the copy."""
    found = _read_uuids(disk, f"{directory}/{MOVING_TO}")
    return found[0] if found else None


def write_moving_to(disk: Disk, directory: str, directory_id: UUID) -> None:
    _write_uuids(disk, f"{directory}/{MOVING_TO}", [directory_id])


def remove_moving_to(disk: Disk, directory: str) -> None:
    disk.unlink(f"{directory}/{MOVING_TO}")
    disk.fsync_dir(directory)


def _read_uuids(disk: Disk, path: str) -> tuple[UUID, ...]:
    if not disk.exists(path):
        return ()
    try:
        version, *lines = disk.read(path).decode().splitlines()
        if version != "version: 0":
            raise InvalidCheckpoint(f"{path} has {version!r}; only version 0 is supported")
        return tuple(uuid_from_text(line) for line in lines)
    except (ValueError, InvalidInput):
        raise InvalidCheckpoint(f"{path} does not contain valid log dir ids") from None


def _write_uuids(disk: Disk, path: str, directory_ids: Sequence[UUID]) -> None:
    lines = ["version: 0", *(uuid_to_text(each) for each in directory_ids)]
    write_atomically(disk, path, ("\n".join(lines) + "\n").encode())


# ── clean shutdown ───────────────────────────────────────────────────────────────────────────────


def write_clean_shutdown(disk: Disk, log_dir: str, broker_epoch: int) -> None:
    """The last write of a stopping node: all logs of this log dir are closed and fsynced."""
    text = f'{{"version":0,"brokerEpoch":{broker_epoch}}}'
    write_atomically(disk, f"{log_dir}/{CLEAN_SHUTDOWN}", text.encode())


def read_clean_shutdown(disk: Disk, log_dir: str) -> int | None:
    """Returns the broker epoch of the last shutdown if it was clean, else None. -1: the file does
    not contain the epoch."""
    path = f"{log_dir}/{CLEAN_SHUTDOWN}"
    if not disk.exists(path):
        return None
    found = re.search(rb'"brokerEpoch"\s*:\s*(-?[0-9]{1,19})', disk.read(path))
    return int(found[1]) if found else -1


def consume_clean_shutdown(disk: Disk, log_dir: str) -> int | None:
    """Returns the broker epoch of the last shutdown if it was clean, else None. The file is deleted
    durably before this returns, so a shutdown is unclean until the file is written again."""
    epoch = read_clean_shutdown(disk, log_dir)
    if epoch is not None:
        disk.unlink(f"{log_dir}/{CLEAN_SHUTDOWN}")
    # A process that was killed may have unlinked the file without this fsync, so that power loss
    # could bring the file back.
    disk.fsync_dir(log_dir)
    return epoch


# ── processes that ended without a clean shutdown ────────────────────────────────────────────────


def write_running_mark(disk: Disk, log_dir: str, broker_epoch: int) -> None:
    """Marks that a node serves these logs under this broker epoch, and that everything it wrote can
    be read. Not fsynced: the mark is valid only while the kernel whose page cache holds it keeps
    running."""
    boot_id = disk.boot_id()
    if not boot_id:
        return
    path = f"{log_dir}/{RUNNING}"
    file = disk.open(path + TEMPORARY_SUFFIX, create=True)
    if file.size:
        file.truncate(0)
    file.append(f'{{"version":0,"brokerEpoch":{broker_epoch},"bootId":"{boot_id}"}}'.encode())
    disk.rename(path + TEMPORARY_SUFFIX, path)


def read_running_mark(disk: Disk, log_dir: str) -> int | None:
    """Returns the broker epoch of the last process if the same kernel is still running: then
    everything that the process wrote still exists. None: not known."""
    path, boot_id = f"{log_dir}/{RUNNING}", disk.boot_id()
    if not boot_id or not disk.exists(path):
        return None
    found = re.fullmatch(
        rb'\{"version":0,"brokerEpoch":([0-9]{1,19}),"bootId":"([^"]+)"\}', disk.read(path)
    )
    return int(found[1]) if found and found[2] == boot_id.encode() else None


def remove_running_mark(disk: Disk, log_dir: str) -> None:
    """Removes the mark: written data may have been lost. Not fsynced, see `write_running_mark`."""
    path = f"{log_dir}/{RUNNING}"
    if disk.exists(path):
        disk.unlink(path)


# ── directories of partitions ────────────────────────────────────────────────────────────────────


def directory_name(topic_partition: TopicPartition) -> str:
    return f"{topic_partition.topic}-{topic_partition.partition}"


def deleted_directory_name(topic_partition: TopicPartition, unique: UUID) -> str:
    """The name of a deleted log's directory until its files are removed."""
    return _marked_folder_name(topic_partition, unique, DELETE_SUFFIX)


def future_directory_name(topic_partition: TopicPartition, unique: UUID) -> str:
    """The name of the directory into which a log is copied when it moves between log dirs."""
    return _marked_folder_name(topic_partition, unique, FUTURE_SUFFIX)


def future_partition_of(name: str) -> int | None:
    """Returns the partition number if the directory is a future replica; the name of its topic may
    be truncated."""
    found = _FUTURE_FOLDER.fullmatch(name)
    return int(found["partition"]) if found else None


def _marked_folder_name(topic_partition: TopicPartition, unique: UUID, suffix: str) -> str:
    tail = f"-{topic_partition.partition}.{unique.hex}{suffix}"
    return topic_partition.topic[: NAME_LENGTH_MAX - len(tail)] + tail


def is_deleted_directory(name: str) -> bool:
    """Whether the directory is a deleted log whose files have not been removed yet."""
    return _DELETED_DIRECTORY.fullmatch(name) is not None


def parse_directory_name(name: str) -> TopicPartition | None:
    """Returns None for anything other than the directory of a partition's current log."""
    if is_deleted_directory(name) or name.endswith(FUTURE_SUFFIX):
        return None
    found = _FOLDER.fullmatch(name)
    return TopicPartition(found["topic"], int(found["partition"])) if found else None
