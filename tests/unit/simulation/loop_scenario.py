"""A run with many sources of nondeterminism; prints its trace hash. Started by test_loop."""

import asyncio
import sys

from lograft.simulation.loop import SimulatedLoop
from lograft.simulation.policies import policy_of
from lograft.simulation.trace import Streams


async def _worker(loop: SimulatedLoop, name: str, order: list[str]) -> None:
    try:
        for _ in range(5):
            await asyncio.sleep(loop.streams.stream("workload").uniform(0, 0.01))
        if name == "w3":
            raise ValueError(name)
        await asyncio.sleep(10)
    finally:
        order.append(name)
        loop.trace.event("end", name)


async def _scenario(loop: SimulatedLoop) -> None:
    order: list[str] = []
    try:
        async with asyncio.TaskGroup() as group:
            for n in range(8):
                group.create_task(_worker(loop, f"w{n}", order), name=f"w{n}")
    except* ValueError:
        pass
    tasks = {loop.create_task(asyncio.sleep(0.001 * (n % 3)), name=f"s{n}") for n in range(20)}
    done, pending = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    for task in done | pending:
        loop.trace.event("set", task.get_name())
    for task in asyncio.all_tasks():
        loop.trace.event("all", task.get_name())
    await asyncio.gather(*pending)
    try:
        async with asyncio.timeout(0.5):
            await asyncio.Event().wait()
    except TimeoutError:
        loop.trace.event("timeout", loop.now_ns)


def trace_hash(seed: int, policy: str = "uniform") -> str:
    streams = Streams(seed)
    loop = SimulatedLoop(streams=streams, policy=policy_of(policy, streams.stream("schedule")))
    loop.run_until_complete(_scenario(loop))
    loop.close()
    return loop.trace.digest()


if __name__ == "__main__":
    sys.stdout.write(trace_hash(int(sys.argv[1]), sys.argv[2]))
