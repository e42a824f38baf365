"""The fate of records that were sent: a batch and places in it, so that a thousand records share
one future."""

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
    """The fate of one record: await it, or ask it.

    delivery = await producer.enqueue("topic", b"value")
    delivery.add_done_callback(lambda one: print(one.result().offset))
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
        """Until its fate is known, whatever it is."""
        if not self.batch.is_done:
            await self.batch.wait()

    def result(self) -> Acknowledged:
        """Raises what the record failed with, or WrongUse while nobody knows."""
        if not self.batch.is_done:
            raise WrongUse("the record is still on its way: await the delivery, or ask done()")
        return self.batch.outcome(self.index, self._acks)

    def add_done_callback(self, callback: "Callable[[Delivery], object]") -> None:
        """Called with this delivery when its fate is known, at once if it is."""
        self.batch.on_done(lambda: tell(callback, self))


def tell(callback: Callable[[D], object], delivery: D) -> None:
    """Whatever a program's callback raises is reported and breaks nothing; CancelledError, which
    asking a cancelled future raises, is no Exception."""
    try:
        callback(delivery)
    except (Exception, CancelledError):
        LOGGER.exception("callback %r of a delivery failed", callback)


class Deliveries(Sequence[Delivery]):
    """Of records that were sent together, in their order. A delivery is made when it is asked for.

    deliveries = await producer.send_many("topic", [b"one", b"two"])
    acknowledged = await deliveries         # of all, or the first failure
    """

    __slots__ = ("_acks", "_batches", "_count", "_ends", "_starts")

    def __init__(self, acks: int) -> None:
        self._acks = acks
        #: Runs of records: their batches, where they begin there, and where they end here.
        self._batches: list[Batch] = []
        self._starts: list[int] = []
        self._ends: list[int] = []
        self._count = 0

    def add(self, batch: Batch, start: int, count: int) -> None:
        """More records: those from `start` on in a batch."""
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
            return [self[one] for one in range(*index.indices(self._count))]
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
        """Until the fate of all is known, whatever it is."""
        for batch in self._batches:
            if not batch.is_done:
                await batch.wait()

    def done(self) -> bool:
        return all(batch.is_done for batch in self._batches)
