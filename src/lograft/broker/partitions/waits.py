"""Long polls and acknowledgements that wait, without a task or a timer per partition.

A fetch that finds too few bytes hangs one FetchWait on each of its partitions and sleeps. An
append costs nothing for them when nobody waits (one truth test), and O(waiters) otherwise.
"""

import asyncio
from collections.abc import Callable, Iterable
from typing import Protocol

from lograft.broker.errors import WaitTimedOut
from lograft.model.errors import ErrorCode, LograftError
from lograft.model.types import Offset


class LongPoll(Protocol):
    """One that waits for readable bytes; called by the partitions, on the loop."""

    def add(self, count: int) -> None:
        """`count` more bytes can be read."""

    def wake(self) -> None:
        """Look again now: the answer may have become an error, or another partition's data."""


class Waitable(Protocol):
    #: The long polls to tell about new readable bytes; a dict for its order and O(1) removal.
    fetch_waits: dict[LongPoll, None]


class FetchWait:
    """One parked fetch of any number of partitions."""

    __slots__ = ("_bytes_missing", "_future")

    def __init__(self, bytes_missing: int, future: "asyncio.Future[None]") -> None:
        self._bytes_missing = bytes_missing
        self._future = future

    def add(self, count: int) -> None:
        self._bytes_missing -= count
        if self._bytes_missing <= 0:
            self.wake()

    def wake(self) -> None:
        if not self._future.done():
            self._future.set_result(None)


async def wait_any(partitions: Iterable[Waitable], *, bytes_missing: int, wait_ms: int) -> None:
    """Until `bytes_missing` more bytes can be read from the partitions together, something about
    one of them changed, or `wait_ms` passed. The caller looks again to learn which."""
    loop = asyncio.get_running_loop()
    wait = FetchWait(bytes_missing, loop.create_future())
    hung = list(partitions)
    for partition in hung:
        partition.fetch_waits[wait] = None
    timer = loop.call_later(wait_ms / 1000, wait.wake)
    try:
        await wait._future
    finally:
        timer.cancel()
        for partition in hung:
            partition.fetch_waits.pop(wait, None)


class OffsetWaiter(Protocol):
    """Told once, by exactly one of these."""

    def on_reached(self, code: ErrorCode) -> None:
        """The offset is reached; a code says that not all is well with that."""

    def on_dismissed(self, error: LograftError) -> None:
        """It will not be reached here."""


class OffsetWaits:
    """Whoever waits until something (a commit, an fsync, a deletion) has reached an offset."""

    __slots__ = ("waits",)

    def __init__(self) -> None:
        #: Empty most of the time: a truth test is all that the hot path pays.
        self.waits: list[tuple[Offset, OffsetWaiter]] = []

    def add(self, offset: Offset, waiter: OffsetWaiter) -> None:
        self.waits.append((offset, waiter))

    def remove(self, waiter: OffsetWaiter) -> None:
        self.waits = [wait for wait in self.waits if wait[1] is not waiter]

    def release(self, reached: Offset, code: ErrorCode = ErrorCode.NONE) -> None:
        waiting = []
        released = []
        for entry in self.waits:
            if entry[0] > reached:
                waiting.append(entry)
            else:
                released.append(entry[1])
        self.waits = waiting
        for waiter in released:
            waiter.on_reached(code)

    def dismiss(self, make_error: Callable[[], LograftError]) -> None:
        waits, self.waits = self.waits, []
        for _, waiter in waits:
            waiter.on_dismissed(make_error())

    async def wait(self, offset: Offset, *, timeout_ms: int, what: str) -> ErrorCode:
        """What `release` brings; raises WaitTimedOut, or what `dismiss` brings."""
        waiter = Awaited()
        self.add(offset, waiter)
        try:
            async with asyncio.timeout(timeout_ms / 1000):
                return await waiter.future
        except TimeoutError:
            raise not_within(timeout_ms, what) from None
        finally:
            if not waiter.future.done() or waiter.future.cancelled():
                self.remove(waiter)


class Awaited:
    """An `OffsetWaiter` for a task."""

    __slots__ = ("future",)

    def __init__(self) -> None:
        self.future: asyncio.Future[ErrorCode] = asyncio.get_running_loop().create_future()

    def on_reached(self, code: ErrorCode) -> None:
        if not self.future.done():
            self.future.set_result(code)

    def on_dismissed(self, error: LograftError) -> None:
        if not self.future.done():
            self.future.set_exception(error)


def not_within(timeout_ms: int, what: str) -> WaitTimedOut:
    return WaitTimedOut(f"not {what} within {timeout_ms} ms")
