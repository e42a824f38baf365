"""Group commit: one worker job at a time fsyncs all partitions of a log dir with a request.

While a job runs, further requests accumulate, and the next job serves them together. So a busy disk
leads to larger groups instead of a longer queue.
"""

import asyncio
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from lograft.model.errors import DiskFailed
from lograft.model.metrics import LATENCY_BUCKETS, Counter, Histogram, Sample
from lograft.model.seams import Clock, Workers
from lograft.model.types import Offset
from lograft.storage.log import FlushPlan

if TYPE_CHECKING:
    from lograft.broker.partitions.log_directory import LogDirectory
    from lograft.broker.partitions.partition import Partition

FLUSH_SECONDS: Final = Histogram(
    "lograft_log_flush_seconds",
    "Duration of one group fsync of all logs in a log dir with a pending flush request.",
    bounds=LATENCY_BUCKETS,
)
FLUSHED_LOGS: Final = Counter("lograft_log_flushes_total", "Logs that were fsynced.")


class Flusher:
    __slots__ = (
        "_clock",
        "_directory",
        "_flush_seconds",
        "_flushed_logs",
        "_requested",
        "_wake",
        "_workers",
    )

    def __init__(self, directory: "LogDirectory", workers: Workers, clock: Clock) -> None:
        self._directory = directory
        self._workers = workers
        #: Requests in their order; the value tells whether the active segment is included.
        self._requested: dict[Partition, bool] = {}
        self._wake = asyncio.Event()
        self._clock = clock
        self._flush_seconds = FLUSH_SECONDS.make_recorder()
        self._flushed_logs = 0

    def request(self, partition: "Partition") -> None:
        """Requests an fsync of everything appended to the partition so far."""
        self._requested[partition] = True
        self._wake.set()

    def request_rolled(self, partition: "Partition") -> None:
        """Requests an fsync of rolled segments only. An fsync of the active segment would delay
        appends to it."""
        self._requested.setdefault(partition, False)
        self._wake.set()

    async def run(self) -> None:
        """Runs until the directory fails or the task is cancelled."""
        while not self._directory.offline:
            await self._wake.wait()
            self._wake.clear()
            await self.flush_requested()

    async def flush_requested(self) -> None:
        requested, self._requested = self._requested, {}
        if self._directory.offline:
            return
        plans: list[tuple[Partition, FlushPlan]] = []

        def run_plans() -> None:
            for _, plan in plans:
                plan.run()

        try:
            for partition, is_all in requested.items():
                log = partition.log
                if log is not None and partition.is_usable:
                    plan = log.flush_plan(None if is_all else Offset(log.active.base_offset))
                    if not plan.is_empty:
                        plans.append((partition, plan))
            if plans:
                began_ns = self._clock.mono_ns()
                await self._workers.run(run_plans, lane=self._directory.path)
                self._flush_seconds.observe((self._clock.mono_ns() - began_ns) / 1e9)
                self._flushed_logs += len(plans)
        except DiskFailed as error:
            self._directory.fail(error)
            return
        for partition, plan in plans:
            # The topic may have been deleted in the meantime: nothing waits for its fsync.
            if partition.log is not None and partition.is_usable:
                partition.log.mark_durable(plan)
                # The checkpoint can have a higher recovery point now.
                self._directory.changes += 1
                partition.on_durable()

    def collect_samples(self) -> Iterator[Sample]:
        yield FLUSH_SECONDS.sample(self._flush_seconds)
        yield FLUSHED_LOGS.sample(self._flushed_logs)
