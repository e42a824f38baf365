"""Which partition records without a key go to, and what waits for whom."""

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


def drawn(accumulator: Accumulator) -> set[int]:
    queues = accumulator.topic("t")
    found = set()
    for _ in range(200):
        found.add(accumulator.choose(TOPIC, queues))
        queues.choice.leave()
    return found


@scenario()
async def test_partitions_that_nothing_is_taken_from_are_left_out() -> None:
    clock = FakeClock()
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


@scenario()
async def test_without_that_setting_longer_queues_only_come_up_less_often() -> None:
    clock = FakeClock()
    settings = ProducerSettings.read({"bootstrap.servers": "h:1"})
    accumulator = Accumulator(settings, clock, SystemRandomness())
    accumulator.append(accumulator.topic("t").partition(1), 0, None, b"v", ())
    clock.now_ms += 10_000
    assert drawn(accumulator) == {0, 1, 2}


@given(
    st.lists(st.integers(0, 900), min_size=1, max_size=30),
    st.lists(st.integers(0, 29), max_size=3),
)
@scenario()
async def test_records_get_room_in_the_order_in_which_they_came(
    sizes: list[int], impatient: list[int]
) -> None:
    settings = ProducerSettings.read(
        {"bootstrap.servers": "h:1", "buffer.memory": 1_200, "batch.size": 200}
    )
    accumulator = Accumulator(settings, FakeClock(), SystemRandomness())
    queue = accumulator.topic("t").partition(0)
    served: list[int] = []

    async def come(number: int, size: int) -> None:
        def put() -> None:
            accumulator.append(queue, 0, None, b"v" * size, ())
            served.append(number)

        try:
            put()
        except BufferFull as refused:
            await accumulator.put_in_turn(put, refused, deadline_ms=1 << 40)

    tasks = [asyncio.ensure_future(come(*one)) for one in enumerate(sizes)]
    await asyncio.sleep(0)
    gone = [number for number in set(impatient) if number < len(sizes)]
    gone = [number for number in gone if tasks[number].cancel()]
    while not all(task.done() for task in tasks):
        await asyncio.sleep(0)
        if queue.batches:
            accumulator.release(accumulator.take(queue))
    assert served == [number for number in range(len(sizes)) if number not in gone]


@scenario()
async def test_all_whom_the_room_suffices_for_are_served_in_one_go() -> None:
    """Each for itself, they would be back in line with their next record before the last is out."""
    settings = ProducerSettings.read({"bootstrap.servers": "h:1", "buffer.memory": 1_200})
    accumulator = Accumulator(settings, FakeClock(), SystemRandomness())
    queue = accumulator.topic("t").partition(0)

    def put() -> None:
        accumulator.append(queue, 0, None, b"v" * 100, ())

    async def come_twice() -> None:
        for _ in range(2):
            try:
                put()
            except BufferFull as refused:
                await accumulator.put_in_turn(put, refused, deadline_ms=1 << 40)

    accumulator.append(queue, 0, None, b"v" * 1_100, ())
    tasks = [asyncio.ensure_future(come_twice()) for _ in range(4)]
    await asyncio.sleep(0)
    accumulator.release(accumulator.take(queue))
    async with asyncio.timeout(60):
        await asyncio.gather(*tasks)
    assert [batch.count for batch in queue.batches] == [8]
