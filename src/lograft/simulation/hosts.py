"""A machine whose supervisor keeps one node running: formats it, starts it, starts it again.

What the machine suffers comes in through `kill`, `lose_power`, `stop`, `pause`; what it shows goes
out through an Observer. A node that ends by itself, or a task of it that fails, is a violation of
L4 unless its disk was hurt before.
"""

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

#: How long a supervisor waits before it starts the node again.
RESTART_SECONDS: Final = (0.01, 0.5, 2)


class Observer(Protocol):
    def probe(self, host: "Host", f: str, **v: Any) -> None:
        """Something that the node believes, or that befell it."""

    def violated(self, invariant: str, message: str) -> None: ...


class Host:
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
        # A restart after a failed fsync is taken for a reboot: see the storage torture.
        self.machine.platter.eviction_chance = 1.0
        self.is_disk_hurt = False
        #: Flipped bits of its metadata: (path, position, bit). It may refuse to start with them.
        self._damage: list[tuple[str, int, int]] = []
        #: What stands between the node's connections and its router.
        self.interpose: Callable[[Router], HandlerFactory] | None = None
        #: Narrower than this build's: the node behaves as an older one from its next start on.
        self.api_ranges: ApiRanges | None = None
        self.starts = 0
        self.node: Node | None = None
        #: Set while the node serves.
        self.serving = asyncio.Event()
        self._loop = loop
        self._network = network
        self._request = request
        self._observer = observer
        self._random = random
        self._restart_seconds = restart_seconds
        self._supervisor: asyncio.Task[None] | None = None
        #: The life that was asked to end in order.
        self._stopping: Life | None = None
        self._life_ended = asyncio.Event()
        self._is_wanted = asyncio.Event()
        self._is_wanted.set()

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

    def want(self, is_wanted: bool) -> None:
        """Whether the supervisor starts the node when it does not run."""
        if is_wanted:
            self._is_wanted.set()
        else:
            self._is_wanted.clear()

    async def _supervise(self) -> None:
        while True:
            await self._is_wanted.wait()
            self._life_ended.clear()
            life = self.machine.boot()
            self.starts += 1
            self._observer.probe(self, "boot")
            life.on_failure = self._on_failure
            start = life.run(self._start_node(life), name="start")
            ended = self._loop.create_task(self._life_ended.wait(), name="ended")
            await asyncio.wait([start, ended], return_when=asyncio.FIRST_COMPLETED)
            if start.done() and not start.cancelled() and start.exception() is not None:
                self._judge(start.exception())
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
            # Formatting is the administrator's work; the parent folder is theirs, too.
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

    # -- ends that nobody asked for ----------------------------------------------------------------

    def _on_halt(self, reason: str) -> None:
        self._loop.trace.event("halt", self.name, reason)
        if not self.is_disk_hurt:
            self._observer.violated("L4", f"{self.name} halted: {reason}")
        self._end_soon()

    def _on_failure(self, error: BaseException) -> None:
        self._judge(error)
        self._end_soon()

    def _judge(self, error: BaseException | None) -> None:
        if self._damage and isinstance(error, MetadataCorrupt):
            return
        if not (self.is_disk_hurt and isinstance(error, DiskFailed | OSError)):
            self._observer.violated("L4", f"{self.name} failed: {error!r}")

    def _end_soon(self) -> None:
        # From outside of the node's own call.
        self._loop.call_later_ns(1, self._end_after_failure, context=self._network.kernel)

    def _end_after_failure(self) -> None:
        if self.machine.life is not None:
            self.end("power" if self.is_disk_hurt else "kill")

    # -- what befalls it ---------------------------------------------------------------------------

    def end(self, kind: str) -> None:
        """kill: the page cache stays; power: what was not fsynced may be gone."""
        self._observer.probe(self, "crash", kind=kind)
        if kind == "power":
            self.machine.lose_power()
        else:
            self.machine.kill()
        self._ended()

    def _ended(self) -> None:
        self.is_disk_hurt = False
        self.serving.clear()
        self.node = None
        self._life_ended.set()

    def crash_after(self, operations: int, kind: str) -> None:
        """At one of its next disk operations, or in the middle of it."""
        life = self.machine.life
        if life is not None:
            life.disk.crash_after(operations, lambda: self.end(kind))

    async def stop(self) -> None:
        """An orderly stop, as SIGTERM asks for it; a second one changes nothing."""
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
            self._judge(stop.exception())
        if self.machine.life is life:
            if self.is_disk_hurt:
                self.end("power")
                return
            self._observer.probe(self, "exit")
            self.machine.exit()
            self._ended()
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

    def calm(self) -> None:
        """What was set but has not struck yet does not strike any more; a node that refuses to
        start with what it has got gets its metadata back."""
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
