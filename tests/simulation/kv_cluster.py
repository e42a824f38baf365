"""A simulated cluster of the key-value example: machines that crash, links that break, and clients
that record their requests and responses."""

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from functools import partial
from random import Random
from typing import Any, Final

from examples.raft_kv.addresses import Peer
from examples.raft_kv.driver import DriverSettings
from examples.raft_kv.kv_client import KvClient, OutcomeUnknown
from examples.raft_kv.node import KvNode
from lograft.consensus.types import RaftSettings
from lograft.model.seams import Address
from lograft.model.types import NodeId
from lograft.simulation.fence import fence
from lograft.simulation.loop import SimulatedLoop
from lograft.simulation.machine import Life, Machine
from lograft.simulation.network import Network
from tests.simulation.linearizability import Operation
from tests.support.waiting import wait_until_async

PORT: Final = 7000
FOLDER: Final = "/kv"
KEYS: Final = (b"a", b"b", b"c")
CLIENTS: Final = 4
KINDS: Final = (
    *("kill", "power", "disk", "cut", "one-way", "reset"),
    *("heal", "heal", "boot", "boot", "boot"),
)

#: Small sizes and timeouts, so that a few seconds include new segments, snapshots and
#: installations.
SETTINGS: Final = DriverSettings(
    raft=RaftSettings(
        election_timeout_ms=300, election_backoff_max_ms=300, fetch_timeout_ms=600,
        request_timeout_ms=600, fetch_wait_ms=100, voter_change_timeout_ms=5_000,
    ),
    snapshot_bytes=3_000,
    snapshot_seconds=5,
    segment_bytes=2_048,
)  # fmt: skip


@dataclass
class Figures:
    boots: int = 0
    kills: int = 0
    power_losses: int = 0
    operations: int = 0
    unknown: int = 0
    snapshots: int = 0
    installs: int = 0
    epochs: int = 0


class KvCluster:
    def __init__(
        self,
        seed: int,
        founders: int = 3,
        *,
        settings: DriverSettings = SETTINGS,
        node_type: type[KvNode] = KvNode,
    ) -> None:
        self.loop = SimulatedLoop(seed)
        self.random = Random(f"kv:{seed}")
        self.network = Network(self.loop)
        self.settings = settings
        self._node_type = node_type
        self.founders = tuple(peer(n) for n in range(1, founders + 1))
        self.machines: dict[int, Machine] = {}
        self.nodes: dict[int, KvNode] = {}
        self.clients = Machine(self.loop, self.network, "clients").boot()
        self.history: dict[bytes, list[Operation]] = {key: [] for key in KEYS}
        #: Exceptions that ended a server without an injected crash.
        self.failures: list[BaseException] = []
        self.figures = Figures()

    def run(self, work: Coroutine[Any, Any, None]) -> None:
        try:
            with fence():
                self.loop.run_until_complete(work)
        finally:
            self.loop.close()
        assert not self.failures, self.failures
        assert not self.loop.unhandled, self.loop.unhandled

    # ── servers ──────────────────────────────────────────────────────────────────────────────

    async def boot(self, number: int) -> None:
        """Starts a server; returns when it listens."""
        machine = self.machines.get(number)
        if machine is None:
            machine = self.machines[number] = Machine(self.loop, self.network, host(number))
        life = machine.boot()
        life.on_failure = self.failures.append
        self.figures.boots += 1
        node = self._node_type(life.runtime, FOLDER, peer(number), self.founders, self.settings)
        started = life.run(node.start(), name="start")
        started.add_done_callback(partial(self._on_started, number, node, life))
        while machine.life is life and not started.done():
            await asyncio.sleep(0.001)

    def _on_started(self, number: int, node: KvNode, life: Life, start: asyncio.Task[None]) -> None:
        if start.cancelled() or self.machines[number].life is not life:
            return
        error = start.exception()
        if error is None:
            self.nodes[number] = node
        else:
            self.failures.append(error)

    def crash(self, number: int, *, power: bool) -> None:
        machine = self.machines[number]
        self.collect_figures(number)
        self.nodes.pop(number, None)
        if power:
            self.figures.power_losses += 1
            machine.lose_power()
        else:
            self.figures.kills += 1
            machine.kill()

    def collect_figures(self, number: int) -> None:
        """Adds a server's counts to the figures."""
        node = self.nodes.get(number)
        if node is not None:
            core = node.driver.core
            self.figures.installs += node.driver.installs
            self.figures.snapshots += core.log.snapshot is not None
            self.figures.epochs = max(self.figures.epochs, core.epoch)

    @property
    def leader(self) -> int | None:
        """The leader; if several servers consider themselves leader, the one with the highest
        epoch."""
        leading = [
            (node.driver.core.epoch, number)
            for number, node in self.nodes.items()
            if node.driver.is_leader
        ]
        return max(leading)[1] if leading else None

    async def wait_until(self, condition: Callable[[], bool], *, seconds: int = 60) -> None:
        await wait_until_async(condition, seconds_max=seconds, pause_seconds=0.01)

    # ── clients ──────────────────────────────────────────────────────────────────────────────

    def client(self, *, timeout_ms: int = 3_000, servers: tuple[int, ...] = ()) -> KvClient:
        addresses = [peer(n).address for n in servers or (p.node_id for p in self.founders)]
        return KvClient(self.clients.runtime, addresses, timeout_ms=timeout_ms)

    async def as_client(self, work: Coroutine[Any, Any, None]) -> None:
        await self.clients.run(work, name="client")

    async def work(self, name: int, until_ns: int) -> None:
        """Runs a client that sends one operation at a time."""
        random = Random(self.random.randrange(2**32))
        client = self.client()
        number = 0
        while self.loop.now_ns < until_ns:
            number += 1
            key = random.choice(KEYS)
            kind = random.choice(("get", "get", "set", "set", "delete"))
            value = f"{name}:{number}".encode() + bytes(random.choice((0, 0, 300)))
            await self.operate(client, kind, key, value)
            await asyncio.sleep(random.choice((0, 0.002, 0.05, 0.3)))

    async def operate(self, client: KvClient, kind: str, key: bytes, value: bytes) -> None:
        operation = Operation(kind, self.loop.now_ns, value)  # type: ignore[arg-type]
        self.history[key].append(operation)
        self.figures.operations += 1
        try:
            if kind == "get":
                operation.found = await client.get(key)
            elif kind == "set":
                await client.set(key, value)
            else:
                operation.found = await client.delete(key)
        except OutcomeUnknown:
            self.figures.unknown += 1
            return
        operation.completed_ns = self.loop.now_ns


def host(number: int) -> str:
    return f"n{number}"


def peer(number: int) -> Peer:
    return Peer(NodeId(number), Address(host(number), PORT))


@dataclass
class FaultyRun:
    """Runs clients with crashes, power losses and network partitions for some simulated seconds."""

    cluster: KvCluster
    seconds: int = 12
    down: list[int] = field(default_factory=list)

    async def run(self) -> None:
        cluster, random = self.cluster, self.cluster.random
        await asyncio.gather(*(cluster.boot(int(p.node_id)) for p in cluster.founders))
        end_ns = cluster.loop.now_ns + self.seconds * 10**9
        for name in range(CLIENTS):
            cluster.clients.run(cluster.work(name, end_ns), name=f"client {name}")
        while cluster.loop.now_ns < end_ns:
            await asyncio.sleep(random.choice((0.05, 0.3, 1.0)))
            await self._inject_fault()
        await self._clear_faults()

    async def _inject_fault(self) -> None:
        cluster, random = self.cluster, self.cluster.random
        numbers = [int(p.node_id) for p in cluster.founders]
        # In most cases the leader.
        victim = cluster.leader if random.random() < 0.6 else None
        victim = random.choice(numbers) if victim is None else victim
        kind = random.choice(KINDS)
        if kind in ("kill", "power", "disk"):
            if cluster.machines[victim].life is None or len(self.down) > 1:
                return
            power = kind == "power" or random.random() < 0.5
            if kind == "disk":
                life = cluster.machines[victim].life
                assert life is not None
                life.disk.crash_after(random.randrange(1, 30), partial(self._crash, victim, power))
            else:
                self._crash(victim, power)
        elif kind == "cut":
            for other in numbers:
                if other != victim:
                    cluster.network.cut(host(victim), host(other))
                    cluster.network.cut(host(other), host(victim))
        elif kind == "one-way":
            cluster.network.cut(host(victim), host(random.choice(numbers)))
        elif kind == "reset":
            cluster.network.reset_all(host(victim))
        elif kind == "heal":
            cluster.network.heal()
        elif self.down:
            await self._boot(self.down[0])

    def _crash(self, number: int, power: bool) -> None:
        self.down.append(number)
        self.cluster.crash(number, power=power)

    async def _boot(self, number: int) -> None:
        self.down.remove(number)
        await self.cluster.boot(number)

    async def _clear_faults(self) -> None:
        """Clears all faults: then all replicas must become equal and accept operations."""
        cluster = self.cluster
        cluster.network.heal()
        for machine in cluster.machines.values():
            if machine.life is not None:
                machine.life.disk.crash = None
        while self.down:
            await self._boot(self.down[0])
        for key in KEYS:
            await cluster.as_client(
                cluster.operate(cluster.client(timeout_ms=30_000), "get", key, b"")
            )
        nodes = list(cluster.nodes.values())
        await cluster.wait_until(lambda: len({node.driver.applied for node in nodes}) == 1)
        first = nodes[0].store.items
        assert all(node.store.items == first for node in nodes)
        for number in list(cluster.nodes):
            cluster.collect_figures(number)
