"""WorkScheduler: one for any number of calls, another when the time is up, none after the end."""

import asyncio

import pytest

from lograft.client.work_scheduler import NO_DEADLINE_MS, WorkScheduler
from tests.support.scenarios import scenario


def unexpected(error: BaseException) -> None:
    pytest.fail(repr(error))


@scenario()
async def test_many_calls_are_one_turn() -> None:
    taken: list[int] = []

    def work() -> int:
        taken.append(1)
        return NO_DEADLINE_MS

    scheduler = WorkScheduler(work, on_failure=unexpected)
    for _ in range(3):
        scheduler.wake()
    assert not taken
    await asyncio.sleep(0)
    assert taken == [1]
    scheduler.wake()
    scheduler.stop()
    scheduler.wake()
    await asyncio.sleep(0)
    assert taken == [1]


@scenario()
async def test_a_turn_may_be_taken_at_once_but_not_inside_another() -> None:
    taken: list[str] = []

    def work() -> int:
        taken.append("begins")
        if len(taken) == 1:
            scheduler.run_now()
        taken.append("ends")
        return NO_DEADLINE_MS

    scheduler = WorkScheduler(work, on_failure=unexpected)
    scheduler.run_now()
    assert taken == ["begins", "ends"]
    scheduler.run_now()  # one is to come
    assert taken == ["begins", "ends"]
    await asyncio.sleep(0)
    assert taken == ["begins", "ends"] * 2
    scheduler.run_now()
    assert taken == ["begins", "ends"] * 3
    scheduler.stop()
    scheduler.run_now()
    assert taken == ["begins", "ends"] * 3


@scenario()
async def test_time_brings_a_turn_and_an_earlier_time_an_earlier_one() -> None:
    waits = [60_000, 10, NO_DEADLINE_MS]
    done = asyncio.Event()

    def work() -> int:
        wait_ms = waits.pop(0)
        if not waits:
            done.set()
        return wait_ms

    scheduler = WorkScheduler(work, on_failure=unexpected)
    scheduler.wake()
    await asyncio.sleep(0)
    scheduler.wake()
    await asyncio.wait_for(done.wait(), 60)
    scheduler.stop()


@scenario()
async def test_a_failure_is_told_and_ends_the_turns() -> None:
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(lambda _loop, _context: None)
    failures: list[BaseException] = []

    def work() -> int:
        raise ZeroDivisionError

    scheduler = WorkScheduler(work, on_failure=failures.append)
    scheduler.wake()
    await asyncio.sleep(0)
    scheduler.wake()
    await asyncio.sleep(0)
    assert [type(failure) for failure in failures] == [ZeroDivisionError]
