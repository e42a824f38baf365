"""Threads for what blocks: fsync, recovery, compaction, compression of big payloads.

A lane is one thread, so its jobs run in the order of their calls; the lane is the log dir for
fsyncs. Threads start with the first job that needs them: an idle node has one thread.
"""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Final, TypeVar

T = TypeVar("T")

#: Threads for jobs without a lane. They mostly wait for disks or run C code without the GIL.
UNORDERED_THREADS: Final = 4
#: A lane per log dir and a few more; hundreds would mean that lanes are named by mistake.
LANES_MAX: Final = 256


class ThreadWorkers:
    __slots__ = ("_closed", "_lanes", "_unordered_threads")

    def __init__(self, *, unordered_threads: int = UNORDERED_THREADS) -> None:
        self._lanes: dict[str, ThreadPoolExecutor] = {}
        self._unordered_threads = unordered_threads
        self._closed = False

    async def run(self, job: Callable[[], T], *, lane: str = "") -> T:
        """A caller that is cancelled no longer hears of the job, but a job that has begun goes on
        to its end."""
        return await asyncio.get_running_loop().run_in_executor(self._threads_of(lane), job)

    def close(self) -> None:
        """Blocks until every job that has begun is done."""
        self._closed = True
        for threads in self._lanes.values():
            threads.shutdown(wait=True, cancel_futures=True)
        self._lanes.clear()

    def statistics(self) -> dict[str, int]:
        return {"lanes": len(self._lanes)}

    def _threads_of(self, lane: str) -> ThreadPoolExecutor:
        threads = self._lanes.get(lane)
        if threads is None:
            assert not self._closed, "a job came after the workers were closed"
            assert len(self._lanes) < LANES_MAX, lane
            threads = ThreadPoolExecutor(
                max_workers=1 if lane else self._unordered_threads,
                thread_name_prefix=f"lograft-{lane or 'worker'}",
            )
            self._lanes[lane] = threads
        return threads
