"""Records that wait for free space in the buffer, in the order of their calls.

The first waiter is served first, even if the space would suffice for a later one: a small record
that took the space for which a large one waits would overtake it, possibly in the same partition.
All waiters for which there is space are served in one pass: if each had to wake up first, and
queued again with its next record, a busy producer would never drain the queue.
"""

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Any, TypeVar

from lograft.client.errors import BufferFull, TimedOut
from lograft.client.producing.settings import ProducerSettings

T = TypeVar("T")


class _Waiter:
    __slots__ = ("bytes_needed", "error", "is_done", "put", "result")

    def __init__(self, put: Callable[[], Any], bytes_needed: int) -> None:
        self.put = put
        self.bytes_needed = bytes_needed
        self.is_done = asyncio.Event()
        self.result: Any = None
        self.error: Exception | None = None


class BufferQueue:
    """The queue of one producer's `Accumulator`."""

    def __init__(self, settings: ProducerSettings) -> None:
        self._settings = settings
        self._waiters: deque[_Waiter] = deque()
        #: The first waiter is adding its record. For all other callers the buffer is full while
        #: anything waits.
        self.is_serving = False

    def __len__(self) -> int:
        return len(self._waiters)

    async def wait(self, put: Callable[[], T], rejection: BufferFull, *, timeout_ms: int) -> T:
        """Waits until there is space, then calls `put`, which has raised `rejection`, again and
        returns its result. Raises TimedOut."""
        waiter = _Waiter(put, rejection.bytes_needed)
        self._waiters.append(waiter)
        try:
            async with asyncio.timeout(max(timeout_ms, 0) / 1000):
                await waiter.is_done.wait()
        except TimeoutError:
            if not waiter.is_done.is_set():
                raise TimedOut(
                    f"no space in the buffer (buffer.memory={self._settings.buffer_memory}) within"
                    f" max.block.ms={self._settings.max_block_ms}: the brokers are unavailable or"
                    " slower than this producer"
                ) from None
        finally:
            if not waiter.is_done.is_set():
                self._waiters.remove(waiter)
        if waiter.error is not None:
            raise waiter.error
        result: T = waiter.result
        return result

    def serve(self, free_bytes: Callable[[], int]) -> None:
        """Adds the records of waiters, in order, while there is space for the first."""
        waiters = self._waiters
        while waiters and waiters[0].bytes_needed <= free_bytes():
            waiter = waiters[0]
            self.is_serving = True
            try:
                waiter.result = waiter.put()
            except Exception as error:
                if isinstance(error, BufferFull) and error.bytes_needed > free_bytes():
                    # The serializer returned more bytes than the first time.
                    waiter.bytes_needed = error.bytes_needed
                    return
                waiter.error = error
            finally:
                self.is_serving = False
            waiters.popleft()
            waiter.is_done.set()
