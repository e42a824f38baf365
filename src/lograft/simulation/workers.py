"""The Workers seam without threads: a job runs at one drawn instant and is done at a later one.

Between the call and the job, and between the job and its result, other callbacks run: that is
all a real thread could show the loop, as long as jobs touch nothing that the loop changes.
"""

import asyncio
from collections.abc import Callable
from random import Random
from typing import Any, Final, TypeVar

from lograft.simulation.disk import SimulatedDisk
from lograft.simulation.loop import SimulatedLoop

T = TypeVar("T")

START_NS_MAX: Final = 200_000
#: However slow the disk: a job that began before it was mended must not outlive the run.
JOB_NS_MAX: Final = 5_000_000_000


class SimulatedWorkers:
    def __init__(self, loop: SimulatedLoop, disk: SimulatedDisk, random: Random) -> None:
        self._loop = loop
        self._disk = disk
        self._random = random
        #: The end of the last job of each lane.
        self._lanes: dict[str, asyncio.Future[Any]] = {}
        #: Ends of the jobs that run now.
        self._begun: dict[asyncio.Future[Any], None] = {}

    async def run(self, job: Callable[[], T], *, lane: str = "") -> T:
        done: asyncio.Future[T] = self._loop.create_future()
        # A caller may be cancelled and never look: a thread would go on all the same.
        done.add_done_callback(_look_at)
        previous = self._lanes.get(lane) if lane else None
        if lane:
            self._lanes[lane] = done
        work = self._loop.create_task(self._work(job, previous, done), name=f"worker-{lane}")
        try:
            return await asyncio.shield(done)
        except asyncio.CancelledError:
            # A job that waits in its lane is taken out; one that has begun goes on to its end.
            if done not in self._begun and work.cancel():
                done.cancel()
            raise

    async def _work(
        self, job: Callable[[], T], previous: asyncio.Future[Any] | None, done: asyncio.Future[T]
    ) -> None:
        while previous is not None and not previous.done():
            await asyncio.wait([previous])
        await asyncio.sleep(self._random.randrange(START_NS_MAX) / 1e9)
        self._begun[done] = None
        self._disk.take_spent_ns()
        error: Exception | None = None
        try:
            result = job()
        except Exception as raised:
            error = raised
        await asyncio.sleep(min(self._disk.take_spent_ns(), JOB_NS_MAX) / 1e9)
        del self._begun[done]
        if error is not None:
            done.set_exception(error)
        else:
            done.set_result(result)


def _look_at(future: asyncio.Future[Any]) -> None:
    if not future.cancelled():
        future.exception()
