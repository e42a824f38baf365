"""Deliveries: the outcome of records that were sent. A delivery is a batch and an index in it, so
that a thousand records share one future."""

import logging
from asyncio import CancelledError
from bisect import bisect_right
from collections.abc import Callable, Generator, Iterator, Sequence
from typing import Any, Final, TypeVar, overload

from lograft.client.errors import WrongUse
from lograft.client.producing.batches import Batch
from lograft.client.types import Acknowledged

LOGGER: Final = logging.getLogger(__name__)

D = TypeVar("D")


class Delivery:
    """The outcome of one record: await it, or poll it with `done` and `result`.

    delivery = await producer.enqueue("topic", b"value")
    delivery.add_done_callback(lambda delivery: print(delivery.result().offset))
    await delivery
    """

    __slots__ = ("_acks", "batch", "index")

    def __init__(self, batch: Batch, index: int, acks: int) -> None:
        self.batch = batch
        self.index = index
        self._acks = acks

    def __await__(self) -> Generator[Any, None, Acknowledged]:
        if not self.batch.is_done:
            yield from self.batch.wait()
        return self.result()

    def done(self) -> bool:
        return self.batch.is_done

    async def wait(self) -> None:
        """Waits until the record is acknowledged or has failed. Does not raise its failure."""
        if not self.batch.is_done:
            await self.batch.wait()

    def result(self) -> Acknowledged:
        """Returns the acknowledgement. Raises the failure of the record, or WrongUse if it is still
        pending."""
        if not self.batch.is_done:
            raise WrongUse("the record is still pending: await the delivery, or check done()")
        return self.batch.outcome(self.index, self._acks)

    def add_done_callback(self, callback: "Callable[[Delivery], object]") -> None:
        """Calls `callback` with this delivery when it is done, immediately if it is."""
        self.batch.on_done(lambda: run_callback(callback, self))


def run_callback(callback: Callable[[D], object], delivery: D) -> None:
    """Calls an application's callback and logs what it raises. CancelledError, raised by the result
    of a cancelled future, is not an Exception."""
    try:
        callback(delivery)
    except (Exception, CancelledError):
        LOGGER.exception("delivery callback %r failed", callback)


class Deliveries(Sequence[Delivery]):
    """The deliveries of records that were sent together, in order. Each `Delivery` is created when
    it is accessed.

    deliveries = await producer.send_many("topic", [b"one", b"two"])
    acknowledged = await deliveries         # of all records, or raises the first failure
    """

    __slots__ = ("_acks", "_batches", "_count", "_ends", "_starts")

    def __init__(self, acks: int) -> None:
        self._acks = acks
        #: Runs of records: the batch, the index of the first in the batch, the end index here.
        self._batches: list[Batch] = []
        self._starts: list[int] = []
        self._ends: list[int] = []
        self._count = 0

    def add(self, batch: Batch, start: int, count: int) -> None:
        """Adds `count` records of a batch, from index `start` on."""
        self._count += count
        self._batches.append(batch)
        self._starts.append(start)
        self._ends.append(self._count)

    def add_one(self, delivery: Delivery) -> None:
        self.add(delivery.batch, delivery.index, 1)

    def __len__(self) -> int:
        return self._count

    @overload
    def __getitem__(self, index: int) -> Delivery: ...
    @overload
    def __getitem__(self, index: slice) -> list[Delivery]: ...
    def __getitem__(self, index: int | slice) -> Delivery | list[Delivery]:
        if isinstance(index, slice):
            return [self[position] for position in range(*index.indices(self._count))]
        if index < 0:
            index += self._count
        if not 0 <= index < self._count:
            raise IndexError(index)
        run = bisect_right(self._ends, index)
        first = self._ends[run - 1] if run else 0
        return Delivery(self._batches[run], self._starts[run] + index - first, self._acks)

    def __iter__(self) -> Iterator[Delivery]:
        first = 0
        for batch, start, end in zip(self._batches, self._starts, self._ends, strict=True):
            for index in range(start, start + end - first):
                yield Delivery(batch, index, self._acks)
            first = end

    def __await__(self) -> Generator[Any, None, list[Acknowledged]]:
        yield from self.wait().__await__()
        return [delivery.result() for delivery in self]

    async def wait(self) -> None:
        """Waits until all records are acknowledged or have failed. Does not raise failures."""
        for batch in self._batches:
            if not batch.is_done:
                await batch.wait()

    def done(self) -> bool:
        return all(batch.is_done for batch in self._batches)
