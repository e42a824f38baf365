"""Threads: order within a lane, independence between lanes, errors to the caller."""

import asyncio
import threading
from collections.abc import Iterator
from functools import partial

import pytest

from lograft.runtime.workers import ThreadWorkers
from tests.support.scenarios import scenario


@pytest.fixture
def workers() -> Iterator[ThreadWorkers]:
    threads = ThreadWorkers()
    yield threads
    threads.close()


def test_threads_start_with_the_first_job(workers: ThreadWorkers) -> None:
    before = threading.active_count()
    asyncio.run(workers.run(int))
    assert threading.active_count() == before + 1
    other = ThreadWorkers()
    assert threading.active_count() == before + 1
    other.close()


def test_jobs_of_a_lane_run_in_order(workers: ThreadWorkers) -> None:
    done: list[int] = []
    names: set[str] = set()

    def job(number: int) -> int:
        done.append(number)
        names.add(threading.current_thread().name)
        return number

    async def main() -> list[int]:
        return await asyncio.gather(
            *(workers.run(partial(job, number), lane="dir") for number in range(200))
        )

    assert asyncio.run(main()) == list(range(200))
    assert done == list(range(200))
    assert len(names) == 1


def test_lanes_do_not_wait_for_each_other(workers: ThreadWorkers) -> None:
    gate = threading.Event()

    async def main() -> str:
        blocked = asyncio.ensure_future(workers.run(gate.wait, lane="slow"))
        response = await workers.run(lambda: "fast", lane="fast")
        gate.set()
        await blocked
        return response

    assert asyncio.run(main()) == "fast"


@scenario()
async def test_jobs_without_a_lane_overlap(workers: ThreadWorkers) -> None:
    both = threading.Barrier(2, timeout=20)

    await asyncio.gather(workers.run(both.wait), workers.run(both.wait))


def test_error_of_a_job_is_raised_to_its_caller(workers: ThreadWorkers) -> None:
    def fail() -> None:
        raise OSError(5, "Input/output error")

    async def main() -> None:
        await workers.run(fail, lane="dir")

    with pytest.raises(OSError, match="Input/output"):
        asyncio.run(main())


def test_close_waits_for_the_running_job() -> None:
    workers = ThreadWorkers()
    begun, gate = threading.Event(), threading.Event()
    done: list[bool] = []

    def job() -> None:
        begun.set()
        gate.wait(20)
        done.append(True)

    async def main() -> None:
        task = asyncio.ensure_future(workers.run(job, lane="dir"))
        while not begun.is_set():
            await asyncio.sleep(0)
        task.cancel()
        threading.Timer(0.01, gate.set).start()
        workers.close()

    asyncio.run(main())
    assert done == [True]
