"""Which partition records without a key go to, and what waits for whom."""

import asyncio
from uuid import UUID

from lograft.client.metadata import Partition, Topic
from lograft.client.producing.accumulator import Accumulator
from lograft.client.producing.settings import ProducerSettings
from lograft.runtime.randomness import SystemRandomness


class StandingClock:
    """Time goes on when a test says so."""

    def __init__(self) -> None:
        self.now_ms = 1_000

    def mono_ms(self) -> int:
        return self.now_ms

    def mono_ns(self) -> int:
        return self.now_ms * 1_000_000

    def wall_ms(self) -> int:
        return self.now_ms


TOPIC = Topic("t", UUID(int=1), False, tuple(Partition(index, 1, 0) for index in range(3)))


def drawn(accumulator: Accumulator) -> set[int]:
    queues = accumulator.topic("t")
    found = set()
    for _ in range(200):
        found.add(accumulator.choose(TOPIC, queues))
        queues.choice.leave()
    return found


def test_partitions_that_nothing_is_taken_from_are_left_out() -> None:
    async def scenario() -> None:
        clock = StandingClock()
        settings = ProducerSettings.read(
            {"bootstrap.servers": "h:1", "partitioner.availability.timeout.ms": 500}
        )
        accumulator = Accumulator(settings, clock, SystemRandomness())
        stuck = accumulator.topic("t").partition(1)
        accumulator.append(stuck, 0, None, b"v", ())
        assert drawn(accumulator) == {0, 1, 2}
        clock.now_ms += 1_000
        assert drawn(accumulator) == {0, 2}
        accumulator.take(stuck)
        assert drawn(accumulator) == {0, 1, 2}
        for index in range(3):
            accumulator.append(accumulator.topic("t").partition(index), 0, None, b"v", ())
        clock.now_ms += 1_000
        assert drawn(accumulator) == {0, 1, 2}, "one of them has to take the record"

    asyncio.run(scenario())


def test_without_that_setting_longer_queues_only_come_up_less_often() -> None:
    async def scenario() -> None:
        clock = StandingClock()
        settings = ProducerSettings.read({"bootstrap.servers": "h:1"})
        accumulator = Accumulator(settings, clock, SystemRandomness())
        accumulator.append(accumulator.topic("t").partition(1), 0, None, b"v", ())
        clock.now_ms += 10_000
        assert drawn(accumulator) == {0, 1, 2}

    asyncio.run(scenario())
