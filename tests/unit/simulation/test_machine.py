import asyncio
from functools import partial
from typing import cast

import pytest

from lograft.simulation.loop import SimulatedLoop
from lograft.simulation.machine import Life, Machine
from lograft.simulation.network import Network
from lograft.simulation.workers import SimulatedWorkers


def new_machine(seed: int = 1) -> Machine:
    loop = SimulatedLoop(seed)
    return Machine(loop, Network(loop), "node")


def test_jobs_without_a_lane_run_in_any_order() -> None:
    orders = set()
    for seed in range(20):
        machine = new_machine(seed)
        life = machine.boot()
        order: list[int] = []

        async def main(life: Life = life, order: list[int] = order) -> None:
            workers = life.runtime.workers
            await asyncio.gather(*(workers.run(partial(order.append, n)) for n in range(3)))

        machine.loop.run_until_complete(main())
        orders.add(tuple(order))
        machine.loop.close()
    assert len(orders) > 3


def test_jobs_of_a_lane_run_in_order() -> None:
    for seed in range(20):
        machine = new_machine(seed)
        life = machine.boot()
        order: list[int] = []

        async def main(life: Life = life, order: list[int] = order) -> None:
            waiting = []
            workers = cast(SimulatedWorkers, life.runtime.workers)
            for number in range(5):
                job = partial(order.append, number)
                waiting.append(life.run(workers.run(job, lane="a"), name="job"))
                await asyncio.sleep(0.00001)
            await asyncio.gather(*waiting)

        machine.loop.run_until_complete(main())
        assert order == [0, 1, 2, 3, 4]
        machine.loop.close()


def test_failed_job_raises_only_in_its_caller() -> None:
    machine = new_machine()
    life = machine.boot()

    def failing() -> None:
        raise OSError("no luck")

    async def main() -> None:
        with pytest.raises(OSError, match="no luck"):
            await life.runtime.workers.run(failing, lane="a")
        assert await life.runtime.workers.run(lambda: 5, lane="a") == 5

    machine.loop.run_until_complete(main())
    assert not machine.loop.unhandled


def test_job_takes_the_time_of_its_disk_operations() -> None:
    machine = new_machine()
    life = machine.boot()

    async def main() -> int:
        file = life.disk.open("/f", create=True)
        before_ns = life.runtime.clock.mono_ns()

        def job() -> None:
            for _ in range(50):
                file.fsync()

        await life.runtime.workers.run(job)
        return life.runtime.clock.mono_ns() - before_ns

    assert machine.loop.run_until_complete(main()) > 50 * 200_000


def test_wall_clock_drifts_and_jumps_but_monotonic_clock_does_not() -> None:
    machine = new_machine()
    clock = machine.clock

    async def main() -> None:
        start_ms = clock.wall_ms()
        clock.drift_ppm = 100
        await asyncio.sleep(10_000)
        assert 10_000_990 <= clock.wall_ms() - start_ms <= 10_001_010
        mono_ms = clock.mono_ms()
        clock.jump(-3_600_000)
        assert clock.wall_ms() < start_ms + 10_000_000
        assert clock.mono_ms() == mono_ms == clock.mono_ns() // 1_000_000

    machine.loop.run_until_complete(main())


def test_randomness_is_seeded_for_each_process() -> None:
    def draws(seed: int) -> list[object]:
        machine = new_machine(seed)
        first = machine.boot().runtime.randomness
        values: list[object] = [first.uuid(), first.bytes(5), first.below(10), first.uniform(0, 1)]
        machine.kill()
        return [*values, machine.boot().runtime.randomness.uuid()]

    assert draws(1) == draws(1)
    assert draws(1) != draws(2)
    assert draws(1)[0] != draws(1)[-1]


def test_failure_of_a_spawned_task_is_reported() -> None:
    machine = new_machine()
    life = machine.boot()

    async def failing() -> None:
        raise ValueError("bug")

    async def main() -> None:
        life.spawn(failing(), name="bad")
        await asyncio.sleep(1)

    machine.loop.run_until_complete(main())
    assert [str(failure) for failure in life.failures] == ["bug"]


def test_crash_at_a_disk_operation_stops_the_whole_process() -> None:
    machine = new_machine()
    life = machine.boot()
    life.disk.crash_after(5, machine.kill)
    beats: list[int] = []

    async def writer() -> None:
        file = life.disk.open("/f", create=True)
        while True:
            await life.runtime.workers.run(lambda: file.append(b"x"))

    async def heart() -> None:
        while True:
            beats.append(machine.loop.now_ns)
            await asyncio.sleep(0.1)

    async def main() -> None:
        life.run(writer(), name="writer")
        life.run(heart(), name="heart")
        await asyncio.sleep(10)
        assert machine.life is None
        assert len(beats) < 5
        machine.boot()

    machine.loop.run_until_complete(main())
    machine.loop.close()
    assert not machine.loop.unhandled
