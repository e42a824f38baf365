"""Opens, creates, deletes and closes the logs of all log dirs.

Idle partitions have no tasks or timers: `housekeeping` checks the time for all of them, there is
one flusher per log dir, and a worker job creates many logs.

A disk failure (DiskFailed) takes its log dir offline until a restart: its partitions return
KAFKA_STORAGE_ERROR. If it contains the metadata log, or was the last one online, the node halts.
"""

import asyncio
import logging
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from itertools import groupby
from typing import Final, NamedTuple, Protocol
from uuid import UUID

from lograft.broker.logs.checkpoints import Checkpoints
from lograft.broker.logs.interrupted_moves import (
    Choice,
    Opened,
    choose,
    interrupted_move_error,
    settle,
)
from lograft.broker.logs.log_loading import (
    ConfigOf,
    FoundLog,
    check_nothing_lost,
    intact_epoch_of_all,
    lower_recovery_points,
    mark_running,
    open_found,
    open_many,
    open_new,
    rename_logs,
    set_stray_aside,
    survey,
    sync_folder_names,
)
from lograft.broker.partitions.log_directory import LogDirectory
from lograft.broker.partitions.partition import KeptOffsets, Partition
from lograft.model.errors import DiskFailed, LograftError
from lograft.model.metrics import (
    DURATION_BUCKETS,
    Counter,
    Gauge,
    Histogram,
    Sample,
    enum_label,
)
from lograft.model.seams import Runtime, Task
from lograft.model.settings.broker import BrokerConfig
from lograft.model.types import NO_OFFSET, Offset, TopicIdPartition, TopicPartition
from lograft.storage.log import Log
from lograft.storage.log_dirs import (
    deleted_directory_name,
    remove_running_mark,
    write_clean_shutdown,
)

LOGGER: Final = logging.getLogger(__name__)
#: Number of logs that one worker job opens.
LOGS_PER_JOB: Final = 64
#: Number of workers that create or close logs in parallel.
PARALLEL_JOBS: Final = 4

LOG_DIRS: Final = Gauge(
    "lograft_log_dirs",
    "Log dirs of this broker.",
    enum_label("state", ("online", "offline")),
)
LOGS: Final = Gauge(
    "lograft_logs", "Partitions with a log on this broker, including those being created."
)
LOGS_DELETED: Final = Gauge(
    "lograft_logs_to_delete", "Directories of deleted partitions that are still on disk."
)
LOAD_SECONDS: Final = Histogram(
    "lograft_log_load_seconds",
    "Time to load the logs of a log dir at startup, with their recovery after a crash.",
    bounds=DURATION_BUCKETS,
)
RECOVERED: Final = Counter(
    "lograft_logs_recovered_total",
    "Logs that were recovered at startup, because their log dir was not shut down cleanly.",
)
DIR_FAILURES: Final = Counter(
    "lograft_log_dir_failures_total", "Log dirs that went offline because of an error."
)


class CreateLog(NamedTuple):
    partition: Partition


class DeleteLog(NamedTuple):
    partition: Partition
    log: Log


class DirectoryFailed(Protocol):
    def __call__(self, directory_id: UUID, path: str, *, has_led: bool) -> None: ...


def is_cordoned(path: str, cordoned: tuple[str, ...]) -> bool:
    return path in cordoned or "*" in cordoned


class LogManager:
    def __init__(
        self,
        runtime: Runtime,
        config: BrokerConfig,
        *,
        directory_ids: Mapping[str, UUID],
        on_directory_failed: DirectoryFailed,
        on_partition_opened: Callable[[Partition, LogDirectory], None],
        halt: Callable[[str], None],
    ) -> None:
        """`directory_ids` are the ids of the log dirs that could be used at startup.
        `on_directory_failed` is called when a log dir goes offline, to inform the controller.
        `on_partition_opened` is called when a log was opened or moved, since the controller may not
        know its log dir."""
        self._runtime = runtime
        self._disk = runtime.disk
        self._halt = halt
        #: Replaced when dynamic settings change.
        self.config = config
        self.directories = [
            LogDirectory(
                path,
                directory_id,
                workers=runtime.workers,
                clock=runtime.clock,
                on_failed=self._on_failed,
            )
            for path, directory_id in directory_ids.items()
        ]
        #: Log dirs in the configuration that could not be read at startup.
        self.unusable = [path for path in config.log_dirs if path not in directory_ids]
        #: Every partition that has a log on this broker, or will; a dict for its order.
        self.partitions: dict[Partition, None] = {}
        #: Folders of deleted partitions, with the time from which they may be removed.
        self.doomed: list[tuple[int, LogDirectory, str]] = []
        #: Replicas whose move to a log dir was interrupted by the end of the last process.
        self.unfinished_moves: list[tuple[UUID, int, LogDirectory]] = []
        #: Requested log dirs of replicas that do not exist on this broker yet.
        self.preferred: dict[TopicPartition, str] = {}
        self.on_partition_opened = on_partition_opened
        self._on_directory_failed = on_directory_failed
        #: Whether the registration claims that no records are missing.
        self._claims_all = False
        self._found: dict[TopicIdPartition, Opened] = {}
        #: While the logs are loaded: every folder of a replica.
        self._candidates: dict[TopicIdPartition, list[Opened]] = {}
        self._work: dict[LogDirectory, list[CreateLog | DeleteLog]] = {}
        #: The tasks that do it.
        self._workers_at: dict[LogDirectory, Task] = {}
        self._tasks: list[Task] = []
        self._load_seconds = LOAD_SECONDS.make_recorder()
        self._recovered = 0
        self._dir_failures = 0

    @property
    def online(self) -> list[LogDirectory]:
        return [directory for directory in self.directories if not directory.offline]

    def offline_ids(self) -> list[UUID]:
        """Ids of failed log dirs, to report to the controller."""
        return [directory.directory_id for directory in self.directories if directory.offline]

    def cordoned_ids(self) -> list[UUID]:
        """Ids of log dirs that get no new replicas."""
        cordoned = self.config.cordoned_log_dirs
        return [
            directory.directory_id
            for directory in self.directories
            if is_cordoned(directory.path, cordoned)
        ]

    def partitions_in(self, directory: LogDirectory) -> list[tuple[Partition, Log]]:
        """Returns the partitions with an open log in the directory."""
        return [
            (partition, partition.log)
            for partition in self.partitions
            if partition.directory is directory and partition.log is not None
        ]

    def collect_samples(self) -> Iterator[Sample]:
        online = len(self.online)
        yield LOG_DIRS.sample(online, "online")
        yield LOG_DIRS.sample(len(self.directories) - online + len(self.unusable), "offline")
        yield LOGS.sample(len(self.partitions))
        yield LOGS_DELETED.sample(len(self.doomed))
        yield LOAD_SECONDS.sample(self._load_seconds)
        yield RECOVERED.sample(self._recovered)
        yield DIR_FAILURES.sample(self._dir_failures)
        for directory in self.directories:
            yield from directory.flusher.collect_samples()

    # Start and stop.

    async def load(self, config_of: ConfigOf, id_of: Callable[[str], UUID]) -> None:
        """Opens every log that belongs to the cluster; `adopt` then assigns them to partitions."""
        for directory in self.directories:
            began_ms = self._runtime.clock.mono_ms()
            try:
                await self._load_directory(directory, config_of, id_of)
                self._load_seconds.observe((self._runtime.clock.mono_ms() - began_ms) / 1000)
            except DiskFailed as error:
                directory.fail(error)
        await self._choose_found()

    async def _choose_found(self) -> None:
        """Selects the folder of each replica that has several, or whose move was interrupted."""
        sees_all = not self.unusable and len(self.online) == len(self.directories)
        for key, candidates in self._candidates.items():
            choice = choose(candidates)
            chosen = choice.chosen
            for other in choice.others:
                LOGGER.error(
                    "%s exists in %s and in %s: using the first; remove the other",
                    other.found.topic_partition,
                    chosen.directory.path,
                    other.directory.path,
                )
            error = interrupted_move_error(chosen, sees_all=sees_all)
            if error is not None:
                LOGGER.error("%s", error)
                chosen = chosen._replace(result=error)
            elif choice.left_behind or chosen.found.moving_to is not None:
                await self._settle(choice)
            self._found[key] = chosen
        self._candidates.clear()

    async def _settle(self, choice: Choice) -> None:
        for opened in choice.left_behind:
            if isinstance(opened.result, Log):
                opened.result.close(clean=False)
        job = partial(settle, self._disk, choice, self._runtime.randomness.uuid())
        try:
            doomed = await self._runtime.workers.run(job)
        except DiskFailed as error:
            for directory in self.directories:
                if directory.path == error.log_dir:
                    directory.fail(error)
            return
        due_ms = self._runtime.clock.mono_ms()
        self.doomed += [(due_ms, directory, path) for directory, path in doomed]

    async def read_previous_epoch(self) -> int:
        """Returns the broker epoch of the last process if no record that it wrote can be lost, else
        -1. Called before `load`, which removes the marks of clean shutdowns."""
        paths = [directory.path for directory in self.directories]
        if self.unusable or not paths:
            return -1
        job = partial(intact_epoch_of_all, self._disk, paths)
        epoch = await self._runtime.workers.run(job)
        self._claims_all = epoch >= 0
        return epoch

    async def _load_directory(
        self, directory: LogDirectory, config_of: ConfigOf, id_of: Callable[[str], UUID]
    ) -> None:
        workers, disk = self._runtime.workers, self._disk
        found = await workers.run(partial(survey, disk, directory.path), lane=directory.path)
        directory.names_on_disk = found.names
        now_ms = self._runtime.clock.wall_ms()
        due_ms = self._runtime.clock.mono_ms()
        self.doomed += [(due_ms, directory, path) for path in found.doomed]
        self.unfinished_moves += [(*key, directory) for key in found.coming]
        known: list[tuple[FoundLog, TopicIdPartition, Callable[[], Log]]] = []
        for log in found.logs:
            topic, index = log.topic_partition
            config = config_of(topic, log.topic_id)
            if config is None:
                await self._set_aside(log)
                continue
            if log.topic_partition in found.cleaner_offsets:
                offset = found.cleaner_offsets[log.topic_partition]
                directory.cleaner_offsets[log.topic_partition] = offset
            key = TopicIdPartition(id_of(topic), index)
            opener = partial(
                open_found, disk, log, config=config, topic_id=key.topic_id, now_ms=now_ms
            )
            known.append((log, key, opener))
        if found.clean_epoch is None and known:
            LOGGER.info(
                "recovering the logs in %s, which was not shut down cleanly", directory.path
            )
            self._recovered += len(known)
        chunks = [known[at : at + LOGS_PER_JOB] for at in range(0, len(known), LOGS_PER_JOB)]
        jobs = [
            workers.run(partial(open_many, [opener for _, _, opener in chunk])) for chunk in chunks
        ]
        shorter: dict[TopicPartition, Offset] = {}
        for chunk, results in zip(chunks, await asyncio.gather(*jobs), strict=True):
            if found.clean_epoch is None and self._claims_all:
                check_nothing_lost(directory.path, results)
            for (log, key, _), result in zip(chunk, results, strict=True):
                if isinstance(result, LograftError):
                    LOGGER.error("%s is offline: %s", log.topic_partition, result)
                    plan = log.plan
                    directory.kept[log.topic_partition] = KeptOffsets(
                        plan.recovery_point, plan.log_start
                    )
                elif result.end_offset < log.plan.recovery_point:
                    shorter[log.topic_partition] = result.end_offset
                self._candidates.setdefault(key, []).append(Opened(result, directory, log))
        if shorter:
            # Before anything is appended there, which is not fsynced, whatever was there before.
            job = partial(lower_recovery_points, disk, directory.path, shorter)
            await workers.run(job, lane=directory.path)

    async def _set_aside(self, found: FoundLog) -> None:
        unique = self._runtime.randomness.uuid()
        job = partial(set_stray_aside, self._disk, found, unique)
        path = await self._runtime.workers.run(job)
        LOGGER.warning(
            "renamed %s to %s, because its topic does not exist in this cluster", found.path, path
        )

    def adopt(self, partition: Partition) -> bool:
        """Assigns the log that `load` found to the partition. Returns False if there is none."""
        opened = self._found.pop(TopicIdPartition(partition.topic_id, partition.index), None)
        if opened is None:
            return False
        self.partitions[partition] = None
        opened.directory.log_count += 1
        partition.assign_directory(opened.directory, opened.found.past_directories)
        if isinstance(opened.result, LograftError):
            partition.on_offline(str(opened.result))
        elif opened.directory.offline:
            partition.on_offline(f"log dir {opened.directory.path} is offline")
        else:
            high_watermark = opened.found.high_watermark
            self._publish_log(partition, opened.result, opened.directory, high_watermark)
        return True

    def _publish_log(
        self, partition: Partition, log: Log, directory: LogDirectory, high_watermark: Offset
    ) -> None:
        partition.on_opened(log, directory, high_watermark=high_watermark)
        self.on_partition_opened(partition, directory)

    def start(self) -> None:
        for directory in self.online:
            task = self._runtime.spawn(directory.flusher.run(), name=f"flush {directory.path}")
            self._tasks.append(task)

    async def mark_running(self, broker_epoch: int) -> None:
        """Marks the log dirs as in use by this process, after `load`. With the mark, the end of the
        process alone, without a crash of the machine, loses no records. A log dir with a log that
        could not be opened gets no mark."""
        for directory in self.online:
            job = partial(mark_running, self._disk, directory.path, broker_epoch)
            try:
                await self._runtime.workers.run(job, lane=directory.path)
            except DiskFailed as error:
                directory.fail(error)
            # The state may have changed while the worker was writing.
            if directory.offline or self._has_offline_logs(directory):
                self._forget_running(directory)

    def _has_offline_logs(self, directory: LogDirectory) -> bool:
        return any(p.directory is directory and p.offline for p in self.partitions)

    def _forget_running(self, directory: LogDirectory) -> None:
        """Removes the mark at once, since the process may end before a worker could."""
        try:
            remove_running_mark(self._disk, directory.path)
        except OSError as error:
            # The log dir is read-only or unreadable: the next start cannot use it either.
            LOGGER.error("%s: %s", directory.path, error)

    async def stop(self, *, broker_epoch: int = -1) -> None:
        """Closes every log cleanly and writes that to each log dir. The logs of a log dir that
        fails in the meantime are recovered at the next start."""
        for task in self._tasks:
            task.cancel()
        # A deleted log whose folder is not renamed yet would be stray at the next start.
        for task in list(self._workers_at.values()):
            await task
        for directory in self.online:
            try:
                await self._close_logs(directory)
                await self.write_checkpoints(directory)
                if not self._has_offline_logs(directory):
                    await self._runtime.workers.run(
                        partial(self._mark_clean, directory.path, broker_epoch),
                        lane=directory.path,
                    )
            except DiskFailed as error:
                directory.fail(error)

    async def _close_logs(self, directory: LogDirectory) -> None:
        workers = self._runtime.workers
        # Jobs in the lane of the log dir complete before its files are closed in parallel.
        await workers.run(_nothing, lane=directory.path)
        logs = [log for _, log in self.partitions_in(directory)]
        await asyncio.gather(
            *(
                workers.run(partial(_close_all, logs[n::PARALLEL_JOBS]))
                for n in range(PARALLEL_JOBS)
            )
        )

    def take_checkpoints(self, directory: LogDirectory) -> Checkpoints:
        logs = self.partitions_in(directory)
        return Checkpoints.take(
            self._disk,
            directory.path,
            logs,
            kept=directory.kept,
            cleaner_offsets=directory.cleaner_offsets,
        )

    async def write_checkpoints(self, directory: LogDirectory) -> None:
        """Writes all checkpoint files of the log dir; raises DiskFailed."""
        taken = self.take_checkpoints(directory)
        await self._runtime.workers.run(taken.write_all, lane=directory.path)
        directory.names_on_disk = taken.names

    # Truncating logs of followers.

    async def truncate(self, partition: Partition, to: Offset) -> None:
        """Truncates the log to this offset; raises DiskFailed. The caller prevents appends."""
        log = _log_of(partition)
        if to < log.end_offset:
            await self._truncate(partition, log.truncation_floor(to), to, partial(log.truncate, to))
        else:
            # Removes no record, but an epoch that starts there without one.
            log.truncate(to)

    async def truncate_fully_and_start_at(self, partition: Partition, offset: Offset) -> None:
        log = _log_of(partition)
        floor = Offset(min(offset, log.segments[0].base_offset))
        now_ms = self._runtime.clock.wall_ms()
        job = partial(log.truncate_fully_and_start_at, offset, now_ms=now_ms)
        await self._truncate(partition, floor, offset, job)

    async def _truncate(
        self, partition: Partition, floor: Offset, to: Offset, job: Callable[[], None]
    ) -> None:
        """Runs the job in a worker with exclusive access to the log. Before that it durably lowers
        the recovery point to `floor`, since records written there later are not fsynced."""
        log, directory = _log_of(partition), partition.directory
        assert directory is not None
        async with directory.segment_lock:
            log.lower_durable(floor)
            partition.begin_truncation(
                KeptOffsets(log.durable_offset, Offset(min(log.log_start_offset, to)))
            )
            try:
                await self.write_checkpoints(directory)
                await self._runtime.workers.run(job, lane=directory.path)
            except DiskFailed as error:
                directory.fail(error)
                raise
            finally:
                partition.end_truncation()
                directory.changes += 1

    def _mark_clean(self, path: str, broker_epoch: int) -> None:
        try:
            write_clean_shutdown(self._disk, path, broker_epoch)
        except OSError as error:
            raise DiskFailed(path, error) from error

    # Failing disks.

    def _on_failed(self, directory: LogDirectory, error: DiskFailed) -> None:
        LOGGER.error("log dir %s is offline: %s", directory.path, error.cause)
        self._dir_failures += 1
        self._forget_running(directory)
        reason = f"log dir {directory.path} is offline: {error.cause}"
        has_led = False
        for partition in list(self.partitions):
            if partition.directory is directory:
                has_led = has_led or partition.leader is not None
                partition.on_offline(reason)
        self._on_directory_failed(directory.directory_id, directory.path, has_led=has_led)
        if directory.path == self.config.metadata_log_dir:
            self._halt(f"{reason}; it contains the metadata log")
        elif not self.online:
            self._halt(f"{reason}; it was the last log dir online")

    # Creating and deleting logs: one queue per log dir, so that a folder is never created before an
    # old one of that name was renamed, nor renamed while a worker writes to it.

    def make(self, partition: Partition, *, directory_id: UUID | None, is_new: bool) -> None:
        """Creates the log of a partition in the background, in the log dir with `directory_id` if
        that is online. The log of a partition that is not new may be in an offline log dir, and an
        empty log instead of it would lose records, so such a partition stays offline."""
        self.partitions[partition] = None
        assigned = any(directory.directory_id == directory_id for directory in self.online)
        if (
            not is_new
            and not assigned
            and (self.unusable or len(self.online) < len(self.directories))
        ):
            partition.on_offline("its log may be in a log dir that is offline")
            return
        preferred = self.preferred.pop(partition.topic_partition, None)
        requested = [directory for directory in self.online if directory.path == preferred]
        directory = requested[0] if requested else self._choose(directory_id)
        if directory is None:
            partition.on_offline("no log dir is online")
            return
        directory.log_count += 1
        partition.assign_directory(directory)
        self._queue(directory, CreateLog(partition))

    def _choose(self, directory_id: UUID | None) -> LogDirectory | None:
        """Returns the assigned log dir, else the online one with the fewest logs."""
        online = self.online
        for directory in online:
            if directory.directory_id == directory_id:
                return directory
        cordoned = self.config.cordoned_log_dirs
        open_ones = [d for d in online if not is_cordoned(d.path, cordoned)]
        return min(open_ones or online, key=lambda d: d.log_count, default=None)

    def delete(self, partition: Partition) -> None:
        """Deletes a log: its folder is renamed in the background and removed after
        `file.delete.delay.ms`."""
        self.partitions.pop(partition, None)
        directory = partition.directory
        if directory is None:
            return
        directory.log_count -= 1
        directory.changes += 1
        directory.kept.pop(partition.topic_partition, None)
        directory.cleaner_offsets.pop(partition.topic_partition, None)
        # A log that a worker is creating is deleted afterwards.
        if partition.log is not None:
            self._queue(directory, DeleteLog(partition, partition.log))

    def _queue(self, directory: LogDirectory, work: "CreateLog | DeleteLog") -> None:
        waiting = self._work.get(directory)
        if waiting is None:
            self._work[directory] = [work]
            name = f"create logs {directory.path}"
            self._workers_at[directory] = self._runtime.spawn(self._do_work(directory), name=name)
        else:
            waiting.append(work)

    async def _do_work(self, directory: LogDirectory) -> None:
        waiting = self._work[directory]
        while waiting and not directory.offline:
            kind, group = next(groupby(waiting[:LOGS_PER_JOB], type))
            batch = list(group)
            del waiting[: len(batch)]
            try:
                if any(w.partition.topic_partition in directory.names_on_disk for w in batch):
                    await self.write_checkpoints(directory)
                if kind is DeleteLog:
                    await self._set_doomed_aside(
                        directory, [w for w in batch if type(w) is DeleteLog]
                    )
                else:
                    await self._make_logs(
                        directory, [w.partition for w in batch if not w.partition.is_deleted]
                    )
            except DiskFailed as error:
                directory.fail(error)
                break
        del self._work[directory], self._workers_at[directory]

    async def _set_doomed_aside(self, directory: LogDirectory, batch: list[DeleteLog]) -> None:
        """Renames folders of deleted logs, in the lane of the log dir, and so after every flush
        that may still write to them."""
        renames = []
        for partition, log in batch:
            name = deleted_directory_name(
                partition.topic_partition, self._runtime.randomness.uuid()
            )
            path = f"{directory.path}/{name}"
            renames.append((log.directory, path))
            due_ms = self._runtime.clock.mono_ms() + partition.config.file_delete_delay_ms
            self.doomed.append((due_ms, directory, path))
            log.close(clean=False)
        job = partial(rename_logs, self._disk, directory.path, renames)
        await self._runtime.workers.run(job, lane=directory.path)

    async def _make_logs(self, directory: LogDirectory, partitions: list[Partition]) -> None:
        """Creates many logs in parallel, since each of them waits for the disk several times."""
        workers, now_ms = self._runtime.workers, self._runtime.clock.wall_ms()
        openers: list[Callable[[], Log]] = [
            partial(
                open_new,
                self._disk,
                directory.path,
                partition.topic_partition,
                topic_id=partition.topic_id,
                config=partition.config,
                now_ms=now_ms,
            )
            for partition in partitions
        ]
        chunks = [range(start, len(openers), PARALLEL_JOBS) for start in range(PARALLEL_JOBS)]
        jobs = [workers.run(partial(open_many, [openers[n] for n in chunk])) for chunk in chunks]
        results = await asyncio.gather(*jobs)
        await workers.run(
            partial(sync_folder_names, self._disk, directory.path), lane=directory.path
        )
        for chunk, opened in zip(chunks, results, strict=True):
            for number, result in zip(chunk, opened, strict=True):
                self._on_created(partitions[number], directory, result)

    def _on_created(
        self, partition: Partition, directory: LogDirectory, result: Log | LograftError
    ) -> None:
        if isinstance(result, LograftError):
            LOGGER.error("could not create the log of %s: %s", partition.topic_partition, result)
            partition.on_offline(str(result))
        elif partition.is_deleted:
            # First in the queue: the topic may have been created again, and its new log must not
            # use the old folder.
            self._work[directory].insert(0, DeleteLog(partition, result))
        elif not partition.offline:
            self._publish_log(partition, result, directory, NO_OFFSET)
            directory.changes += 1


def _log_of(partition: Partition) -> Log:
    assert partition.log is not None, partition
    return partition.log


def _nothing() -> None:
    pass


def _close_all(logs: list[Log]) -> None:
    for log in logs:
        log.close(clean=True)
