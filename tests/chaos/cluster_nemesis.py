"""Injects faults into a cluster: kills, pauses or isolates a leader, the controller or a
coordinator, restarts nodes, or kills all at once.

The faults are drawn from the seed before the run; their targets are looked up when they are
injected."""

import os
import random
import signal
import subprocess
import time
from collections import Counter
from collections.abc import Sequence
from typing import Final, Literal, NamedTuple

from lograft.model.types import TopicPartition
from lograft.wire.messages.describe_quorum import DescribeQuorumResponse
from lograft.wire.messages.find_coordinator import (
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)
from tests.chaos.cluster_client import ClusterClient, ClusterRun
from tests.chaos.networks import Network
from tests.chaos.raw_client import ErrorResponse, RawClient
from tests.compatibility.clusters import Cluster, controller_in, quorum_request
from tests.compatibility.readiness import broker_ids
from tests.compatibility.servers import Server

Kind = Literal["kill", "pause", "isolate", "one-way", "bridge", "restart", "kill all"]
Target = Literal["leader", "controller", "coordinator", "any"]
WEIGHTS: Final[dict[Kind, int]] = {
    "kill": 8,
    "pause": 3,
    "isolate": 3,
    "one-way": 1,
    "bridge": 1,
    "restart": 1,
    "kill all": 1,
}
TARGETS: Final[dict[Target, int]] = {"leader": 5, "controller": 3, "coordinator": 3, "any": 1}
REST_SECONDS: Final = (1.0, 5.0)
LASTING_SECONDS: Final = (0.5, 14.0)
HEALED_SECONDS_MAX: Final = 120.0


#: Types of coordinators.
GROUP, TRANSACTION = 0, 1


class Fault(NamedTuple):
    kind: Kind
    target: Target
    #: Time without faults before this one.
    rest_seconds: float
    #: Duration of the fault.
    seconds: float


class NotHealed(Exception):
    """The cluster did not recover after the last fault."""


def plan(seed: int, seconds: float, *, has_network: bool) -> list[Fault]:
    chance = random.Random(f"{seed}-nemesis")
    kinds = [
        kind for kind in WEIGHTS if has_network or kind not in ("isolate", "one-way", "bridge")
    ]
    faults: list[Fault] = []
    spent = 0.0
    while spent < seconds:
        (kind,) = chance.choices(kinds, [WEIGHTS[kind] for kind in kinds])
        (target,) = chance.choices(list(TARGETS), list(TARGETS.values()))
        rest, lasting = chance.uniform(*REST_SECONDS), chance.uniform(*LASTING_SECONDS)
        faults.append(Fault(kind, target, rest, lasting))
        spent += rest + lasting
    return faults


class ClusterNemesis:
    def __init__(
        self,
        run: ClusterRun,
        cluster: Cluster,
        partitions: Sequence[TopicPartition],
        network: Network | None,
        *,
        coordinated: Sequence[tuple[int, str]] = (),
    ) -> None:
        """`coordinated` lists the keys whose coordinators are targets, as (GROUP or TRANSACTION,
        name)."""
        self._coordinated = coordinated
        self._run = run
        self._cluster = cluster
        self._partitions = partitions
        self._network = network
        self._client = ClusterClient(run.addresses, name="nemesis")
        self._chance = random.Random(f"{run.seed}-targets")
        self.done: Counter[str] = Counter()
        self._loads: list[float] = []

    def carry_out(self, faults: Sequence[Fault]) -> None:
        for fault in faults:
            time.sleep(fault.rest_seconds)
            self._revive()
            self._do(fault)
            self.done[f"{fault.kind} {fault.target}"] += 1
            self._loads.append(os.getloadavg()[0] / (os.cpu_count() or 1))
        self.heal()

    @property
    def load(self) -> float:
        """The machine's average load per core during the faults."""
        return sum(self._loads) / max(1, len(self._loads))

    def close(self) -> None:
        self._client.close()

    def heal(self) -> None:
        """Clears all faults and waits until all nodes are up and in sync."""
        if self._network is not None:
            self._network.heal()
        for server in self._cluster.servers:
            if server.process is None:
                server.launch()
        deadline = time.monotonic() + HEALED_SECONDS_MAX
        while not self._is_healed():
            self._revive()
            if time.monotonic() > deadline:
                raise NotHealed(self._cluster.log_tail())
            time.sleep(0.1)

    def _is_healed(self) -> bool:
        servers = self._cluster.servers
        if any(len(broker_ids(server.host, server.port)) != len(servers) for server in servers):
            return False
        try:
            return all(self._client.in_sync(tp) == len(servers) for tp in self._partitions)
        except (OSError, ErrorResponse, ValueError):
            return False

    def _revive(self) -> None:
        """Restarts Kafka nodes that exited because they waited too long for a controller, as a
        supervisor would. Lograft's nodes must not exit (L4)."""
        for server in self._cluster.servers:
            if self._cluster.kind == "kafka" and server.has_ended_within(0):
                server.kill()
                server.launch()
                self.done["unexpected exit any"] += 1

    def _do(self, fault: Fault) -> None:
        tp = self._chance.choice(self._partitions)
        server = self._pick(fault.target, tp)
        match fault.kind:
            case "kill":
                self._kill([server])
            case "kill all":
                self._kill(self._cluster.servers)
            case "restart":
                server.stop()
            case "pause":
                running(server).send_signal(signal.SIGSTOP)
            case "isolate" | "one-way" | "bridge":
                self._cut(fault.kind, server.node_id)
        # Recorded after the fault is active, so that later sends are affected by it.
        self._run.history.record(
            "nemesis",
            "probe",
            "fault",
            kind=fault.kind,
            target=fault.target,
            tp=str(tp),
            node=server.node_id,
        )
        if fault.kind != "kill all":
            time.sleep(fault.seconds)
        self._undo(fault, server)

    def _undo(self, fault: Fault, server: Server) -> None:
        match fault.kind:
            case "kill" | "restart":
                server.launch()
            case "kill all":
                for each in self._cluster.servers:
                    each.launch()
            case "pause":
                running(server).send_signal(signal.SIGCONT)
            case "isolate" | "one-way" | "bridge":
                assert self._network is not None
                self._network.heal()

    def _cut(self, kind: Kind, node: int) -> None:
        network = self._network
        assert network is not None
        others = [each.node_id for each in self._cluster.servers if each.node_id != node]
        match kind:
            case "isolate":
                network.isolate(node)
            case "one-way":
                for other in others:
                    network.cut(node, other)
            case _:  # the other nodes reach this one, but not each other
                for first in others:
                    for second in others:
                        if first != second:
                            network.cut(first, second)

    def _kill(self, servers: Sequence[Server]) -> None:
        for server in servers:
            running(server).kill()
        for server in servers:
            server.kill()
        self._run.history.record("nemesis", "probe", "crash", kind="kill")

    def _pick(self, target: Target, tp: TopicPartition) -> Server:
        """Returns the node that currently has this role, or a random one if it is unknown."""
        try:
            if target == "leader":
                return self._at(self._client.leader_of(tp))
            if target == "controller":
                return self._cluster.node(self._controller())
            if target == "coordinator" and self._coordinated:
                return self._cluster.node(self._coordinator())
        except (OSError, ErrorResponse, StopIteration, LookupError):
            pass
        return self._chance.choice(self._cluster.servers)

    def _at(self, address: tuple[str, int]) -> Server:
        return next(
            server for server in self._cluster.servers if (server.host, server.port) == address
        )

    def _coordinator(self) -> int:
        kind, name = self._chance.choice(self._coordinated)
        request = FindCoordinatorRequest(key_type=kind, coordinator_keys=[name])
        server = self._chance.choice(self._cluster.servers)
        with RawClient(server.port, name="nemesis", host=server.host) as client:
            (coordinator,) = client.request(request, 4, FindCoordinatorResponse).coordinators
        if coordinator.error_code:
            raise ErrorResponse(coordinator.error_code)
        return coordinator.node_id

    def _controller(self) -> int:
        server = self._chance.choice(self._cluster.servers)
        with RawClient(server.port, name="nemesis", host=server.host) as client:
            return controller_in(client.request(quorum_request(), 2, DescribeQuorumResponse))


def running(server: Server) -> "subprocess.Popen[bytes]":
    assert server.process is not None, server.log_tail()
    assert server.process.poll() is None, server.log_tail()
    return server.process
