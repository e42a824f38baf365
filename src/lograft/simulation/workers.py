"""The Workers seam without threads: a job runs at a random instant and completes at a later one.

Other callbacks run between the call and the job, and between the job and its result. A real thread
has no other effect on the loop, provided that jobs do not access state that the loop changes."""

import asyncio
from collections.abc import Callable
from random import Random
from typing import Any, Final, TypeVar

from lograft.simulation.disk import SimulatedDisk
from lograft.simulation.loop import SimulatedLoop

T = TypeVar("T")

START_NS_MAX: Final = 200_000
#: Limit for slow disks: a job that started before the faults were cleared must not outlive the run.
JOB_NS_MAX: Final = 5_000_000_000


class SimulatedWorkers:
    def __init__(self, loop: SimulatedLoop, disk: SimulatedDisk, random: Random) -> None:
        self._loop = loop
        self._disk = disk
        self._random = random
        #: Completion of the last job of each lane.
        self._lanes: dict[str, asyncio.Future[Any]] = {}
        #: Completions of the jobs that are running.
        self._started: dict[asyncio.Future[Any], None] = {}

    async def run(self, job: Callable[[], T], *, lane: str = "") -> T:
        done: asyncio.Future[T] = self._loop.create_future()
        # The caller may be cancelled and never retrieve the exception; a thread would continue,
        # too.
        done.add_done_callback(_retrieve_exception)
        previous = self._lanes.get(lane) if lane else None
        if lane:
            self._lanes[lane] = done
        work = self._loop.create_task(self._work(job, previous, done), name=f"worker-{lane}")
        try:
            return await asyncio.shield(done)
        except asyncio.CancelledError:
            # A job that waits in its lane is removed; one that has started runs to completion.
            if done not in self._started and work.cancel():
                done.cancel()
            raise

    async def _work(
        self, job: Callable[[], T], previous: asyncio.Future[Any] | None, done: asyncio.Future[T]
    ) -> None:
        while previous is not None and not previous.done():
            await asyncio.wait([previous])
        await asyncio.sleep(self._random.randrange(START_NS_MAX) / 1e9)
        self._started[done] = None
        self._disk.take_spent_ns()
        error: Exception | None = None
        try:
            result = job()
        except Exception as raised:
            error = raised
        await asyncio.sleep(min(self._disk.take_spent_ns(), JOB_NS_MAX) / 1e9)
        del self._started[done]
        if error is not None:
            done.set_exception(error)
        else:
            done.set_result(result)


def _retrieve_exception(future: asyncio.Future[Any]) -> None:
    if not future.cancelled():
        future.exception()
