"""Threads for what blocks: fsync, recovery, compaction, compression of big payloads.

A lane is one thread, so its jobs run in the order of their calls; the lane is the log dir for
fsyncs. Threads start with the first job that needs them: an idle node has one thread.

Not `concurrent.futures`: its futures can be awaited from any thread, which every fsync would pay
for (25 µs a job instead of 11).
"""

import asyncio
import threading
from collections.abc import Callable
from queue import Empty, SimpleQueue
from typing import Any, Final, NamedTuple, TypeVar

T = TypeVar("T")

#: Threads for jobs without a lane. They mostly wait for disks or run C code without the GIL.
UNORDERED_THREADS: Final = 4
#: A lane per log dir and a few more; hundreds would mean that lanes are named by mistake.
LANES_MAX: Final = 256


class ThreadWorkers:
    __slots__ = ("_closed", "_lanes", "_unordered_threads")

    def __init__(self, *, unordered_threads: int = UNORDERED_THREADS) -> None:
        self._lanes: dict[str, _Lane] = {}
        self._unordered_threads = unordered_threads
        self._closed = False

    async def run(self, job: Callable[[], T], *, lane: str = "") -> T:
        """A caller that is cancelled no longer hears of the job, but a job that has begun goes on
        to its end."""
        found = self._lanes.get(lane)
        if found is None:
            found = self._open(lane)
        loop = asyncio.get_running_loop()
        outcome: asyncio.Future[T] = loop.create_future()
        found.put(_Work(job, loop, outcome))
        return await outcome

    def close(self) -> None:
        """Blocks until every job that has begun is done; the others are dropped."""
        self._closed = True
        for lane in self._lanes.values():
            lane.close()
        self._lanes.clear()

    def _open(self, name: str) -> "_Lane":
        assert not self._closed, "a job came after the workers were closed"
        assert len(self._lanes) < LANES_MAX, name
        threads_max = 1 if name else self._unordered_threads
        lane = self._lanes[name] = _Lane(f"lograft-{name or 'worker'}", threads_max)
        return lane


class _Work(NamedTuple):
    job: Callable[[], Any]
    loop: asyncio.AbstractEventLoop
    outcome: "asyncio.Future[Any]"

    def run(self) -> None:
        result, error = None, None
        try:
            result = self.job()
        except BaseException as raised:
            error = raised
        try:
            self.loop.call_soon_threadsafe(_settle, self.outcome, result, error)
        except RuntimeError:
            # The loop has ended, and with it whoever waited.
            assert self.loop.is_closed()


def _settle(outcome: "asyncio.Future[Any]", result: object, error: BaseException | None) -> None:
    if outcome.done():
        # Whoever waited was cancelled.
        return
    if error is None:
        outcome.set_result(result)
    else:
        outcome.set_exception(error)


class _Lane:
    __slots__ = ("_name", "_threads", "_threads_max", "_work")

    def __init__(self, name: str, threads_max: int) -> None:
        self._name = name
        self._threads_max = threads_max
        self._threads: list[threading.Thread] = []
        #: None: this is the end.
        self._work: SimpleQueue[_Work | None] = SimpleQueue()

    def put(self, work: _Work) -> None:
        self._work.put(work)
        if len(self._threads) < self._threads_max:
            name = f"{self._name}_{len(self._threads)}"
            # A daemon: a process that dies of an error does not wait for a disk that hangs.
            thread = threading.Thread(target=self._serve, name=name, daemon=True)
            self._threads.append(thread)
            thread.start()

    def close(self) -> None:
        try:
            while True:
                self._work.get_nowait()
        except Empty:
            pass
        for _ in self._threads:
            self._work.put(None)
        for thread in self._threads:
            thread.join()

    def _serve(self) -> None:
        while True:
            work = self._work.get()
            if work is None:
                return
            work.run()
            # Nothing of a job stays alive while the thread waits for the next one.
            del work
