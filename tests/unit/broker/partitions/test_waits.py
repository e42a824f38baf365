import asyncio

from lograft.broker.partitions.waits import LongPoll, wait_any
from lograft.simulation.loop import SimulatedLoop


class Place:
    def __init__(self) -> None:
        self.fetch_waits: dict[LongPoll, None] = {}

    def add(self, count: int) -> None:
        for wait in list(self.fetch_waits):
            wait.add(count)


def test_wakes_when_the_partitions_together_have_enough() -> None:
    loop = SimulatedLoop(1)
    first, second = Place(), Place()

    async def main() -> float:
        poll = asyncio.ensure_future(wait_any([first, second], bytes_missing=10, wait_ms=5000))
        await asyncio.sleep(1)
        first.add(6)
        await asyncio.sleep(1)
        assert not poll.done()
        second.add(4)
        await poll
        return loop.time()

    assert 2 <= loop.run_until_complete(main()) < 2.1
    assert not first.fetch_waits
    assert not second.fetch_waits


def test_gives_up_in_time() -> None:
    loop = SimulatedLoop(1)
    place = Place()

    async def main() -> float:
        await wait_any([place], bytes_missing=1, wait_ms=700)
        return loop.time()

    assert 0.7 <= loop.run_until_complete(main()) < 0.8
    assert not place.fetch_waits


def test_a_cancelled_poll_leaves_nothing_behind() -> None:
    loop = SimulatedLoop(1)
    place = Place()

    async def main() -> None:
        poll = asyncio.ensure_future(wait_any([place], bytes_missing=1, wait_ms=60_000))
        await asyncio.sleep(0.1)
        assert place.fetch_waits
        poll.cancel()
        await asyncio.gather(poll, return_exceptions=True)

    loop.run_until_complete(main())
    assert not place.fetch_waits
    place.add(5)  # and waking it afterwards is harmless
