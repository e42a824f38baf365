"""Finds and opens the logs of a log dir at startup. All functions block and run in workers.

The folder of a log whose topic does not exist (it was deleted while this node was down, or the
folder comes from another cluster) is renamed with the suffix `-stray`, but never deleted, so that
an operator can check it.
"""

import logging
from collections.abc import Callable, Mapping, Sequence
from errno import EIO, ENOENT
from typing import Final, NamedTuple, TypeAlias
from uuid import UUID

from lograft.model.errors import DiskFailed, LograftError
from lograft.model.seams import Disk
from lograft.model.settings.topic import TopicConfig
from lograft.model.types import METADATA_TOPIC, NO_OFFSET, ZERO_UUID, Offset, TopicPartition
from lograft.storage.errors import InvalidCheckpoint
from lograft.storage.log import Log
from lograft.storage.log_dirs import (
    CLEANER_OFFSETS,
    HIGH_WATERMARKS,
    LOG_STARTS,
    NAME_LENGTH_MAX,
    RECOVERY_POINTS,
    consume_clean_shutdown,
    directory_name,
    future_partition_of,
    is_deleted_directory,
    parse_directory_name,
    read_checkpoint,
    read_clean_shutdown,
    read_moved_from,
    read_moving_to,
    read_partition_metadata,
    read_running_mark,
    write_checkpoint,
    write_partition_metadata,
    write_running_mark,
)
from lograft.storage.types import RecoveryPlan

LOGGER: Final = logging.getLogger(__name__)
STRAY_SUFFIX: Final = "-stray"

#: Returns the config of a topic by its name and the id in the folder, if any; None if stray.
ConfigOf: TypeAlias = Callable[[str, UUID | None], TopicConfig | None]


class FoundLog(NamedTuple):
    topic_partition: TopicPartition
    #: None in folders of very old brokers.
    topic_id: UUID | None
    path: str
    plan: RecoveryPlan
    #: From the checkpoint; NO_OFFSET if it has none.
    high_watermark: Offset
    #: Log dirs from which it was moved as a voter.
    past_directories: tuple[UUID, ...] = ()
    #: Target of an interrupted move; the id of no log dir if the file cannot be read.
    moving_to: UUID | None = None


class Survey(NamedTuple):
    """The content of one log dir."""

    logs: list[FoundLog]
    #: Folders whose deletion was not complete when the node stopped.
    doomed: list[str]
    #: Topic ids and indexes of partitions that were being moved here (broker/logs/log_moves.py).
    coming: list[tuple[UUID, int]]
    #: Broker epoch of a clean shutdown; None if it was not clean.
    clean_epoch: int | None
    #: Partitions in the checkpoint files.
    names: set[TopicPartition]
    cleaner_offsets: dict[TopicPartition, Offset]


def survey(disk: Disk, log_dir: str) -> Survey:
    """Lists the content of a log dir. Raises DiskFailed if it cannot be read."""
    try:
        return _survey(disk, log_dir)
    except OSError as error:
        raise DiskFailed(log_dir, error) from error


def _survey(disk: Disk, log_dir: str) -> Survey:
    clean_epoch = consume_clean_shutdown(disk, log_dir)
    recovery_points = _checkpoint(disk, f"{log_dir}/{RECOVERY_POINTS}")
    log_starts = _checkpoint(disk, f"{log_dir}/{LOG_STARTS}")
    cleaner_offsets = _checkpoint(disk, f"{log_dir}/{CLEANER_OFFSETS}")
    high_watermarks = _checkpoint(disk, f"{log_dir}/{HIGH_WATERMARKS}")
    logs, doomed, coming = [], [], []
    for name in disk.list_dir(log_dir):
        path = f"{log_dir}/{name}"
        if is_deleted_directory(name) and name.endswith("-delete"):
            doomed.append(path)
            continue
        index = future_partition_of(name)
        if index is not None:
            # The incomplete copy is discarded and the move starts again.
            topic_id = _topic_id(disk, path)
            coming += [] if topic_id is None else [(topic_id, index)]
            doomed.append(path)
            continue
        topic_partition = parse_directory_name(name)
        if topic_partition is None or topic_partition.topic == METADATA_TOPIC:
            continue
        if not disk.is_dir(path):
            continue
        plan = RecoveryPlan(
            clean=clean_epoch is not None,
            recovery_point=recovery_points.get(topic_partition, Offset(0)),
            log_start=log_starts.get(topic_partition, Offset(0)),
        )
        high_watermark = high_watermarks.get(topic_partition, NO_OFFSET)
        topic_id = _topic_id(disk, path)
        past, moving_to = _moves(disk, path)
        logs.append(
            FoundLog(topic_partition, topic_id, path, plan, high_watermark, past, moving_to)
        )
    names = {*recovery_points, *log_starts, *cleaner_offsets, *high_watermarks}
    return Survey(logs, doomed, coming, clean_epoch, names, cleaner_offsets)


def intact_epoch_of_all(disk: Disk, log_dirs: Sequence[str]) -> int:
    """Returns the broker epoch of the last process if no log dir can have lost records: each was
    closed cleanly, or the process ended without a crash of the machine. Else -1."""
    epochs = set()
    for log_dir in log_dirs:
        try:
            epoch = read_clean_shutdown(disk, log_dir)
            epochs.add(read_running_mark(disk, log_dir) if epoch is None else epoch)
        except OSError:
            return -1
    known = epochs.pop()
    return -1 if epochs or known is None else known


def check_nothing_lost(log_dir: str, results: Sequence[Log | LograftError]) -> None:
    """Checks logs after the process ended without a crash of the machine: the kernel has everything
    that was written, so at most the last write is incomplete. If more is missing, the disk or its
    cache is corrupt, and the broker's claim was wrong. Raises DiskFailed, so that the next start
    does not repeat the claim."""
    for result in results:
        if isinstance(result, Log) and result.has_lost_batches:
            reason = f"{result.directory} has lost records that were written since the last boot"
            raise DiskFailed(log_dir, OSError(EIO, reason))


def mark_running(disk: Disk, log_dir: str, broker_epoch: int) -> None:
    """Writes the mark of a running process; raises DiskFailed."""
    try:
        write_running_mark(disk, log_dir, broker_epoch)
    except OSError as error:
        raise DiskFailed(log_dir, error) from error


def _checkpoint(disk: Disk, path: str) -> dict[TopicPartition, Offset]:
    """Returns a checkpoint, or an empty one if it is damaged, which only makes recovery slower."""
    try:
        return read_checkpoint(disk, path)
    except InvalidCheckpoint as error:
        LOGGER.warning("ignoring a damaged checkpoint: %s", error)
        return {}


def _topic_id(disk: Disk, path: str) -> UUID | None:
    try:
        return read_partition_metadata(disk, path)
    except InvalidCheckpoint as error:
        LOGGER.warning("%s; identifying the log by the name of its folder", error)
        return None


def _moves(disk: Disk, path: str) -> tuple[tuple[UUID, ...], UUID | None]:
    try:
        past = read_moved_from(disk, path)
    except InvalidCheckpoint as error:
        LOGGER.warning("%s; the replica votes only with the id of its present log dir", error)
        past = ()
    try:
        return past, read_moving_to(disk, path)
    except InvalidCheckpoint as error:
        LOGGER.warning("%s", error)
        return past, ZERO_UUID


def open_found(
    disk: Disk, found: FoundLog, *, config: TopicConfig, topic_id: UUID, now_ms: int
) -> Log:
    log = Log.open(
        disk,
        found.path,
        topic_partition=found.topic_partition,
        topic_id=topic_id,
        config=config,
        now_ms=now_ms,
        recovery=found.plan,
    )
    if found.topic_id is None:
        _write_topic_id(disk, log)
    return log


def open_new(
    disk: Disk,
    log_dir: str,
    topic_partition: TopicPartition,
    *,
    topic_id: UUID,
    config: TopicConfig,
    now_ms: int,
) -> Log:
    """Creates a log. The topic id is written first, so that the fsync of the folder at the end of
    `Log.open` makes both file names durable. The caller fsyncs the log dir once for many logs."""
    directory = f"{log_dir}/{directory_name(topic_partition)}"
    return open_at(
        disk, directory, topic_partition, topic_id=topic_id, config=config, now_ms=now_ms
    )


def open_at(
    disk: Disk,
    directory: str,
    topic_partition: TopicPartition,
    *,
    topic_id: UUID,
    config: TopicConfig,
    now_ms: int,
) -> Log:
    """Creates a log in this folder."""
    log_dir = directory.rpartition("/")[0]
    try:
        # The log dir was deleted: creating it again would hide the loss of its logs.
        if not disk.is_dir(log_dir):
            raise FileNotFoundError(ENOENT, "No such file or directory", log_dir)
        disk.make_dir(directory)
        write_partition_metadata(disk, directory, topic_id, sync_name=False)
    except OSError as error:
        raise DiskFailed(log_dir, error) from error
    return Log.open(
        disk,
        directory,
        topic_partition=topic_partition,
        topic_id=topic_id,
        config=config,
        now_ms=now_ms,
        recovery=RecoveryPlan(clean=False),
    )


def sync_folder_names(disk: Disk, log_dir: str) -> None:
    try:
        disk.fsync_dir(log_dir)
    except OSError as error:
        raise DiskFailed(log_dir, error) from error


def _write_topic_id(disk: Disk, log: Log) -> None:
    try:
        write_partition_metadata(disk, log.directory, log.topic_id)
    except OSError as error:
        raise DiskFailed(log.log_dir, error) from error


def set_stray_aside(disk: Disk, found: FoundLog, unique: UUID) -> str:
    """Renames the folder of a stray log and returns its new path."""
    tail = f"-{found.topic_partition.partition}.{unique.hex}{STRAY_SUFFIX}"
    name = found.topic_partition.topic[: NAME_LENGTH_MAX - len(tail)] + tail
    log_dir = found.path.rpartition("/")[0]
    try:
        disk.rename(found.path, f"{log_dir}/{name}")
        disk.fsync_dir(log_dir)
    except OSError as error:
        raise DiskFailed(log_dir, error) from error
    return f"{log_dir}/{name}"


def rename_logs(disk: Disk, log_dir: str, renames: Sequence[tuple[str, str]]) -> None:
    """Renames folders of logs; reads of their open files are not affected."""
    try:
        for source, target in renames:
            disk.rename(source, target)
        disk.fsync_dir(log_dir)
    except OSError as error:
        raise DiskFailed(log_dir, error) from error


def open_many(openers: Sequence[Callable[[], Log]]) -> list[Log | LograftError]:
    """Opens logs one after the other, and returns the log or the error of each. A disk failure
    raises DiskFailed."""
    results: list[Log | LograftError] = []
    for opener in openers:
        try:
            results.append(opener())
        except DiskFailed:
            raise
        except LograftError as error:
            results.append(error)
    return results


def lower_recovery_points(
    disk: Disk, log_dir: str, lowered: Mapping[TopicPartition, Offset]
) -> None:
    """Lowers recovery points of logs that end below them: files were lost, or a crash interrupted
    the truncation of a log."""
    path = f"{log_dir}/{RECOVERY_POINTS}"
    write_checkpoint(disk, path, {**_checkpoint(disk, path), **lowered})
