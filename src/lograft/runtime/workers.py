"""Threads for blocking calls: fsync, recovery, compaction, compression of large payloads.

A lane is one thread, so its jobs run in the order of their calls; fsyncs use one lane per log dir.
Threads are started with the first job that needs them: an idle node has one thread.

`concurrent.futures` is not used: its futures can be awaited from any thread, which would slow down
every fsync (25 µs per job instead of 11).
"""

import asyncio
import threading
from collections.abc import Callable
from queue import Empty, SimpleQueue
from typing import Any, Final, NamedTuple, TypeVar

T = TypeVar("T")

#: Threads for jobs without a lane. They mostly wait for disks or run C code without the GIL.
UNORDERED_THREADS: Final = 4
#: One lane per log dir and a few more; hundreds would indicate a wrong use of names.
LANES_MAX: Final = 256


class ThreadWorkers:
    __slots__ = ("_closed", "_lanes", "_unordered_threads")

    def __init__(self, *, unordered_threads: int = UNORDERED_THREADS) -> None:
        self._lanes: dict[str, _Lane] = {}
        self._unordered_threads = unordered_threads
        self._closed = False

    async def run(self, job: Callable[[], T], *, lane: str = "") -> T:
        """Runs a job in a thread and returns its result. If the caller is cancelled, a job that has
        started still runs to its end."""
        lane_found = self._lanes.get(lane)
        if lane_found is None:
            lane_found = self._open(lane)
        loop = asyncio.get_running_loop()
        outcome: asyncio.Future[T] = loop.create_future()
        lane_found.put(_Work(job, loop, outcome))
        return await outcome

    def close(self) -> None:
        """Blocks until all jobs that have started are done; the others are dropped."""
        self._closed = True
        for lane in self._lanes.values():
            lane.close()
        self._lanes.clear()

    def _open(self, name: str) -> "_Lane":
        assert not self._closed, "a job was submitted after the workers were closed"
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
            # The loop has ended, so nothing waits for the result.
            assert self.loop.is_closed()


def _settle(outcome: "asyncio.Future[Any]", result: object, error: BaseException | None) -> None:
    if outcome.done():
        # The waiting coroutine was cancelled.
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
        #: None ends the thread.
        self._work: SimpleQueue[_Work | None] = SimpleQueue()

    def put(self, work: _Work) -> None:
        self._work.put(work)
        if len(self._threads) < self._threads_max:
            name = f"{self._name}_{len(self._threads)}"
            # A daemon, so that a process that ends with an error does not wait for a hanging disk.
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
            # Keeps no reference to a job while the thread waits for the next one.
            del work
