"""A simulated machine: its platter, its clock, its host name and its processes.

`boot()` starts a `Life`: a process with its own view of the disk, workers, tasks and sockets. A
kill ends the process and keeps the page cache; a power loss may also lose data that was not
fsynced."""

import asyncio
import contextvars
from collections.abc import Callable, Coroutine
from random import Random
from typing import Any, Final, TypeVar
from uuid import UUID

from lograft.model.seams import Runtime, Task
from lograft.simulation.disk import SimulatedDisk
from lograft.simulation.errors import SimulatedCrash
from lograft.simulation.loop import CURRENT_PROCESS, Process, SimulatedLoop
from lograft.simulation.network import Network, SimulatedTransport
from lograft.simulation.platter import Platter
from lograft.simulation.workers import SimulatedWorkers

T = TypeVar("T")

#: 2026-01-01T00:00:00Z: start of simulated wall clocks.
WALL_START_MS: Final = 1_767_225_600_000


class SimulatedClock:
    """Monotonic time is the loop's; wall-clock time may jump and drift."""

    __slots__ = ("_loop", "drift_ppm", "offset_ms")

    def __init__(self, loop: SimulatedLoop, *, offset_ms: int = 0, drift_ppm: int = 0) -> None:
        self._loop = loop
        self.offset_ms = offset_ms
        self.drift_ppm = drift_ppm

    def mono_ms(self) -> int:
        return self._loop.now_ns // 1_000_000

    def mono_ns(self) -> int:
        return self._loop.now_ns

    def wall_ms(self) -> int:
        elapsed_ns = self._loop.now_ns
        drift_ns = elapsed_ns * self.drift_ppm // 1_000_000
        return WALL_START_MS + self.offset_ms + (elapsed_ns + drift_ns) // 1_000_000

    def jump(self, by_ms: int) -> None:
        self.offset_ms += by_ms


class SimulatedRandomness:
    __slots__ = ("_random",)

    def __init__(self, random: Random) -> None:
        self._random = random

    def uuid(self) -> UUID:
        return UUID(bytes=self._random.randbytes(16), version=4)

    def bytes(self, count: int) -> bytes:
        return self._random.randbytes(count)

    def uniform(self, low: float, high: float) -> float:
        return self._random.uniform(low, high)

    def below(self, bound: int) -> int:
        return self._random.randrange(bound)


class Life:
    """A process from boot to death."""

    def __init__(self, machine: "Machine", number: int) -> None:
        loop = machine.loop
        name = f"{machine.host}.{number}"
        self.machine = machine
        self.process = Process(name)
        self.context = contextvars.copy_context()
        self.context.run(CURRENT_PROCESS.set, self.process)
        self.disk = SimulatedDisk(
            machine.platter,
            random=loop.streams.stream(f"disk:{name}"),
            trace=loop.trace,
            wall_ms=machine.clock.wall_ms,
            slowness=lambda: machine.disk_slowness,
        )
        #: Failures of spawned tasks; in production each of them would end the node.
        self.failures: list[BaseException] = []
        self.on_failure: Callable[[BaseException], None] | None = None
        self.runtime = Runtime(
            clock=machine.clock,
            randomness=SimulatedRandomness(loop.streams.stream(f"randomness:{name}")),
            disk=self.disk,
            workers=SimulatedWorkers(loop, self.disk, loop.streams.stream(f"workers:{name}")),
            transport=SimulatedTransport(machine.network, machine.host),
            spawn=self.spawn,
        )

    def spawn(self, work: Coroutine[Any, Any, None], *, name: str) -> Task:
        task = self.machine.loop.create_task(work, name=f"{self.process.name}:{name}")
        task.add_done_callback(self._on_spawned_done)
        return task

    def _on_spawned_done(self, task: asyncio.Task[None]) -> None:
        if task.cancelled():
            return
        error = task.exception()
        if error is None or isinstance(error, SimulatedCrash):
            return
        self.machine.loop.trace.event("task-failed", task.get_name(), type(error).__name__)
        self.failures.append(error)
        if self.on_failure:
            self.on_failure(error)

    def run(self, work: Coroutine[Any, Any, T], *, name: str) -> asyncio.Task[T]:
        """Runs a coroutine in this process; it is dropped, not cancelled, when the process dies."""
        return self.machine.loop.create_task(
            work, name=f"{self.process.name}:{name}", context=self.context
        )


class Machine:
    def __init__(self, loop: SimulatedLoop, network: Network, host: str) -> None:
        self.loop = loop
        self.network = network
        self.host = host
        self.platter = Platter()
        self.clock = SimulatedClock(loop)
        #: Factor by which all disk operations are slower than usual.
        self.disk_slowness = 1
        self.life: Life | None = None
        self._lives = 0

    def boot(self) -> Life:
        assert self.life is None, f"{self.host} is already running"
        self._lives += 1
        self.loop.trace.event("boot", self.host, self._lives)
        self.life = Life(self, self._lives)
        self.network.mark_host_up(self.host)
        return self.life

    def kill(self) -> None:
        """SIGKILL: the kernel keeps running and resets the connections."""
        self._end("kill")
        self.platter.on_process_killed(self.loop.streams.stream("faults:disk"))
        self.network.on_process_died(self.host, silent=False)

    def lose_power(self) -> None:
        self._end("power-loss")
        self.platter.on_power_lost(self.loop.streams.stream("faults:disk"))
        silent = self.loop.streams.stream("faults:network").random() < 0.5
        self.network.on_process_died(self.host, silent=silent)
        self.network.mark_host_down(self.host)

    def exit(self) -> None:
        """A normal exit: buffered data is still sent before the connections close."""
        self._end("exit")
        self.network.on_process_exited(self.host)

    def _end(self, kind: str) -> None:
        assert self.life is not None, f"{self.host} is not running"
        self.loop.trace.event(kind, self.host)
        self.life.process.kill()
        self.life.disk.kill()
        self.life = None
