import asyncio
import gc
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path

import pytest

from lograft.simulation.errors import Deadlock, FenceBroken, StepLimit
from lograft.simulation.fence import fence
from lograft.simulation.loop import CURRENT_PROCESS, Process, SimulatedLoop
from lograft.simulation.policies import FifoPolicy, PctPolicy, policy_of
from lograft.simulation.trace import Streams, Trace

SCENARIO = Path(__file__).with_name("loop_scenario.py")


@pytest.fixture
def loop() -> Iterator[SimulatedLoop]:
    simulated = SimulatedLoop(7)
    yield simulated
    simulated.close()


def hash_in_new_process(seed: int, policy: str, hash_seed: str) -> str:
    environment = {**os.environ, "PYTHONHASHSEED": hash_seed}
    return subprocess.run(
        [sys.executable, str(SCENARIO), str(seed), policy],
        env=environment,
        capture_output=True,
        text=True,
        check=True,
    ).stdout


def test_trace_hash_does_not_depend_on_the_hash_seed() -> None:
    hashes = {hash_in_new_process(11, "uniform", hash_seed) for hash_seed in ("0", "1", "4242")}
    assert len(hashes) == 1
    assert len(hashes.pop()) == 64
    assert hash_in_new_process(12, "uniform", "0") != hash_in_new_process(11, "uniform", "0")


def test_pct_policy_is_deterministic() -> None:
    assert len({hash_in_new_process(5, "pct", hash_seed) for hash_seed in ("1", "2", "3")}) == 1


def test_task_group_cancels_in_order_of_creation() -> None:
    # With asyncio's own loop the order depends on addresses.
    loop = SimulatedLoop(policy=FifoPolicy())
    cancelled: list[int] = []

    async def member(number: int) -> None:
        try:
            await asyncio.sleep(10)
        finally:
            cancelled.append(number)

    async def failing() -> None:
        await asyncio.sleep(1)
        raise ValueError

    async def main() -> None:
        async with asyncio.TaskGroup() as group:
            for number in range(40):
                group.create_task(member(number))
            group.create_task(failing())

    with pytest.raises(ExceptionGroup):
        loop.run_until_complete(main())
    assert cancelled == list(range(40))


def test_tasks_and_futures_have_small_hashes(loop: SimulatedLoop) -> None:
    async def main() -> list[int]:
        tasks = [loop.create_task(asyncio.sleep(0)) for _ in range(3)]
        numbers = [hash(task) for task in tasks] + [hash(loop.create_future())]
        await asyncio.gather(*tasks)
        return numbers

    numbers = loop.run_until_complete(main())
    assert numbers == sorted(set(numbers))
    assert max(numbers) < 100


def test_time_is_virtual_and_in_integer_nanoseconds(loop: SimulatedLoop) -> None:
    async def main() -> None:
        await asyncio.sleep(3600 * 24)

    started = time.perf_counter()
    loop.run_until_complete(main())
    assert time.perf_counter() - started < 5
    assert isinstance(loop.now_ns, int)
    assert loop.now_ns >= 3600 * 24 * 10**9


def test_timers_expire_in_order(loop: SimulatedLoop) -> None:
    expired: list[int] = []

    async def main() -> None:
        for ms in (30, 10, 20):
            loop.call_later(ms / 1000, expired.append, ms)
        await asyncio.sleep(1)

    loop.run_until_complete(main())
    assert expired == [10, 20, 30]


def test_cancelled_timer_does_not_advance_time(loop: SimulatedLoop) -> None:
    async def main() -> None:
        loop.call_later(1000, print).cancel()
        await asyncio.sleep(1)

    loop.run_until_complete(main())
    assert loop.now_ns < 2 * 10**9


def order_of_two(seed: int) -> tuple[str, ...]:
    loop = SimulatedLoop(seed)
    order: list[str] = []

    async def main() -> None:
        loop.call_soon(order.append, "a")
        loop.call_soon(order.append, "b")
        await asyncio.sleep(1)

    loop.run_until_complete(main())
    return tuple(order)


def test_seeds_produce_both_orders_of_a_race() -> None:
    assert {order_of_two(seed) for seed in range(20)} == {("a", "b"), ("b", "a")}


def test_fifo_policy_keeps_asyncios_order() -> None:
    loop = SimulatedLoop(policy=FifoPolicy())
    order: list[int] = []

    async def main() -> None:
        for number in range(50):
            loop.call_soon(order.append, number)
        await asyncio.sleep(0.001)

    loop.run_until_complete(main())
    assert order == list(range(50))


def test_pct_policy_can_run_one_task_far_ahead() -> None:
    # Uniform draws almost never run a task 100 steps ahead, but priorities do.
    ahead = 0
    for seed in range(10):
        streams = Streams(seed)
        loop = SimulatedLoop(policy=PctPolicy(streams.stream("schedule")))
        steps: list[str] = []

        async def spin(name: str, steps: list[str] = steps) -> None:
            for _ in range(100):
                steps.append(name)
                await asyncio.sleep(0)

        async def main(spin: Callable[[str], Awaitable[None]] = spin) -> None:
            await asyncio.gather(spin("a"), spin("b"))

        loop.run_until_complete(main())
        ahead += steps[:100] in (["a"] * 100, ["b"] * 100)
    assert ahead >= 8


def test_unknown_policy_is_rejected() -> None:
    with pytest.raises(ValueError, match="uniform, pct, fifo"):
        policy_of("lifo", Streams(0).stream("schedule"))


def test_deadlock_names_the_waiting_task(loop: SimulatedLoop) -> None:
    async def main() -> None:
        await asyncio.Event().wait()

    with pytest.raises(Deadlock, match="the-waiter"):
        loop.run_until_complete(loop.create_task(main(), name="the-waiter"))


def test_endless_run_is_stopped() -> None:
    loop = SimulatedLoop(steps_max=1000)

    async def main() -> None:
        while True:
            await asyncio.sleep(0)

    with pytest.raises(StepLimit):
        loop.run_until_complete(main())
    loop.close()


def test_killed_process_runs_no_more_callbacks(loop: SimulatedLoop) -> None:
    process = Process("node-1")
    ran: list[str] = []

    async def child() -> None:
        try:
            while True:
                await asyncio.sleep(1)
                ran.append("child")
        finally:
            ran.append("finally")

    async def node() -> None:
        CURRENT_PROCESS.set(process)
        loop.call_later(5, ran.append, "timer")
        await asyncio.gather(loop.create_task(child()), loop.create_task(child()))

    async def main() -> None:
        loop.create_task(node())
        await asyncio.sleep(2.5)
        process.kill()
        await asyncio.sleep(100)

    loop.run_until_complete(main())
    assert ran == ["child"] * 4
    loop.close()
    assert not loop.unhandled


def test_garbage_collector_is_disabled_while_running(loop: SimulatedLoop) -> None:
    async def main() -> bool:
        return gc.isenabled()

    was_enabled = gc.isenabled()
    assert not loop.run_until_complete(main())
    assert gc.isenabled() == was_enabled


def test_unhandled_exception_is_recorded(loop: SimulatedLoop) -> None:
    async def failing() -> None:
        raise ValueError("unhandled")

    async def main() -> None:
        loop.create_task(failing())
        await asyncio.sleep(2)

    loop.run_until_complete(main())
    loop._tasks.clear()
    assert [str(context["exception"]) for context in loop.unhandled] == ["unhandled"]


async def _thread() -> None:
    await asyncio.to_thread(print)


async def _socket() -> None:
    await asyncio.open_connection("localhost", 1)


async def _reader() -> None:
    asyncio.get_running_loop().add_reader(0, print)


async def _subprocess() -> None:
    await asyncio.create_subprocess_exec("true")


async def _signal() -> None:
    asyncio.get_running_loop().add_signal_handler(signal.SIGUSR1, print)


@pytest.mark.parametrize("attempt", [_thread, _socket, _reader, _subprocess, _signal])
def test_loop_provides_no_access_to_the_machine(
    loop: SimulatedLoop, attempt: Callable[[], Awaitable[None]]
) -> None:
    async def main() -> None:
        await attempt()

    with pytest.raises((FenceBroken, NotImplementedError)):
        loop.run_until_complete(main())


def test_fence_rejects_calls_that_bypass_the_loop() -> None:
    with fence():
        with pytest.raises(FenceBroken, match=r"Thread\.start"):
            threading.Thread(target=print).start()
        with pytest.raises(FenceBroken, match="socket"):
            socket.socket()
        with pytest.raises(FenceBroken, match="Popen"):
            subprocess.Popen(["true"])
        with pytest.raises(FenceBroken, match="sleep"):
            time.sleep(0)
        with pytest.raises(FenceBroken, match="signal"):
            signal.signal(signal.SIGUSR1, signal.SIG_DFL)
    time.sleep(0)
    with socket.socket():
        pass


def test_streams_are_independent() -> None:
    first, second = Streams(3), Streams(3)
    first.stream("net").random()
    assert first.stream("disk").random() == second.stream("disk").random()
    assert Streams(3).stream("net").random() != Streams(3).stream("disk").random()


def test_trace_hashes_every_event_and_keeps_the_last_ones() -> None:
    first, second = Trace(keep=3), Trace(keep=3)
    for number in range(2000):
        first.event("write", "file", number)
        second.event("write", "file", number if number != 700 else 701)
    assert first.digest() != second.digest()
    assert list(first.last) == ["write file 1997", "write file 1998", "write file 1999"]
    assert first.count == 2000
