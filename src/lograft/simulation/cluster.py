"""Whole clusters in one event loop: a machine for each node, one network, one clock.

    cluster = SimulatedCluster(nodes=3, seed=1)

    async def scenario() -> None:
        await cluster.start()
        client = cluster.client()
        …
        cluster.kill(1)
        await cluster.wait_serving(2, 3)

    cluster.run(scenario())

Nodes are numbered from 1; node 3 runs on host `n3`, serves clients on port 9092 and the quorum on
9093. Nodes restart automatically only if `restarts` is set. `lograft.testing.VirtualCluster` is the
public interface.
"""

import asyncio
from collections.abc import Coroutine, Mapping, Sequence
from typing import Any, Final, TypeVar
from uuid import UUID

from lograft.broker.quorum.formatting import (
    Controllers,
    FormatRequest,
    InitialControllers,
    NoInitialControllers,
)
from lograft.metadata.image import MetadataImage
from lograft.model.listeners import Voter
from lograft.model.seams import Address, Runtime
from lograft.model.settings.broker import broker_config
from lograft.model.types import NodeId
from lograft.node import Node
from lograft.security.scram_credentials import ScramCredential
from lograft.simulation.checkers import Violation
from lograft.simulation.errors import SimulationFailed
from lograft.simulation.fence import fence
from lograft.simulation.hosts import RESTART_SECONDS, Host
from lograft.simulation.loop import SimulatedLoop
from lograft.simulation.machine import Machine
from lograft.simulation.network import Network
from lograft.simulation.policies import policy_of
from lograft.simulation.routing import ClusterClient
from lograft.simulation.trace import Streams

T = TypeVar("T")

BROKER_PORT: Final = 9092
CONTROLLER_PORT: Final = 9093
CLUSTER_ID: Final = "simulated-cluster-id-1"
DATA: Final = "/data"
COMBINED: Final = "broker,controller"
#: Virtual time within which nodes must start if no fault prevents it.
START_SECONDS: Final = 60
POLL_SECONDS: Final = 0.02
#: Short intervals and timeouts, so that background work happens often within a run.
PROPERTIES: Final = {
    "controller.listener.names": "CONTROLLER",
    "inter.broker.listener.name": "PLAINTEXT",
    "log.dirs": DATA,
    "offsets.topic.replication.factor": "3",
    "log.flush.offset.checkpoint.interval.ms": "700",
    "log.flush.start.offset.checkpoint.interval.ms": "700",
    "replica.high.watermark.checkpoint.interval.ms": "700",
    "log.retention.check.interval.ms": "1000",
    "log.segment.delete.delay.ms": "100",
    "log.cleaner.backoff.ms": "700",
    "metadata.log.max.record.bytes.between.snapshots": "20000",
    "broker.heartbeat.interval.ms": "500",
    "broker.session.timeout.ms": "3000",
    "replica.lag.time.max.ms": "2000",
    "replica.socket.timeout.ms": "5000",
    "controller.quorum.election.timeout.ms": "500",
    "controller.quorum.election.backoff.max.ms": "300",
    "controller.quorum.fetch.timeout.ms": "1000",
    "controlled.shutdown.retry.backoff.ms": "500",
}


class SimulatedCluster:
    def __init__(
        self,
        nodes: int = 3,
        *,
        seed: int | str = 0,
        roles: Sequence[str] = (),
        is_static: bool = False,
        joiners: Sequence[int] = (),
        properties: Mapping[str, str] | None = None,
        users: Sequence[ScramCredential] = (),
        policy: str = "uniform",
        restarts: bool = False,
        loop: SimulatedLoop | None = None,
    ) -> None:
        """`roles` has the process.roles of each node; missing entries are `broker,controller`.
        `is_static` configures the voters in controller.quorum.voters instead of the log. `joiners`
        are controllers that are not voters at first. `users`: SCRAM users that exist from the
        start."""
        streams = Streams(seed)
        self.loop = loop or SimulatedLoop(
            streams=streams, policy=policy_of(policy, streams.stream("schedule"))
        )
        self.network = Network(self.loop)
        self.violations: list[Violation] = []
        #: Events of the nodes: (host, event, values).
        self.probes: list[tuple[str, str, dict[str, Any]]] = []
        self._restarts = restarts
        self._joiners = joiners
        self._users = tuple(users)
        self._clients = 0
        #: Client machines by name.
        self.client_hosts: dict[str, Machine] = {}
        ids = range(1, nodes + 1)
        self.roles = {i: roles[i - 1] if i <= len(roles) else COMBINED for i in ids}
        self.hosts: dict[int, Host] = {
            node_id: self._make_host(node_id, is_static, properties or {}) for node_id in ids
        }

    def _make_host(self, node_id: int, is_static: bool, extra: Mapping[str, str]) -> Host:
        role = self.roles[node_id]
        name = f"n{node_id}"
        voters = [
            i for i, each in self.roles.items() if "controller" in each and i not in self._joiners
        ]
        listeners = []
        if "broker" in role:
            listeners.append(f"PLAINTEXT://{name}:{BROKER_PORT}")
        if "controller" in role:
            listeners.append(f"CONTROLLER://{name}:{CONTROLLER_PORT}")
        addresses = {i: Address(f"n{i}", CONTROLLER_PORT) for i in voters}
        quorum = (
            {"controller.quorum.voters": ",".join(f"{i}@{addresses[i]}" for i in voters)}
            if is_static
            else {"controller.quorum.bootstrap.servers": ",".join(map(str, addresses.values()))}
        )
        controllers: Controllers | None = None
        if node_id in self._joiners:
            controllers = NoInitialControllers()
        elif not is_static and "controller" in role:
            controllers = InitialControllers(
                tuple(Voter(NodeId(i), addresses[i], directory_id_of(i)) for i in voters)
            )
        config = broker_config(
            {
                **PROPERTIES,
                "process.roles": role,
                "node.id": str(node_id),
                "listeners": ",".join(listeners),
                **quorum,
                **extra,
            }
        )
        return Host(
            self.loop,
            self.network,
            name,
            config,
            FormatRequest(cluster_id=CLUSTER_ID, controllers=controllers, scram=self._users),
            observer=self,
            random=self.loop.streams.stream("restarts"),
            restart_seconds=RESTART_SECONDS if self._restarts else (0.0,),
        )

    # -- running -----------------------------------------------------------------------------------

    def run(self, main: Coroutine[Any, Any, T]) -> T:
        """Runs `main` inside the fence and returns its result. Raises the first violation of any
        node."""
        try:
            with fence():
                result = self.loop.run_until_complete(main)
        finally:
            self.loop.close()
        for context in self.loop.unhandled:
            self.report_violation("L4", f"{context.get('message')}: {context.get('exception')!r}")
        if self.violations:
            raise self.violations[0].to_exception()
        return result

    async def start(self, *node_ids: int) -> None:
        """Starts the given nodes, or all, and waits until they serve requests."""
        for node_id in node_ids or self.hosts:
            self.boot(node_id)
        await self.wait_serving(*node_ids)

    def boot(self, node_id: int) -> None:
        host = self.hosts[node_id]
        host.set_should_run(True)
        if not host.is_supervised:
            host.supervise()

    async def wait_serving(self, *node_ids: int, seconds: float = START_SECONDS) -> None:
        """Raises TimeoutError, or the violation that stopped a node."""
        for node_id in node_ids or self.hosts:
            deadline_ns = self.loop.now_ns + int(seconds * 1e9)
            while not self.hosts[node_id].serving.is_set():
                if self.violations and not self._restarts:
                    raise self.violations[0].to_exception()
                if self.loop.now_ns > deadline_ns:
                    raise TimeoutError(f"node {node_id} does not serve requests after {seconds} s")
                await asyncio.sleep(POLL_SECONDS)

    async def wait_for(self, is_met: Any, *, seconds: float = START_SECONDS) -> None:
        """Polls `is_met` until it returns true. Raises SimulationFailed after `seconds`."""
        deadline_ns = self.loop.now_ns + int(seconds * 1e9)
        while not is_met():
            if self.loop.now_ns > deadline_ns:
                raise SimulationFailed(f"condition not met within {seconds} s: {is_met}")
            await asyncio.sleep(POLL_SECONDS)

    # -- observer of the hosts ---------------------------------------------------------------------

    def probe(self, host: Host, f: str, **v: Any) -> None:
        self.probes.append((host.name, f, v))

    def report_violation(self, invariant: str, message: str) -> None:
        self.violations.append(Violation(invariant, message))

    # -- state -------------------------------------------------------------------------------------

    def node(self, node_id: int) -> Node:
        node = self.hosts[node_id].node
        assert node is not None, f"node {node_id} is not running"
        return node

    def nodes(self) -> dict[int, Node]:
        """Returns the nodes that are running and serve requests."""
        return {
            node_id: host.node
            for node_id, host in self.hosts.items()
            if host.node is not None and host.serving.is_set()
        }

    @property
    def controller_id(self) -> int:
        """The active controller in the newest epoch; -1 if no node knows one."""
        views = [(node.shared.quorum.epoch, node.shared.quorum.leader) for node in self._views()]
        return max(views, default=(-1, -1))[1]

    @property
    def image(self) -> MetadataImage:
        """The newest metadata image of any running node."""
        return max((node.shared.image for node in self._views()), key=lambda each: each.offset)

    def _views(self) -> list[Node]:
        return list(self.nodes().values())

    def leader_of(self, topic: str, index: int) -> int:
        topic_image = self.image.topic(topic)
        if topic_image is None or index not in topic_image.partitions:
            return -1
        return topic_image.partitions[index].leader

    def bootstrap(self) -> list[Address]:
        return [Address(f"n{i}", BROKER_PORT) for i, role in self.roles.items() if "broker" in role]

    def client(self, host: str = "client") -> ClusterClient:
        """Returns a client on the client machine `host`, which can be isolated like a node."""
        self._clients += 1
        return ClusterClient(
            self.client_runtime(host).transport,
            self.bootstrap(),
            client_id=f"c{self._clients}",
            random=self.loop.streams.stream("clients"),
        )

    def client_runtime(self, host: str = "client") -> Runtime:
        """Returns the seams of a client machine, for `Producer(..., runtime=...)`."""
        machine = self.client_hosts.get(host)
        if machine is None:
            machine = self.client_hosts[host] = Machine(self.loop, self.network, host)
            machine.boot()
        assert machine.life is not None
        return machine.life.runtime

    # -- faults ------------------------------------------------------------------------------------

    def kill(self, node_id: int) -> None:
        """SIGKILL: written data stays in the page cache, and peers see their connections reset."""
        self._end(node_id, "kill")

    def lose_power(self, node_id: int) -> None:
        self._end(node_id, "power")

    def _end(self, node_id: int, kind: str) -> None:
        host = self.hosts[node_id]
        host.set_should_run(self._restarts)
        if host.is_up:
            host.end(kind)

    async def stop(self, node_id: int) -> None:
        """SIGTERM; returns when the process has exited."""
        self.hosts[node_id].set_should_run(self._restarts)
        await self.hosts[node_id].stop()

    def pause(self, node_id: int) -> None:
        """SIGSTOP."""
        self.hosts[node_id].pause()

    def resume(self, node_id: int) -> None:
        self.hosts[node_id].resume()

    def cut(self, node_id: int, other: int, *, both_ways: bool = True) -> None:
        self.network.cut(f"n{node_id}", f"n{other}")
        if both_ways:
            self.network.cut(f"n{other}", f"n{node_id}")

    def isolate(self, node_id: int, *, clients_too: bool = False) -> None:
        """Cuts the links to all other nodes, and to clients with `clients_too`."""
        for other in self.hosts:
            if other != node_id:
                self.cut(node_id, other)
        for host in self.client_hosts if clients_too else ():
            self.network.cut(f"n{node_id}", host)
            self.network.cut(host, f"n{node_id}")

    def heal(self) -> None:
        """Restores all links, resumes paused nodes and removes disk faults; stopped nodes stay
        stopped."""
        self.network.heal()
        for host in self.hosts.values():
            host.clear_faults()


def directory_id_of(node_id: int) -> UUID:
    """Returns the directory ID of an initial voter; fixed, because every voter must know all of
    them."""
    return UUID(int=0x5EED_0000_0000_4000_8000_0000_0000_0000 + node_id)
