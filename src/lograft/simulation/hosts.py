"""A machine whose supervisor formats, starts and restarts one node.

Faults are injected with `end`, `stop`, `pause`, `crash_after` and `damage`; events are reported to
an Observer. A node that exits by itself, or a task of it that fails, violates L4, unless its disk
has failed before."""

import asyncio
from collections.abc import Callable, Sequence
from random import Random
from typing import Any, Final, Protocol

from lograft.api.router import Router
from lograft.broker.errors import MetadataCorrupt
from lograft.broker.quorum.formatting import FormatRequest, format_directories
from lograft.model.errors import DiskFailed
from lograft.model.exchange import HandlerFactory
from lograft.model.settings.broker import BrokerConfig
from lograft.node import Node
from lograft.simulation.loop import SimulatedLoop
from lograft.simulation.machine import Life, Machine
from lograft.simulation.network import Network
from lograft.wire.apis import ApiRanges

#: Delays before a supervisor restarts the node.
RESTART_SECONDS: Final = (0.01, 0.5, 2)


class Observer(Protocol):
    def probe(self, host: "Host", f: str, **v: Any) -> None:
        """Receives an event of the node."""

    def report_violation(self, invariant: str, message: str) -> None: ...


class Host:
    """A machine of a cluster. A SimulatedCluster or a campaign owns it."""

    def __init__(
        self,
        loop: SimulatedLoop,
        network: Network,
        name: str,
        config: BrokerConfig,
        request: FormatRequest,
        *,
        observer: Observer,
        random: Random,
        restart_seconds: Sequence[float] = RESTART_SECONDS,
    ) -> None:
        self.name = name
        self.config = config
        self.machine = Machine(loop, network, name)
        # A restart after a failed fsync counts as a reboot: see the storage torture.
        self.machine.platter.eviction_chance = 1.0
        self.has_disk_failed = False
        #: Flipped bits of its metadata: (path, position, bit). The node may refuse to start with
        #: them.
        self._damage: list[tuple[str, int, int]] = []
        #: Wraps the node's router, for example to delay or reject requests.
        self.interpose: Callable[[Router], HandlerFactory] | None = None
        #: API versions of an older build, which the node uses from its next start on.
        self.api_ranges: ApiRanges | None = None
        self.starts = 0
        self.node: Node | None = None
        #: Set while the node serves requests.
        self.serving = asyncio.Event()
        self._loop = loop
        self._network = network
        self._request = request
        self._observer = observer
        self._random = random
        self._restart_seconds = restart_seconds
        self._supervisor: asyncio.Task[None] | None = None
        #: The process that is being stopped with SIGTERM.
        self._stopping: Life | None = None
        self._life_ended = asyncio.Event()
        self._should_run = asyncio.Event()
        self._should_run.set()

    def __repr__(self) -> str:
        return f"<Host {self.name}>"

    @property
    def life(self) -> Life | None:
        return self.machine.life

    @property
    def is_up(self) -> bool:
        return self.machine.life is not None

    # -- the supervisor ----------------------------------------------------------------------------

    @property
    def is_supervised(self) -> bool:
        return self._supervisor is not None

    def supervise(self) -> None:
        self._supervisor = self._loop.create_task(self._supervise(), name=f"{self.name}:supervisor")

    def set_should_run(self, should_run: bool) -> None:
        """Sets whether the supervisor starts the node when it is not running."""
        if should_run:
            self._should_run.set()
        else:
            self._should_run.clear()

    async def _supervise(self) -> None:
        while True:
            await self._should_run.wait()
            self._life_ended.clear()
            life = self.machine.boot()
            self.starts += 1
            self._observer.probe(self, "boot")
            life.on_failure = self._on_failure
            start = life.run(self._start_node(life), name="start")
            ended = self._loop.create_task(self._life_ended.wait(), name="ended")
            await asyncio.wait([start, ended], return_when=asyncio.FIRST_COMPLETED)
            if start.done() and not start.cancelled() and start.exception() is not None:
                self._check_failure(start.exception())
                if self.machine.life is life:
                    self._end_after_failure()
            await ended
            self.serving.clear()
            self.node = None
            await asyncio.sleep(self._random.choice(self._restart_seconds))

    async def _start_node(self, life: Life) -> None:
        runtime = life.runtime
        if not runtime.disk.exists(f"{self.config.metadata_log_dir}/meta.properties"):
            format_directories(
                runtime.disk,
                self.config,
                self._request,
                randomness=runtime.randomness,
                now_ms=runtime.clock.wall_ms(),
            )
            # Formatting includes an fsync of the parent folder, as an administrator would do.
            runtime.disk.fsync_dir("/")
        node = Node(
            self.config,
            runtime,
            halt=self._on_halt,
            host_name=self.name,
            interpose=self.interpose,
            api_ranges=self.api_ranges,
        )
        self.node = node
        await node.start()
        if self.config.is_broker:
            for partition in node.broker.partitions:
                if partition.log is not None:
                    self._observer.probe(
                        self,
                        "recovered",
                        tp=str(partition.topic_partition),
                        start=partition.log.log_start_offset,
                        end=partition.log.end_offset,
                        cuts=partition.log.truncations,
                    )
        self.serving.set()

    # -- unexpected exits --------------------------------------------------------------------------

    def _on_halt(self, reason: str) -> None:
        self._loop.trace.event("halt", self.name, reason)
        if not self.has_disk_failed:
            self._observer.report_violation("L4", f"{self.name} halted: {reason}")
        self._end_soon()

    def _on_failure(self, error: BaseException) -> None:
        self._check_failure(error)
        self._end_soon()

    def _check_failure(self, error: BaseException | None) -> None:
        if self._damage and isinstance(error, MetadataCorrupt):
            return
        if not (self.has_disk_failed and isinstance(error, DiskFailed | OSError)):
            self._observer.report_violation("L4", f"{self.name} failed: {error!r}")

    def _end_soon(self) -> None:
        # Not within the node's own call.
        self._loop.call_later_ns(1, self._end_after_failure, context=self._network.kernel)

    def _end_after_failure(self) -> None:
        if self.machine.life is not None:
            self.end("power" if self.has_disk_failed else "kill")

    # -- faults ------------------------------------------------------------------------------------

    def end(self, kind: str) -> None:
        """Ends the process. `kill` keeps the page cache; `power` may lose data that was not
        fsynced."""
        self._observer.probe(self, "crash", kind=kind)
        if kind == "power":
            self.machine.lose_power()
        else:
            self.machine.kill()
        self._on_ended()

    def _on_ended(self) -> None:
        self.has_disk_failed = False
        self.serving.clear()
        self.node = None
        self._life_ended.set()

    def crash_after(self, operations: int, kind: str) -> None:
        """Schedules a crash at the `operations`-th modifying disk operation from now."""
        life = self.machine.life
        if life is not None:
            life.disk.crash_after(operations, lambda: self.end(kind))

    async def stop(self) -> None:
        """Stops the node like SIGTERM; idempotent."""
        life, node = self.machine.life, self.node
        if life is None or node is None:
            return
        if self._stopping is life:
            await self._life_ended.wait()
            return
        self._stopping = life
        self.serving.clear()
        stop = life.run(node.stop(), name="stop")
        ended = self._loop.create_task(self._life_ended.wait(), name="ended")
        await asyncio.wait([stop, ended], return_when=asyncio.FIRST_COMPLETED)
        if not stop.done():
            return
        if stop.exception() is not None:
            self._check_failure(stop.exception())
        if self.machine.life is life:
            if self.has_disk_failed:
                self.end("power")
                return
            self._observer.probe(self, "exit")
            self.machine.exit()
            self._on_ended()
        ended.cancel()

    def damage(self, path: str, position: int, bit: int) -> None:
        self._loop.trace.event("damage", self.name, path, position)
        self.machine.platter.flip_bit(path, position, bit)
        self._damage.append((path, position, bit))

    def pause(self) -> None:
        if self.machine.life is not None:
            self._loop.trace.event("pause", self.name)
            self.machine.life.process.pause()

    def resume(self) -> None:
        life = self.machine.life
        if life is not None and life.process.is_paused:
            self._loop.trace.event("resume", self.name)
            self._loop.resume(life.process)

    def clear_faults(self) -> None:
        """Cancels pending faults, and repairs the damaged metadata of a node that does not
        start."""
        self.resume()
        self.machine.disk_slowness = 1
        if self.machine.life is not None:
            self.machine.life.disk.crash = None
            self.machine.life.disk.faults.clear()
        if not self.serving.is_set():
            for path, position, bit in self._damage:
                if self.machine.platter.find(path) is not None:
                    self.machine.platter.flip_bit(path, position, bit)
            self._damage.clear()
