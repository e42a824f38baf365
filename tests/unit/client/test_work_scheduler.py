"""WorkScheduler: one run for many wakes, runs by timer, no run after stop."""

import asyncio

import pytest

from lograft.client.work_scheduler import NO_DEADLINE_MS, WorkScheduler
from tests.support.scenarios import scenario


def unexpected(error: BaseException) -> None:
    pytest.fail(repr(error))


@scenario()
async def test_many_wakes_cause_one_run() -> None:
    runs: list[int] = []

    def work() -> int:
        runs.append(1)
        return NO_DEADLINE_MS

    scheduler = WorkScheduler(work, on_failure=unexpected)
    for _ in range(3):
        scheduler.wake()
    assert not runs
    await asyncio.sleep(0)
    assert runs == [1]
    scheduler.wake()
    scheduler.stop()
    scheduler.wake()
    await asyncio.sleep(0)
    assert runs == [1]


@scenario()
async def test_run_now_runs_immediately_but_not_inside_a_run() -> None:
    runs: list[str] = []

    def work() -> int:
        runs.append("start")
        if len(runs) == 1:
            scheduler.run_now()
        runs.append("end")
        return NO_DEADLINE_MS

    scheduler = WorkScheduler(work, on_failure=unexpected)
    scheduler.run_now()
    assert runs == ["start", "end"]
    scheduler.run_now()  # a run is pending
    assert runs == ["start", "end"]
    await asyncio.sleep(0)
    assert runs == ["start", "end"] * 2
    scheduler.run_now()
    assert runs == ["start", "end"] * 3
    scheduler.stop()
    scheduler.run_now()
    assert runs == ["start", "end"] * 3


@scenario()
async def test_timer_causes_a_run_and_earlier_deadline_replaces_it() -> None:
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
async def test_failure_is_reported_and_stops_the_scheduler() -> None:
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
