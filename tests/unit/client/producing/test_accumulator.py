"""Sticky partitions of records without a key, and the order of records that wait for space."""

import asyncio
from uuid import UUID

from hypothesis import given
from hypothesis import strategies as st

from lograft.client.errors import BufferFull
from lograft.client.metadata import Partition, Topic
from lograft.client.producing.accumulator import Accumulator
from lograft.client.producing.settings import ProducerSettings
from lograft.runtime.randomness import SystemRandomness
from tests.support.clocks import FakeClock
from tests.support.scenarios import scenario

TOPIC = Topic("t", UUID(int=1), False, tuple(Partition(index, 1, 0) for index in range(3)))


def draw_all(accumulator: Accumulator) -> set[int]:
    queues = accumulator.topic("t")
    partitions = set()
    for _ in range(200):
        partitions.add(accumulator.choose(TOPIC, queues))
        queues.sticky.reset()
    return partitions


@scenario()
async def test_partitions_with_stuck_batches_are_avoided() -> None:
    clock = FakeClock()
    settings = ProducerSettings.read(
        {"bootstrap.servers": "h:1", "partitioner.availability.timeout.ms": 500}
    )
    accumulator = Accumulator(settings, clock, SystemRandomness())
    stuck = accumulator.topic("t").partition(1)
    accumulator.append(stuck, 0, None, b"v", ())
    assert draw_all(accumulator) == {0, 1, 2}
    clock.now_ms += 1_000
    assert draw_all(accumulator) == {0, 2}
    accumulator.take(stuck)
    assert draw_all(accumulator) == {0, 1, 2}
    for index in range(3):
        accumulator.append(accumulator.topic("t").partition(index), 0, None, b"v", ())
    clock.now_ms += 1_000
    assert draw_all(accumulator) == {0, 1, 2}, "all are stuck, so all are available"


@scenario()
async def test_stuck_partitions_are_used_without_availability_timeout() -> None:
    clock = FakeClock()
    settings = ProducerSettings.read({"bootstrap.servers": "h:1"})
    accumulator = Accumulator(settings, clock, SystemRandomness())
    accumulator.append(accumulator.topic("t").partition(1), 0, None, b"v", ())
    clock.now_ms += 10_000
    assert draw_all(accumulator) == {0, 1, 2}


@given(
    st.lists(st.integers(0, 900), min_size=1, max_size=30),
    st.lists(st.integers(0, 29), max_size=3),
)
@scenario()
async def test_waiting_records_get_space_in_the_order_of_their_calls(
    sizes: list[int], impatient: list[int]
) -> None:
    settings = ProducerSettings.read(
        {"bootstrap.servers": "h:1", "buffer.memory": 1_200, "batch.size": 200}
    )
    accumulator = Accumulator(settings, FakeClock(), SystemRandomness())
    queue = accumulator.topic("t").partition(0)
    served: list[int] = []

    async def add(number: int, size: int) -> None:
        def put() -> None:
            accumulator.append(queue, 0, None, b"v" * size, ())
            served.append(number)

        try:
            put()
        except BufferFull as rejection:
            await accumulator.put_in_turn(put, rejection, deadline_ms=1 << 40)

    tasks = [asyncio.ensure_future(add(number, size)) for number, size in enumerate(sizes)]
    await asyncio.sleep(0)
    cancelled = [number for number in set(impatient) if number < len(sizes)]
    cancelled = [number for number in cancelled if tasks[number].cancel()]
    while not all(task.done() for task in tasks):
        await asyncio.sleep(0)
        if queue.batches:
            accumulator.release(accumulator.take(queue))
    assert served == [number for number in range(len(sizes)) if number not in cancelled]


@scenario()
async def test_all_waiting_records_that_fit_are_served_in_one_pass() -> None:
    """Woken one by one, they would queue again with their next record before the last is served."""
    settings = ProducerSettings.read({"bootstrap.servers": "h:1", "buffer.memory": 1_200})
    accumulator = Accumulator(settings, FakeClock(), SystemRandomness())
    queue = accumulator.topic("t").partition(0)

    def put() -> None:
        accumulator.append(queue, 0, None, b"v" * 100, ())

    async def add_twice() -> None:
        for _ in range(2):
            try:
                put()
            except BufferFull as rejection:
                await accumulator.put_in_turn(put, rejection, deadline_ms=1 << 40)

    accumulator.append(queue, 0, None, b"v" * 1_100, ())
    tasks = [asyncio.ensure_future(add_twice()) for _ in range(4)]
    await asyncio.sleep(0)
    accumulator.release(accumulator.take(queue))
    async with asyncio.timeout(60):
        await asyncio.gather(*tasks)
    assert [batch.count for batch in queue.batches] == [8]
