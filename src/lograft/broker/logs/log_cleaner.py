"""Compaction of logs with cleanup.policy=compact: the dirtiest first, one at a time.

The work runs in a worker, in a separate lane. A log that cannot be compacted because it is damaged
is skipped until the next start.
"""

import asyncio
import logging
import math
from collections.abc import Iterator
from functools import partial
from typing import Final, NamedTuple

from lograft.broker.logs.log_manager import LogManager
from lograft.broker.partitions.log_directory import LogDirectory
from lograft.broker.partitions.partition import Partition
from lograft.model.errors import DiskFailed, LograftError
from lograft.model.metrics import DURATION_BUCKETS, Counter, Gauge, Histogram, Sample
from lograft.model.seams import Runtime
from lograft.model.types import Offset
from lograft.storage.cleaner import KEYS_MAX, Cleanable, Cleaning, find_cleanable
from lograft.storage.log import Log

LOGGER: Final = logging.getLogger(__name__)
#: Approximate size of a key in the map of latest offsets.
BYTES_PER_KEY: Final = 128
#: Number of logs that are checked before other tasks can run.
LOGS_PER_TURN: Final = 100
#: Size of the part that is compacted between two checks of the limit: a time, and at most bytes.
PART_S: Final = 0.1
PART_BYTES_MAX: Final = 64 << 20
#: Maximum sleep, after which a changed limit is noticed.
PAUSE_MS_MAX: Final = 1_000

PASSES: Final = Counter("lograft_cleaner_passes_total", "Logs that were compacted.")
GIVEN_UP: Final = Gauge(
    "lograft_cleaner_uncleanable_partitions",
    "Partitions that are no longer compacted because of an error.",
)
MOVED_BYTES: Final = Counter(
    "lograft_cleaner_io_bytes_total", "Bytes that compaction has read and written."
)
PASS_SECONDS: Final = Histogram(
    "lograft_cleaner_pass_seconds", "Time to compact a log.", bounds=DURATION_BUCKETS
)
DIRTY_RATIO: Final = Gauge(
    "lograft_cleaner_max_dirty_ratio",
    "Highest dirty ratio of the logs eligible for compaction, at the last check.",
)
LAST_CHECK: Final = Gauge(
    "lograft_cleaner_last_check_age_seconds",
    "Time since the cleaner last looked for logs to compact.",
)


class Candidate(NamedTuple):
    partition: Partition
    log: Log
    directory: LogDirectory
    cleanable: Cleanable


class LogCleaner:
    def __init__(self, runtime: Runtime, logs: LogManager) -> None:
        self._runtime = runtime
        self._logs = logs
        self._config_changed = asyncio.Event()
        self._passes = 0
        #: Bytes read and written by all passes.
        self._moved_bytes = 0
        #: Partitions that are not compacted until a restart, because of an error.
        self._given_up: set[Partition] = set()
        self._pass_seconds = PASS_SECONDS.make_recorder()
        self._dirty_ratio = 0.0
        self._checked_ms = runtime.clock.mono_ms()

    async def run(self) -> None:
        while True:
            candidate = await self.find_dirtiest()
            if candidate is None or not await self.clean(candidate):
                await self._back_off()

    def on_config_changed(self) -> None:
        self._config_changed.set()

    async def _back_off(self) -> None:
        """Waits for log.cleaner.backoff.ms, which may become shorter in the meantime."""
        clock = self._runtime.clock
        begun_ms = clock.mono_ms()
        wait_ms = max(1, self._logs.config.log_cleaner_backoff_ms)
        while wait_ms > 0:
            self._config_changed.clear()
            try:
                async with asyncio.timeout(wait_ms / 1000):
                    await self._config_changed.wait()
            except TimeoutError:
                pass
            wait_ms = begun_ms + self._logs.config.log_cleaner_backoff_ms - clock.mono_ms()

    async def find_dirtiest(self) -> Candidate | None:
        """Returns an overdue log if there is one, else the one with the highest dirty ratio."""
        if not self._logs.config.log_cleaner_enable:
            return None
        now_ms = self._runtime.clock.wall_ms()
        best: Candidate | None = None
        for count, partition in enumerate(list(self._logs.partitions)):
            if count % LOGS_PER_TURN == LOGS_PER_TURN - 1:
                await asyncio.sleep(0)
            if not partition.config.cleanup_compact or partition in self._given_up:
                continue
            found = self._check_log(partition, now_ms)
            if found is not None and (
                best is None or _urgency(found.cleanable) > _urgency(best.cleanable)
            ):
                best = found
        self._dirty_ratio = 0.0 if best is None else best.cleanable.dirty_ratio
        self._checked_ms = self._runtime.clock.mono_ms()
        return best

    def _check_log(self, partition: Partition, now_ms: int) -> Candidate | None:
        log, directory = partition.log, partition.directory
        if log is None or directory is None or not partition.is_usable:
            return None
        try:
            cleanable = find_cleanable(
                log,
                first_dirty=directory.cleaner_offsets.get(log.topic_partition, Offset(0)),
                now_ms=now_ms,
                high_watermark=partition.high_watermark,
            )
        except OSError as error:
            directory.fail(DiskFailed(directory.path, error))
            return None
        except LograftError as error:
            self._give_up(partition, error)
            return None
        return None if cleanable is None else Candidate(partition, log, directory, cleanable)

    async def clean(self, candidate: Candidate) -> bool:
        """Compacts a log. Returns whether its segments were replaced."""
        partition, log, directory, cleanable = candidate
        keys_max = self._logs.config.log_cleaner_dedupe_buffer_size // BYTES_PER_KEY
        truncations = log.truncations
        clock = self._runtime.clock
        began_ms = clock.mono_ms()
        try:
            cleaning = Cleaning(
                log,
                cleanable,
                now_ms=self._runtime.clock.wall_ms(),
                keys_max=min(KEYS_MAX, keys_max),
            )
            await self._run(cleaning, directory)
            swapped = await self._swap(candidate, cleaning)
        except OSError as error:
            directory.fail(DiskFailed(directory.path, error))
            return False
        except DiskFailed as error:
            # If the topic was deleted in the meantime, the missing folder is no failure.
            if not partition.is_deleted:
                directory.fail(error)
            return False
        except LograftError as error:
            if log.truncations == truncations:
                self._give_up(partition, error)
            return False
        if swapped:
            self._pass_seconds.observe((clock.mono_ms() - began_ms) / 1000)
            await self._note(candidate, cleaning)
        return swapped

    async def _run(self, cleaning: Cleaning, directory: LogDirectory) -> None:
        """Compacts in parts, each followed by a pause that keeps reads and writes together below
        log.cleaner.io.max.bytes.per.second. The setting is read before each part. It applies to all
        log dirs together, since they are cleaned one after the other."""
        clock, workers = self._runtime.clock, self._runtime.workers
        while not cleaning.is_done:
            begun_ms = clock.mono_ms()
            part = partial(cleaning.run_part, self._part_bytes())
            moved = await workers.run(part, lane=directory.cleaner_lane)
            self._moved_bytes += moved
            while (wait_ms := begun_ms + self._time_of_ms(moved) - clock.mono_ms()) > 0:
                await asyncio.sleep(min(wait_ms, PAUSE_MS_MAX) / 1000)

    def _part_bytes(self) -> int:
        rate = self._logs.config.log_cleaner_io_max_bytes_per_second
        return max(1, int(min(rate * PART_S, PART_BYTES_MAX)))

    def _time_of_ms(self, moved: int) -> float:
        """Returns the time for this number of bytes; a rate of 0 or less stops compaction."""
        rate = self._logs.config.log_cleaner_io_max_bytes_per_second
        return moved * 1000 / rate if rate > 0 else math.inf

    async def _swap(self, candidate: Candidate, cleaning: Cleaning) -> bool:
        partition, log, directory, _ = candidate
        workers = self._runtime.workers
        async with directory.segment_lock:
            if not partition.is_usable:
                return False
            if not cleaning.begin_swap(log):
                await workers.run(cleaning.discard, lane=directory.cleaner_lane)
                return False
            await workers.run(cleaning.run_swap, lane=directory.path)
            cleaning.finish_swap(log)
        return True

    async def _note(self, candidate: Candidate, cleaning: Cleaning) -> None:
        partition, log, directory, cleanable = candidate
        self._passes += 1
        directory.changes += 1
        directory.cleaner_offsets[log.topic_partition] = cleaning.first_dirty
        LOGGER.info("%s: compacted up to offset %d", log.topic_partition, cleaning.first_dirty)
        if cleaning.first_dirty <= cleanable.first_dirty:
            self._give_up(partition, "its first dirty segment has too many keys")
        try:
            await self._logs.write_checkpoints(directory)
        except DiskFailed as error:
            directory.fail(error)

    def _give_up(self, partition: Partition, reason: object) -> None:
        LOGGER.error("stopped compacting %s: %s", partition.topic_partition, reason)
        self._given_up.add(partition)

    def collect_samples(self) -> Iterator[Sample]:
        yield PASSES.sample(self._passes)
        yield GIVEN_UP.sample(len(self._given_up))
        yield MOVED_BYTES.sample(self._moved_bytes)
        yield PASS_SECONDS.sample(self._pass_seconds)
        yield DIRTY_RATIO.sample(self._dirty_ratio)
        yield LAST_CHECK.sample((self._runtime.clock.mono_ms() - self._checked_ms) / 1000)


def _urgency(cleanable: Cleanable) -> tuple[bool, float]:
    return cleanable.is_late, cleanable.dirty_ratio
