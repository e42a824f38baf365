"""Records of other threads on their way into the client's loop.

A thread that would wait for the loop with each record pays for two switches of threads, thirty
times the work itself. So it leaves the record in a queue, and the loop takes all that are there in
one turn, in their order. The queue is short: who finds it full waits until it is empty.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Callable
from typing import Final

from lograft.client.errors import BufferFull, Closed
from lograft.client.producing.deliveries import Delivery
from lograft.client.producing.intake import Intake
from lograft.client.producing.interceptors import Outgoing

LOGGER: Final = logging.getLogger(__name__)

#: Records that lie in the queue at most, threads that look at the same time aside.
RECORDS_MAX: Final = 2_000


class Promise:
    """Of the delivery of a record that another thread gave. Settled in the loop, read anywhere."""

    __slots__ = ("_callbacks", "delivery", "error")

    def __init__(self) -> None:
        self.delivery: Delivery | None = None
        #: Why there will be none.
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
        """In the loop."""
        if self.is_settled:
            callback()
        else:
            self._callbacks.append(callback)


class Handover:
    def __init__(
        self,
        intake: Intake,
        post: Callable[[Callable[[], object]], None],
        spawn: Callable[[], None],
    ) -> None:
        """`post`: runs something in the loop, soon; `spawn`: runs `drain_slowly` as a task."""
        self._intake = intake
        self._post = post
        self._spawn = spawn
        self._queue: deque[tuple[Outgoing, Promise]] = deque()
        self._is_posted = False
        self._has_ended = False
        #: The first of the queue waits for metadata or room, and all others behind it.
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
        """Whether the loop will take it in its next turn, as far as can be seen from here."""
        return not (self.is_slow or self.is_full) and self._intake.is_known(
            record.topic, record.partition
        )

    def put(self, record: Outgoing) -> Promise:
        promise = Promise()
        self._queue.append((self._intake.intercepted(record), promise))
        # Looked at after the record is in the queue: either the end finds it there, or we see the
        # end. Likewise the loop takes `_is_posted` back before it looks into the queue.
        if self._has_ended:
            self._refuse_all()
        elif not self._is_posted:
            self._is_posted = True
            try:
                self._post(self._drain)
            except RuntimeError:  # the loop has gone in this very moment
                self._refuse_all()
        return promise

    # ── the loop ─────────────────────────────────────────────────────────────────────────────

    async def wait_empty(self) -> None:
        """Until everything that is in the queue now has been taken."""
        if self._queue:
            self._empty.clear()
            await self._empty.wait()

    def end(self) -> None:
        """The client is closed: nothing is taken any more."""
        self._has_ended = True
        self._refuse_all()
        self._empty.set()

    def _refuse_all(self) -> None:
        # What becomes of the first, if it waits for metadata or room, is reported there.
        is_reported = self.is_slow
        while True:
            try:
                _, promise = self._queue.popleft()
            except IndexError:
                return
            error = Closed("the producer is closed")
            if not is_reported:
                self._intake.report_failure(error)
            is_reported = False
            promise.settle(None, error)

    def _drain(self) -> None:
        self._is_posted = False
        if self._has_ended:
            self._refuse_all()
        if self.is_slow:
            return
        queue, put = self._queue, self._intake.put_if_known
        while queue:
            record, promise = queue[0]
            try:
                delivery = put(record)
            except BufferFull:
                delivery = None
            except Exception as error:
                queue.popleft()
                self._intake.report_failure(error)
                _refuse(promise, error)
                continue
            if delivery is None:
                self.is_slow = True
                self._spawn()
                return
            queue.popleft()
            promise.settle(delivery)
        self._empty.set()

    async def drain_slowly(self) -> None:
        """Waits for what the first needs, then goes on with the others."""
        try:
            if self._queue:
                record, promise = self._queue[0]
                delivery: Delivery | None = None
                failure: Exception | None = None
                try:
                    delivery = await self._intake.enqueue_intercepted(record)
                except Exception as error:  # a program's own partitioner may raise anything
                    failure = error
                if promise.is_settled:
                    return  # the end has come meanwhile
                self._queue.popleft()
                if failure is None:
                    promise.settle(delivery)
                else:
                    _refuse(promise, failure)
        finally:
            self.is_slow = False
        self._drain()


def _refuse(promise: Promise, error: Exception) -> None:
    LOGGER.warning("a record was not taken: %s", error)
    promise.settle(None, error)
