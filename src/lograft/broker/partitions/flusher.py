"""Group commit: one worker's job at a time fsyncs all partitions of a log dir that asked for it.

While a job runs, further requests gather; the next job serves them together. So a busy disk makes
larger groups, not a longer queue.
"""

import asyncio
from typing import TYPE_CHECKING

from lograft.model.errors import DiskFailed
from lograft.model.seams import Workers
from lograft.model.types import Offset
from lograft.storage.log import FlushPlan

if TYPE_CHECKING:
    from lograft.broker.partitions.log_directory import LogDirectory
    from lograft.broker.partitions.partition import Partition


class Flusher:
    __slots__ = ("_directory", "_requested", "_wake", "_workers")

    def __init__(self, directory: "LogDirectory", workers: Workers) -> None:
        self._directory = directory
        self._workers = workers
        #: Whether the active segment too is wanted; in the order of the requests.
        self._requested: dict[Partition, bool] = {}
        self._wake = asyncio.Event()

    def request(self, partition: "Partition") -> None:
        """Everything appended to the partition by now becomes durable soon."""
        self._requested[partition] = True
        self._wake.set()

    def request_rolled(self, partition: "Partition") -> None:
        """The same of its rolled segments. An fsync of the active one would only make the appends
        to it wait."""
        self._requested.setdefault(partition, False)
        self._wake.set()

    async def run(self) -> None:
        """Until the directory fails or the task is cancelled."""
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
                await self._workers.run(run_plans, lane=self._directory.path)
        except DiskFailed as error:
            self._directory.fail(error)
            return
        for partition, plan in plans:
            # A topic may have been deleted meanwhile: its fsync succeeded, nobody waits for it.
            if partition.log is not None and partition.is_usable:
                partition.log.mark_durable(plan)
                # The checkpoint may name a higher recovery point now.
                self._directory.changes += 1
                partition.on_durable()
