"""Waits of long polls and acknowledgements, without a task or a timer per partition.

A fetch that finds too few bytes registers one FetchWait with each of its partitions. Without waits
an append only has the cost of one truth test, otherwise O(waits).
"""

import asyncio
from collections.abc import Callable, Iterable, Iterator
from typing import Final, Protocol

from lograft.broker.errors import WaitTimedOut
from lograft.model.errors import ErrorCode, LograftError
from lograft.model.metrics import Counter, Gauge, Sample, enum_label
from lograft.model.types import Offset

DELAYED: Final = Gauge(
    "lograft_delayed_requests",
    "Requests that wait for a commit, an fsync, records or a deletion, counted for each partition.",
    enum_label("operation", ("produce", "fetch", "delete_records")),
)
EXPIRED: Final = Counter(
    "lograft_delayed_requests_expired_total",
    "Delayed requests that expired.",
    enum_label("operation", ("produce", "fetch", "follower_fetch")),
)


class Expirations:
    """The waits that ended with their time limit, by operation."""

    __slots__ = ("fetches", "follower_fetches", "produces")

    def __init__(self) -> None:
        self.produces = 0
        self.fetches = 0
        self.follower_fetches = 0

    def collect_samples(self) -> Iterator[Sample]:
        yield EXPIRED.sample(self.produces, "produce")
        yield EXPIRED.sample(self.fetches, "fetch")
        yield EXPIRED.sample(self.follower_fetches, "follower_fetch")


class LongPoll(Protocol):
    """A fetch that waits for readable bytes; the partitions call it on the event loop."""

    def add(self, count: int) -> None:
        """`count` more bytes can be read."""

    def wake(self) -> None:
        """Checks again now: the result may be an error, or data of another partition."""


class Waitable(Protocol):
    #: Long polls to notify of readable bytes; a dict for its order and O(1) removal.
    fetch_waits: dict[LongPoll, None]


class FetchWait:
    """A delayed fetch of any number of partitions."""

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
    """Waits until `bytes_missing` more bytes can be read from the partitions in total, one of them
    changed its role or state, or `wait_ms` expired. The caller checks again."""
    loop = asyncio.get_running_loop()
    wait = FetchWait(bytes_missing, loop.create_future())
    waiting_on = list(partitions)
    for partition in waiting_on:
        partition.fetch_waits[wait] = None
    timer = loop.call_later(wait_ms / 1000, wait.wake)
    try:
        await wait._future
    finally:
        timer.cancel()
        for partition in waiting_on:
            partition.fetch_waits.pop(wait, None)


class OffsetWaiter(Protocol):
    """Exactly one of the methods is called, once."""

    def on_reached(self, code: ErrorCode) -> None:
        """The offset was reached; `code` is the result, which may be an error."""

    def on_dismissed(self, error: LograftError) -> None:
        """The offset will not be reached on this replica."""


class OffsetWaits:
    """Waits until an operation (commit, fsync, deletion) has reached an offset."""

    __slots__ = ("waits",)

    def __init__(self) -> None:
        #: Mostly empty, so that the hot path only has the cost of a truth test.
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
        """Waits and returns the code of `release`. Raises WaitTimedOut, or the error of
        `dismiss`."""
        waiter = FutureWaiter()
        self.add(offset, waiter)
        try:
            async with asyncio.timeout(timeout_ms / 1000):
                return await waiter.future
        except TimeoutError:
            raise wait_timeout_error(timeout_ms, what) from None
        finally:
            if not waiter.future.done() or waiter.future.cancelled():
                self.remove(waiter)


class FutureWaiter:
    """An `OffsetWaiter` with a future for a task."""

    __slots__ = ("future",)

    def __init__(self) -> None:
        self.future: asyncio.Future[ErrorCode] = asyncio.get_running_loop().create_future()

    def on_reached(self, code: ErrorCode) -> None:
        if not self.future.done():
            self.future.set_result(code)

    def on_dismissed(self, error: LograftError) -> None:
        if not self.future.done():
            self.future.set_exception(error)


def wait_timeout_error(timeout_ms: int, what: str) -> WaitTimedOut:
    return WaitTimedOut(f"not {what} within {timeout_ms} ms")
