"""The logs of all log dirs: opened, made, deleted, closed.

Nothing here runs per partition while nothing happens: `housekeeping` looks at the clock for all of
them, one flusher per log dir sleeps until it is asked, new logs are made by worker jobs of many.

A failed disk (DiskFailed) takes its log dir offline for good: its partitions answer
KAFKA_STORAGE_ERROR. When it holds the metadata log, or was the last one, the node halts.
"""

import asyncio
import logging
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from itertools import groupby
from typing import Final, NamedTuple, Protocol
from uuid import UUID

from lograft.broker.logs.checkpoints import Checkpoints
from lograft.broker.logs.interrupted_moves import Choice, Opened, choose, doubt_of, settle
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
from lograft.model.metrics import Gauge, Sample, enum_label
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
#: Logs that one worker's job opens before the loop hears of them.
LOGS_PER_JOB: Final = 64
#: Workers that make or close logs side by side.
MAKERS: Final = 4

LOG_DIRS: Final = Gauge(
    "lograft_log_dirs",
    "Log dirs of this broker.",
    enum_label("state", ("online", "offline")),
)
LOGS: Final = Gauge("lograft_logs", "Partitions that have a log on this broker, or soon will.")
LOGS_DELETED: Final = Gauge(
    "lograft_logs_to_delete", "Folders of deleted partitions that are still on disk."
)


class Make(NamedTuple):
    partition: Partition


class Doom(NamedTuple):
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
        """`directory_ids`: each log dir that could be used at start, with its id.
        `on_directory_failed`: a log dir went offline; the controller should hear of it soon.
        `on_partition_opened`: a partition's log is open, or was moved; the controller may not know
        in which dir."""
        self._runtime = runtime
        self._disk = runtime.disk
        self._halt = halt
        #: Replaced when dynamic settings change.
        self.config = config
        self.directories = [
            LogDirectory(path, directory_id, workers=runtime.workers, on_failed=self._on_failed)
            for path, directory_id in directory_ids.items()
        ]
        #: Log dirs of the configuration that could not even be read at start.
        self.unusable = [path for path in config.log_dirs if path not in directory_ids]
        #: Every partition that has or shall have a log here; a dict for its order.
        self.partitions: dict[Partition, None] = {}
        #: Folders of deleted partitions, with the time from which they may be removed.
        self.doomed: list[tuple[int, LogDirectory, str]] = []
        #: Replicas that were moving to a log dir when the last life ended.
        self.unfinished_moves: list[tuple[UUID, int, LogDirectory]] = []
        #: Paths of log dirs in which replicas shall be made that are not here yet.
        self.preferred: dict[TopicPartition, str] = {}
        self.on_partition_opened = on_partition_opened
        self._on_directory_failed = on_directory_failed
        #: The cluster was told that nothing is missing.
        self._claims_all = False
        self._found: dict[TopicIdPartition, Opened] = {}
        #: While the logs are loaded: every folder of a replica.
        self._candidates: dict[TopicIdPartition, list[Opened]] = {}
        self._work: dict[LogDirectory, list[Make | Doom]] = {}
        #: The tasks that do it.
        self._workers_at: dict[LogDirectory, Task] = {}
        self._tasks: list[Task] = []

    @property
    def online(self) -> list[LogDirectory]:
        return [directory for directory in self.directories if not directory.offline]

    def offline_ids(self) -> list[UUID]:
        """What the controller must hear of."""
        return [directory.directory_id for directory in self.directories if directory.offline]

    def cordoned_ids(self) -> list[UUID]:
        """Log dirs that take no new replicas."""
        cordoned = self.config.cordoned_log_dirs
        return [each.directory_id for each in self.directories if is_cordoned(each.path, cordoned)]

    def partitions_in(self, directory: LogDirectory) -> list[tuple[Partition, Log]]:
        """Those with an open log."""
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

    # Start and stop.

    async def load(self, config_of: ConfigOf, id_of: Callable[[str], UUID]) -> None:
        """Opens every log that the cluster knows; `adopt` then takes them one by one."""
        for directory in self.directories:
            try:
                await self._load_directory(directory, config_of, id_of)
            except DiskFailed as error:
                directory.fail(error)
        await self._choose_found()

    async def _choose_found(self) -> None:
        """Where a replica has several folders, or a move was interrupted."""
        sees_all = not self.unusable and len(self.online) == len(self.directories)
        for key, candidates in self._candidates.items():
            choice = choose(candidates)
            chosen = choice.chosen
            for other in choice.others:
                LOGGER.error(
                    "%s lies in %s and in %s: the first one is used, move the other away",
                    other.found.topic_partition,
                    chosen.directory.path,
                    other.directory.path,
                )
            doubt = doubt_of(chosen, sees_all=sees_all)
            if doubt is not None:
                LOGGER.error("%s", doubt)
                chosen = chosen._replace(result=doubt)
            elif choice.left_behind or chosen.found.moving_to is not None:
                await self._settle(choice)
            self._found[key] = chosen
        self._candidates.clear()

    async def _settle(self, choice: Choice) -> None:
        for each in choice.left_behind:
            if isinstance(each.result, Log):
                each.result.close(clean=False)
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
        """The broker epoch of the last life if nothing that was written in it can be gone, else -1.
        Before `load`, which takes the marks of clean stops away."""
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
        for one in found.logs:
            topic, index = one.topic_partition
            config = config_of(topic, one.topic_id)
            if config is None:
                await self._set_aside(one)
                continue
            if one.topic_partition in found.cleaner_offsets:
                offset = found.cleaner_offsets[one.topic_partition]
                directory.cleaner_offsets[one.topic_partition] = offset
            key = TopicIdPartition(id_of(topic), index)
            opener = partial(
                open_found, disk, one, config=config, topic_id=key.topic_id, now_ms=now_ms
            )
            known.append((one, key, opener))
        if found.clean_epoch is None and known:
            LOGGER.info("log dir %s was not closed cleanly: recovering its logs", directory.path)
        chunks = [known[at : at + LOGS_PER_JOB] for at in range(0, len(known), LOGS_PER_JOB)]
        jobs = [
            workers.run(partial(open_many, [opener for _, _, opener in chunk])) for chunk in chunks
        ]
        shorter: dict[TopicPartition, Offset] = {}
        for chunk, results in zip(chunks, await asyncio.gather(*jobs), strict=True):
            if found.clean_epoch is None and self._claims_all:
                check_nothing_lost(directory.path, results)
            for (one, key, _), result in zip(chunk, results, strict=True):
                if isinstance(result, LograftError):
                    LOGGER.error("%s stays offline: %s", one.topic_partition, result)
                    plan = one.plan
                    directory.kept[one.topic_partition] = KeptOffsets(
                        plan.recovery_point, plan.log_start
                    )
                elif result.end_offset < one.plan.recovery_point:
                    shorter[one.topic_partition] = result.end_offset
                self._candidates.setdefault(key, []).append(Opened(result, directory, one))
        if shorter:
            # Before anything is written there: it is not fsynced, whatever was there once.
            job = partial(lower_recovery_points, disk, directory.path, shorter)
            await workers.run(job, lane=directory.path)

    async def _set_aside(self, found: FoundLog) -> None:
        unique = self._runtime.randomness.uuid()
        job = partial(set_stray_aside, self._disk, found, unique)
        path = await self._runtime.workers.run(job)
        LOGGER.warning("%s belongs to no topic of this cluster: set aside as %s", found.path, path)

    def adopt(self, partition: Partition) -> bool:
        """Gives the partition its log that `load` has found, if there is one."""
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
            self._opened(partition, opened.result, opened.directory, high_watermark)
        return True

    def _opened(
        self, partition: Partition, log: Log, directory: LogDirectory, high_watermark: Offset
    ) -> None:
        partition.on_opened(log, directory, high_watermark=high_watermark)
        self.on_partition_opened(partition, directory)

    def start(self) -> None:
        for directory in self.online:
            task = self._runtime.spawn(directory.flusher.run(), name=f"flush {directory.path}")
            self._tasks.append(task)

    async def mark_running(self, broker_epoch: int) -> None:
        """After `load`: a kill that leaves the kernel running costs nothing from here on. A dir
        with a log that could not be opened gets no mark."""
        for directory in self.online:
            job = partial(mark_running, self._disk, directory.path, broker_epoch)
            try:
                await self._runtime.workers.run(job, lane=directory.path)
            except DiskFailed as error:
                directory.fail(error)
            # Also what happened while the worker wrote.
            if directory.offline or self._has_offline_logs(directory):
                self._forget_running(directory)

    def _has_offline_logs(self, directory: LogDirectory) -> bool:
        return any(p.directory is directory and p.offline for p in self.partitions)

    def _forget_running(self, directory: LogDirectory) -> None:
        """At once: the process may end before a worker would come to it."""
        try:
            remove_running_mark(self._disk, directory.path)
        except OSError as error:
            # It can be read only, or not at all: then the next start cannot use it either.
            LOGGER.error("%s: %s", directory.path, error)

    async def stop(self, *, broker_epoch: int = -1) -> None:
        """Closes every log cleanly and says so in each log dir; a dir that fails meanwhile will
        be recovered at the next start."""
        for task in self._tasks:
            task.cancel()
        # A deleted log whose folder kept its name would be a stray one at the next start.
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
        # What was under way in the dir's lane ends before its files are closed side by side.
        await workers.run(_nothing, lane=directory.path)
        logs = [log for _, log in self.partitions_in(directory)]
        await asyncio.gather(
            *(workers.run(partial(_close_all, logs[n::MAKERS])) for n in range(MAKERS))
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
        """All files of the dir; raises DiskFailed."""
        taken = self.take_checkpoints(directory)
        await self._runtime.workers.run(taken.write_all, lane=directory.path)
        directory.names_on_disk = taken.names

    # Cutting logs: a follower's business.

    async def truncate(self, partition: Partition, to: Offset) -> None:
        """Cuts everything from `to` on away; raises DiskFailed. Nobody may append meanwhile."""
        log = _log_of(partition)
        if to < log.end_offset:
            await self._cut(partition, log.truncation_floor(to), to, partial(log.truncate, to))
        else:
            # No record goes, but an epoch that began there without one does.
            log.truncate(to)

    async def truncate_fully_and_start_at(self, partition: Partition, offset: Offset) -> None:
        log = _log_of(partition)
        floor = Offset(min(offset, log.segments[0].base_offset))
        now_ms = self._runtime.clock.wall_ms()
        job = partial(log.truncate_fully_and_start_at, offset, now_ms=now_ms)
        await self._cut(partition, floor, offset, job)

    async def _cut(
        self, partition: Partition, floor: Offset, to: Offset, job: Callable[[], None]
    ) -> None:
        """The job runs in a worker while nobody else uses the log. Before it, the recovery point
        comes down durably to `floor`: what is written there afterwards is not fsynced."""
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
        LOGGER.error("log dir %s goes offline: %s", directory.path, error.cause)
        self._forget_running(directory)
        reason = f"log dir {directory.path} is offline: {error.cause}"
        has_led = False
        for partition in list(self.partitions):
            if partition.directory is directory:
                has_led = has_led or partition.leader is not None
                partition.on_offline(reason)
        self._on_directory_failed(directory.directory_id, directory.path, has_led=has_led)
        if directory.path == self.config.metadata_log_dir:
            self._halt(f"{reason}; it holds the metadata log")
        elif not self.online:
            self._halt(f"{reason}; it was the last log dir")

    # Making and deleting logs: in one line per dir, so that a folder is never made before the old
    # one of that name is out of the way, nor renamed while a worker writes in it.

    def make(self, partition: Partition, *, directory_id: UUID | None, is_new: bool) -> None:
        """Opens a new log for the partition soon; `directory_id` says where, if it matters. One
        that is not new may lie in a dir that is offline: an empty log in its place would be a
        loss of records."""
        self.partitions[partition] = None
        assigned = any(directory.directory_id == directory_id for directory in self.online)
        if (
            not is_new
            and not assigned
            and (self.unusable or len(self.online) < len(self.directories))
        ):
            partition.on_offline("its log may lie in a log dir that is offline")
            return
        preferred = self.preferred.pop(partition.topic_partition, None)
        wanted = [each for each in self.online if each.path == preferred]
        directory = wanted[0] if wanted else self._choose(directory_id)
        if directory is None:
            partition.on_offline("no log dir is online")
            return
        directory.log_count += 1
        partition.assign_directory(directory)
        self._queue(directory, Make(partition))

    def _choose(self, directory_id: UUID | None) -> LogDirectory | None:
        """The assigned dir, else the online one with the fewest logs."""
        online = self.online
        for directory in online:
            if directory.directory_id == directory_id:
                return directory
        cordoned = self.config.cordoned_log_dirs
        open_ones = [d for d in online if not is_cordoned(d.path, cordoned)]
        return min(open_ones or online, key=lambda d: d.log_count, default=None)

    def delete(self, partition: Partition) -> None:
        """The folder is renamed soon and removed after `file.delete.delay.ms`."""
        self.partitions.pop(partition, None)
        directory = partition.directory
        if directory is None:
            return
        directory.log_count -= 1
        directory.changes += 1
        directory.kept.pop(partition.topic_partition, None)
        directory.cleaner_offsets.pop(partition.topic_partition, None)
        # A log that a worker is just making is deleted once it is there.
        if partition.log is not None:
            self._queue(directory, Doom(partition, partition.log))

    def _queue(self, directory: LogDirectory, work: "Make | Doom") -> None:
        waiting = self._work.get(directory)
        if waiting is None:
            self._work[directory] = [work]
            name = f"make logs {directory.path}"
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
                if kind is Doom:
                    await self._set_doomed_aside(directory, [w for w in batch if type(w) is Doom])
                else:
                    await self._make_logs(
                        directory, [w.partition for w in batch if not w.partition.is_deleted]
                    )
            except DiskFailed as error:
                directory.fail(error)
                break
        del self._work[directory], self._workers_at[directory]

    async def _set_doomed_aside(self, directory: LogDirectory, batch: list[Doom]) -> None:
        """In the dir's lane: after every flush that may still write in these folders."""
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
        """Many at once: each waits for the disk a few times, and the disk takes them together."""
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
        chunks = [range(start, len(openers), MAKERS) for start in range(MAKERS)]
        jobs = [workers.run(partial(open_many, [openers[n] for n in chunk])) for chunk in chunks]
        results = await asyncio.gather(*jobs)
        await workers.run(
            partial(sync_folder_names, self._disk, directory.path), lane=directory.path
        )
        for chunk, opened in zip(chunks, results, strict=True):
            for number, result in zip(chunk, opened, strict=True):
                self._made(partitions[number], directory, result)

    def _made(
        self, partition: Partition, directory: LogDirectory, result: Log | LograftError
    ) -> None:
        if isinstance(result, LograftError):
            LOGGER.error("no log for %s: %s", partition.topic_partition, result)
            partition.on_offline(str(result))
        elif partition.is_deleted:
            # Before all that waits: the topic may have been created again, and its new log must
            # not find the old folder.
            self._work[directory].insert(0, Doom(partition, result))
        elif not partition.offline:
            self._opened(partition, result, directory, NO_OFFSET)
            directory.changes += 1


def _log_of(partition: Partition) -> Log:
    assert partition.log is not None, partition
    return partition.log


def _nothing() -> None:
    pass


def _close_all(logs: list[Log]) -> None:
    for log in logs:
        log.close(clean=True)
