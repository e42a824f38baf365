"""Injects the faults of a plan into a cluster, but never more than it must survive.

A power loss destroys data that was not fsynced. In isr mode a partition survives fewer lossy
crashes than `min.insync.replicas`, so before each of them the atlas checks that every partition
keeps another complete and electable replica; otherwise the fault becomes a kill. Therefore any lost
record is a violation."""

import asyncio
import errno
from collections.abc import Iterator
from random import Random
from typing import Any, Final, Protocol

from campaigns.cluster_plan import ClusterFault
from lograft.model.types import OFFSETS_TOPIC, TRANSACTIONS_TOPIC
from lograft.simulation.cluster import DATA, SimulatedCluster
from lograft.simulation.disk import DiskFault, Operation
from lograft.simulation.hosts import Host

#: Factors for slow disks and links.
SLOW: Final = (20, 200, 2_000)
#: Fewer bytes than the smallest batch has.
LAST_BYTES: Final = 60
#: Topics whose partition leaders are coordinators, by target role.
COORDINATED: Final = {
    "group-coordinator": OFFSETS_TOPIC,
    "transaction-coordinator": TRANSACTIONS_TOPIC,
}
METADATA: Final = f"{DATA}/__cluster_metadata-0"
BROKEN: Final[tuple[Operation, ...]] = ("write", "fsync", "fsync_dir", "rename")


class Atlas(Protocol):
    """Knows which replicas are complete."""

    def survives_loss_of(self, node_id: int) -> bool:
        """Returns whether every partition has a complete, electable replica on another node."""

    def survives_kill_of(self, node_id: int) -> bool:
        """Returns whether no partition depends on a replica that lost records without notice."""

    def unflushed_on(self, node_id: int) -> list[str]:
        """Returns partitions whose last batch on this node is only in the page cache."""


class FaultInjector:
    def __init__(
        self, cluster: SimulatedCluster, faults: list[ClusterFault], *, atlas: Atlas, random: Random
    ) -> None:
        self._cluster = cluster
        self._faults = faults
        self._atlas = atlas
        self._random = random
        self._rolling: asyncio.Task[None] | None = None

    async def run(self, seconds: float) -> None:
        """Injects the faults; returns after `seconds` of virtual time."""
        loop = self._cluster.loop
        start_ns = loop.now_ns
        for fault in self._faults:
            wait_ns = start_ns + fault.at_ms * 1_000_000 - loop.now_ns
            await asyncio.sleep(max(0, wait_ns) / 1e9)
            self._inject(fault)
        await asyncio.sleep(max(0.0, seconds - (loop.now_ns - start_ns) / 1e9))

    def _inject(self, fault: ClusterFault) -> None:
        node_id = self.target_of(fault.target)
        host = self._cluster.hosts[node_id]
        self._cluster.probe(host, "fault", kind=fault.kind, ms=fault.duration_ms)
        self._cluster.loop.trace.event("fault", fault.kind, host.name, fault.duration_ms)
        match fault.kind:
            case (
                "kill"
                | "power"
                | "crash-kill"
                | "crash-power"
                | "kill-all"
                | "power-all"
                | "stop"
                | "rolling"
            ):
                self._end(fault, node_id, host)
            case "isolate" | "cut-in" | "cut-out" | "bridge" | "split" | "reset" | "slow-link":
                self._disconnect(fault, node_id, host)
            case "rot":
                self._rot(fault, node_id, host)
            case "rot-metadata":
                self._rot_metadata(fault, node_id, host)
            case "eio" | "full" | "slow-disk":
                self._fail_disk(fault, node_id, host)
            case "pause":
                host.pause()
                self._later(fault, host.resume)
            case "clock":
                host.machine.clock.jump((fault.amount - 100) * 60_000)
            case _:
                raise ValueError(f"unknown fault {fault.kind!r}")

    def _later(self, fault: ClusterFault, undo: Any, *arguments: Any) -> None:
        self._cluster.loop.call_later_ns(
            fault.duration_ms * 1_000_000, undo, *arguments, context=self._cluster.network.kernel
        )

    def target_of(self, role: str) -> int:
        """Returns a node with this role, or any node if there is none."""
        cluster, random = self._cluster, self._random
        nodes = list(cluster.hosts)
        fallback = random.choice(nodes)
        if role == "controller":
            return cluster.controller_id if cluster.controller_id in cluster.hosts else fallback
        if role.isdigit():
            return int(role)
        if role == "any" or not cluster.nodes():
            return fallback
        only_topic = COORDINATED.get(role)
        states = [
            state
            for topic in cluster.image.topics.values()
            for state in topic.partitions.values()
            if state.leader in cluster.hosts and only_topic in (None, topic.name)
        ]
        if not states:
            return fallback
        state = random.choice(states)
        if role != "follower":
            return state.leader
        return random.choice([each for each in state.replicas if each != state.leader] or nodes)

    # -- processes ---------------------------------------------------------------------------------

    def _end(self, fault: ClusterFault, node_id: int, host: Host) -> None:
        match fault.kind:
            case "kill" | "power" if host.is_up and self._atlas.survives_kill_of(node_id):
                host.end(self._allow(node_id, fault.kind))
                self._stay_down(fault, host)
            case "crash-kill" | "crash-power" if host.is_up:
                kind = fault.kind.removeprefix("crash-")
                life = host.life
                assert life is not None
                # Decided at the time of the crash, because other faults may happen before it.
                life.disk.crash_after(fault.amount, lambda: host.end(self._allow(node_id, kind)))
            case "kill-all" | "power-all":
                kind = fault.kind.removesuffix("-all")
                for each_id, each in self._cluster.hosts.items():
                    if each.is_up and self._atlas.survives_kill_of(each_id):
                        each.end(self._allow(each_id, kind))
            case "stop" if host.is_up:
                self._cluster.loop.create_task(self._stop(fault, host), name="stop")
            case "rolling" if self._rolling is None or self._rolling.done():
                self._rolling = self._cluster.loop.create_task(self._roll(), name="rolling")
            case _:
                pass

    def _allow(self, node_id: int, kind: str) -> str:
        if kind == "power" and not self._atlas.survives_loss_of(node_id):
            return "kill"
        return kind

    def _stay_down(self, fault: ClusterFault, host: Host) -> None:
        host.set_should_run(False)
        self._later(fault, host.set_should_run, True)

    async def _stop(self, fault: ClusterFault, host: Host) -> None:
        self._stay_down(fault, host)
        await host.stop()

    async def _roll(self) -> None:
        for node_id, host in self._cluster.hosts.items():
            await host.stop()
            try:
                await self._cluster.wait_serving(node_id, seconds=20)
            except TimeoutError:
                return

    # -- links -------------------------------------------------------------------------------------

    def _disconnect(self, fault: ClusterFault, node_id: int, host: Host) -> None:
        network = self._cluster.network
        match fault.kind:
            case "reset":
                network.reset_all(host.name)
                return
            case "slow-link":
                network.slow_hosts[host.name] = SLOW[fault.amount % 2]
                self._later(fault, network.slow_hosts.pop, host.name, None)
                return
            case _:
                pass
        for source, target in self._cuts(fault, node_id):
            network.cut(source, target)
            self._later(fault, network.restore_link, source, target)

    def _cuts(self, fault: ClusterFault, node_id: int) -> Iterator[tuple[str, str]]:
        me = f"n{node_id}"
        others = [f"n{each}" for each in self._cluster.hosts if each != node_id]
        # In half of the cases the clients are isolated as well.
        around = [*others, *self._cluster.client_hosts] if fault.amount % 2 else others
        match fault.kind:
            case "isolate":
                yield from ((me, other) for other in around)
                yield from ((other, me) for other in around)
            case "cut-in":
                yield from ((other, me) for other in around)
            case "cut-out":
                yield from ((me, other) for other in around)
            case "bridge":
                # Every node can reach the target, but no other node.
                for source in others:
                    yield from ((source, other) for other in others if other != source)
            case _:
                half = len(others) // 2
                left, right = [me, *others[:half]], others[half:]
                for near in left:
                    yield from ((near, far) for far in right)
                    yield from ((far, near) for far in right)

    # -- disks -------------------------------------------------------------------------------------

    def _fail_disk(self, fault: ClusterFault, node_id: int, host: Host) -> None:
        life = host.life
        if fault.kind == "slow-disk":
            host.machine.disk_slowness = SLOW[fault.amount % len(SLOW)]
            self._later(fault, setattr, host.machine, "disk_slowness", 1)
            return
        # The node then ends like after a power loss, because the contents of the disk are unknown.
        if life is None:
            return

        def is_allowed() -> bool:
            host.has_disk_failed = host.has_disk_failed or self._atlas.survives_loss_of(node_id)
            return host.has_disk_failed

        operation = BROKEN[fault.amount % len(BROKEN)] if fault.kind == "eio" else "write"
        error = errno.EIO if fault.kind == "eio" else errno.ENOSPC
        life.disk.faults.append(
            DiskFault(
                operation=operation, error=error, skip=fault.amount % 20, is_allowed=is_allowed
            )
        )

    def _rot(self, fault: ClusterFault, node_id: int, host: Host) -> None:
        """Kills the node and flips a bit in the last batch of a log: corrupt, but not torn."""
        names = self._atlas.unflushed_on(node_id)
        if not host.is_up or not names or not self._atlas.survives_loss_of(node_id):
            return
        folder = f"{DATA}/{names[fault.amount % len(names)]}"
        host.has_disk_failed = True
        host.end("kill")
        platter = host.machine.platter
        logs = [name for name in sorted(platter.folder(folder).live) if name.endswith(".log")]
        path = f"{folder}/{logs[-1]}"
        size = len(platter.file(path).live)
        if size > LAST_BYTES:
            position = size - 1 - fault.amount % LAST_BYTES
            self._cluster.loop.trace.event("rot", path, position)
            platter.flip_bit(path, position, fault.amount % 8)
            # The next process may detect the damage and exit.
            host.has_disk_failed = True
        self._stay_down(fault, host)

    def _rot_metadata(self, fault: ClusterFault, node_id: int, host: Host) -> None:
        """Kills the node and flips a bit in every metadata snapshot. The node may work without
        them, or refuse to start; it must not treat the cluster as empty."""
        if not host.is_up or not self._atlas.survives_loss_of(node_id):
            return
        host.end("kill")
        platter = host.machine.platter
        for name in sorted(platter.folder(METADATA).live):
            path = f"{METADATA}/{name}"
            size = len(platter.file(path).live)
            if name.endswith(".checkpoint") and size:
                host.damage(path, fault.amount * 101 % size, fault.amount % 8)
        self._stay_down(fault, host)
