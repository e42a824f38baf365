"""Records that other threads pass to the client's event loop.

A thread that waited for the loop with each record would pay for two thread switches, thirty times
the cost of the work itself. Instead it appends the record to a queue, and the loop takes all queued
records in one iteration, in order. The queue is short: a thread that finds it full waits until it
is empty.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Callable
from typing import Final

from lograft.client.errors import BufferFull, Closed
from lograft.client.producing.deliveries import Delivery
from lograft.client.producing.interceptors import Outgoing
from lograft.client.producing.record_pipeline import RecordPipeline

LOGGER: Final = logging.getLogger(__name__)

#: Maximum length of the queue. Threads that check it at the same time may exceed it slightly.
RECORDS_MAX: Final = 2_000


class Promise:
    """The future delivery of a record from another thread. Settled in the loop, read anywhere."""

    __slots__ = ("_callbacks", "delivery", "error")

    def __init__(self) -> None:
        self.delivery: Delivery | None = None
        #: Why the record was rejected, if it was.
        self.error: Exception | None = None
        self._callbacks: list[Callable[[], None]] = []

    @property
    def is_settled(self) -> bool:
        return self.delivery is not None or self.error is not None

    def settle(self, delivery: Delivery | None, error: Exception | None = None) -> None:
        self.delivery = delivery
        self.error = error
        callbacks, self._callbacks = self._callbacks, []
        for callback in callbacks:
            callback()

    def on_settled(self, callback: Callable[[], None]) -> None:
        """Calls back when the promise is settled, or now if it is. Only in the loop."""
        if self.is_settled:
            callback()
        else:
            self._callbacks.append(callback)


class CrossThreadQueue:
    """The queue of one blocking producer. `put` is for any thread, all else for the loop."""

    def __init__(
        self,
        pipeline: RecordPipeline,
        post: Callable[[Callable[[], object]], None],
        spawn: Callable[[], None],
    ) -> None:
        """`post`: schedules a call in the loop; `spawn`: runs `drain_slowly` as a task."""
        self._pipeline = pipeline
        self._post = post
        self._spawn = spawn
        self._queue: deque[tuple[Outgoing, Promise]] = deque()
        self._is_posted = False
        self._is_closed = False
        #: The first record waits for metadata or buffer space, and all others wait behind it.
        self.is_slow = False
        self._empty = asyncio.Event()
        self._empty.set()

    # ── any thread ───────────────────────────────────────────────────────────────────────────

    @property
    def is_full(self) -> bool:
        return len(self._queue) >= RECORDS_MAX

    @property
    def is_empty(self) -> bool:
        return not self._queue

    def takes_at_once(self, record: Outgoing) -> bool:
        """Whether the loop will probably take the record in its next iteration."""
        return not (self.is_slow or self.is_full) and self._pipeline.is_known(
            record.topic, record.partition
        )

    def put(self, record: Outgoing) -> Promise:
        promise = Promise()
        self._queue.append((self._pipeline.intercept(record), promise))
        # Checked after the append: either `close` finds the record, or this thread sees that the
        # queue is closed. For the same reason the loop resets `_is_posted` before it reads.
        if self._is_closed:
            self._reject_all()
        elif not self._is_posted:
            self._is_posted = True
            try:
                self._post(self._drain)
            except RuntimeError:  # the loop has just been closed
                self._reject_all()
        return promise

    # ── the loop ─────────────────────────────────────────────────────────────────────────────

    async def wait_empty(self) -> None:
        """Waits until all records that are queued now have been taken."""
        if self._queue:
            self._empty.clear()
            await self._empty.wait()

    def close(self) -> None:
        """Rejects all queued records, and all later ones."""
        self._is_closed = True
        self._reject_all()
        self._empty.set()

    def _reject_all(self) -> None:
        # If the first record waits for metadata or space, the pipeline reports its failure.
        is_reported = self.is_slow
        while True:
            try:
                _, promise = self._queue.popleft()
            except IndexError:
                return
            error = Closed("the producer is closed")
            if not is_reported:
                self._pipeline.report_failure(error)
            is_reported = False
            promise.settle(None, error)

    def _drain(self) -> None:
        self._is_posted = False
        if self._is_closed:
            self._reject_all()
        if self.is_slow:
            return
        queue, put = self._queue, self._pipeline.put_if_known
        while queue:
            record, promise = queue[0]
            try:
                delivery = put(record)
            except BufferFull:
                delivery = None
            except Exception as error:
                queue.popleft()
                self._pipeline.report_failure(error)
                _reject(promise, error)
                continue
            if delivery is None:
                self.is_slow = True
                self._spawn()
                return
            queue.popleft()
            promise.settle(delivery)
        self._empty.set()

    async def drain_slowly(self) -> None:
        """Waits until the first record is in the buffer, then takes the others."""
        try:
            if self._queue:
                record, promise = self._queue[0]
                delivery: Delivery | None = None
                failure: Exception | None = None
                try:
                    delivery = await self._pipeline.enqueue_intercepted(record)
                except Exception as error:  # the application's partitioner may raise anything
                    failure = error
                if promise.is_settled:
                    return  # the queue was closed during the wait
                self._queue.popleft()
                if failure is None:
                    promise.settle(delivery)
                else:
                    _reject(promise, failure)
        finally:
            self.is_slow = False
        self._drain()


def _reject(promise: Promise, error: Exception) -> None:
    LOGGER.warning("a record was rejected before it was buffered: %s", error)
    promise.settle(None, error)
