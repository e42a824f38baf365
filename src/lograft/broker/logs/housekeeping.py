"""Periodic work for all logs: one task, whatever their number.

Each job has an interval and does nothing for logs without changes, so that a thousand idle
partitions have the cost of a thousand checks a minute, without disk access.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterator
from functools import partial
from typing import Final

from lograft.broker.logs.log_manager import LogManager
from lograft.broker.logs.retention_holds import RetentionHolds
from lograft.broker.partitions.log_directory import LogDirectory
from lograft.broker.partitions.partition import Partition
from lograft.model.errors import DiskFailed
from lograft.model.metrics import Counter, Sample
from lograft.model.seams import Disk, Runtime
from lograft.model.types import Offset
from lograft.storage.errors import LogCorrupt
from lograft.storage.log import Log
from lograft.storage.retention import take_expired_files, unlink_files

LOGGER: Final = logging.getLogger(__name__)
#: Interval of checks for due jobs; shorter only for a job with a shorter interval.
TICK_MS: Final = 1_000
#: Interval of checks for files whose deletion was delayed.
REMOVAL_INTERVAL_MS: Final = 10_000
#: Number of logs that are handled before other tasks can run.
LOGS_PER_TURN: Final = 50
SEGMENTS_DELETED: Final = Counter(
    "lograft_retention_deleted_segments_total",
    "Segments that were deleted because of their age, their size or DeleteRecords.",
)
BYTES_DELETED: Final = Counter(
    "lograft_retention_deleted_bytes_total", "Size of the segments that were deleted."
)


class Chore:
    __slots__ = ("due_ms", "interval_ms", "work")

    def __init__(self, interval_ms: int, work: Callable[[], Awaitable[None]], now_ms: int) -> None:
        self.interval_ms = interval_ms
        self.work = work
        self.due_ms = now_ms + interval_ms


class Housekeeping:
    def __init__(self, runtime: Runtime, logs: LogManager, holds: RetentionHolds) -> None:
        self._runtime = runtime
        self._logs = logs
        self._holds = holds
        self._watermarks_at: dict[LogDirectory, int] = {}
        self._offsets_at: dict[LogDirectory, int] = {}
        self._segments_deleted = 0
        self._bytes_deleted = 0

    async def run(self) -> None:
        clock, config = self._runtime.clock, self._logs.config
        now_ms = clock.mono_ms()
        offsets_ms = min(
            config.log_flush_offset_checkpoint_interval_ms,
            config.log_flush_start_offset_checkpoint_interval_ms,
        )
        chores = [
            Chore(config.log_retention_check_interval_ms, self.apply_retention, now_ms),
            Chore(offsets_ms, self.write_offsets, now_ms),
            Chore(
                config.replica_high_watermark_checkpoint_interval_ms,
                self.write_high_watermarks,
                now_ms,
            ),
            Chore(config.producer_id_expiration_check_interval_ms, self.expire_producers, now_ms),
            Chore(REMOVAL_INTERVAL_MS, self.remove_files, now_ms),
        ]
        tick_ms = max(10, min(TICK_MS, *(chore.interval_ms for chore in chores)))
        while True:
            await asyncio.sleep(tick_ms / 1000)
            now_ms = clock.mono_ms()
            for chore in chores:
                if chore.due_ms <= now_ms:
                    await chore.work()
                    chore.due_ms = now_ms + chore.interval_ms

    async def apply_retention(self) -> None:
        now_ms = self._runtime.clock.wall_ms()
        partitions = list(self._logs.partitions)
        held = await self._holds.find_held(partitions, now_ms)
        for count, partition in enumerate(partitions):
            log, directory = partition.log, partition.directory
            if log is not None and directory is not None:
                try:
                    await self._delete_old_segments(
                        partition, log, directory, now_ms, held=held.get(partition)
                    )
                except DiskFailed as error:
                    directory.fail(error)
                except LogCorrupt as error:
                    # A damaged file is neither a reason to stop the node nor to delete it.
                    LOGGER.error(
                        "%s: could not delete old segments: %s", partition.topic_partition, error
                    )
            if count % LOGS_PER_TURN == LOGS_PER_TURN - 1:
                await asyncio.sleep(0)

    async def _delete_old_segments(
        self,
        partition: Partition,
        log: Log,
        directory: LogDirectory,
        now_ms: int,
        *,
        held: Offset | None,
    ) -> None:
        async with directory.segment_lock:
            if not partition.is_usable:
                return
            removal = log.plan_removal(now_ms, partition.high_watermark, held=held)
            if removal is None:
                return
            await self._runtime.workers.run(removal.run, lane=directory.path)
            log.finish_removal(removal)
        self._segments_deleted += len(removal)
        self._bytes_deleted += removal.size_bytes
        partition.on_log_start_moved()
        LOGGER.info("%s: deleted %d old segments", partition.topic_partition, len(removal))

    def collect_samples(self) -> Iterator[Sample]:
        yield SEGMENTS_DELETED.sample(self._segments_deleted)
        yield BYTES_DELETED.sample(self._bytes_deleted)

    async def expire_producers(self) -> None:
        now_ms = self._runtime.clock.wall_ms()
        age_ms = self._logs.config.producer_id_expiration_ms
        for count, partition in enumerate(list(self._logs.partitions)):
            if partition.log is not None and partition.is_usable:
                partition.log.producers.expire(now_ms, age_ms)
            if count % LOGS_PER_TURN == LOGS_PER_TURN - 1:
                await asyncio.sleep(0)

    async def write_offsets(self) -> None:
        """Writes recovery points and log starts of log dirs with changes."""
        for directory in self._logs.online:
            if self._offsets_at.get(directory) != directory.changes:
                self._offsets_at[directory] = self._watermarks_at[directory] = directory.changes
                try:
                    await self._logs.write_checkpoints(directory)
                except DiskFailed as error:
                    directory.fail(error)

    async def write_high_watermarks(self) -> None:
        for directory in self._logs.online:
            if self._watermarks_at.get(directory) != directory.changes:
                self._watermarks_at[directory] = directory.changes
                taken = self._logs.take_checkpoints(directory)
                try:
                    await self._runtime.workers.run(
                        taken.write_high_watermarks, lane=directory.path
                    )
                except DiskFailed as error:
                    directory.fail(error)

    async def remove_files(self) -> None:
        """Removes files of deleted segments and folders of deleted partitions after their delay."""
        wall_ms, mono_ms = self._runtime.clock.wall_ms(), self._runtime.clock.mono_ms()
        for partition in list(self._logs.partitions):
            log, directory = partition.log, partition.directory
            if log is not None and log.removals and directory is not None and partition.is_usable:
                paths = take_expired_files(log, wall_ms)
                if paths:
                    await self._run(directory, partial(_unlink, self._runtime.disk, paths))
        due = [entry for entry in self._logs.doomed if entry[0] <= mono_ms and not entry[1].offline]
        if due:
            self._logs.doomed = [entry for entry in self._logs.doomed if entry not in due]
        for _, directory, path in due:
            await self._run(directory, partial(_remove_tree, self._runtime.disk, path))

    async def _run(self, directory: LogDirectory, job: Callable[[], None]) -> None:
        """Runs a job outside of any lane, since flushes must not wait for slow removals."""
        try:
            await self._runtime.workers.run(job)
        except OSError as error:
            directory.fail(DiskFailed(directory.path, error))


def _unlink(disk: Disk, paths: list[str]) -> None:
    unlink_files(disk, paths)


def _remove_tree(disk: Disk, path: str) -> None:
    if disk.exists(path):
        disk.remove_tree(path)
