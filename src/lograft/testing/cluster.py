"""A cluster inside the test process: nodes in threads, with real sockets and in-memory disks.

    async with Cluster(nodes=3) as cluster:          # or: with Cluster(nodes=3) as cluster
        cluster.create_topic("t", partitions=2, replication_factor=3)
        async with Producer(bootstrap_servers=cluster.bootstrap_servers) as producer:
            await producer.send("t", b"one")
            cluster.kill(cluster.leader_of("t", 0))
            await producer.send("t", b"two")

Any Kafka client can connect to it. Nodes do not share the test's event loop, so a call that waits
for them (`start`, `stop`, `create_topic`) blocks only its caller, for a few milliseconds.
"""

import asyncio
import socket
from collections.abc import Callable, Iterable, Mapping
from random import Random
from types import TracebackType
from typing import Any, Final

from lograft.broker.quorum.formatting import FormatRequest, InitialControllers
from lograft.metadata.image import MetadataImage
from lograft.model.errors import ErrorCode
from lograft.model.listeners import Voter
from lograft.model.seams import Address
from lograft.model.settings.broker import BrokerConfig, broker_config
from lograft.model.types import NodeId
from lograft.node import Node
from lograft.simulation.cluster import directory_id_of
from lograft.simulation.platter import CAPACITY_BYTES, Platter
from lograft.testing.faults import FailingRequests
from lograft.testing.links import CLIENTS, Links
from lograft.testing.node_thread import NodeFailed, NodeThread
from lograft.testing.security import ADMIN, LISTENER, ClusterSecurity
from lograft.testing.settings import internal_topics
from lograft.wire.apis import Versions
from lograft.wire.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
    CreateTopicsResponse,
)

HOST: Final = "127.0.0.1"
CLUSTER_ID: Final = "lograft-test-cluster-1"
CREATE_TOPICS_VERSIONS: Final = Versions(7, 7)
#: Small internal topics and short timeouts, since tests wait for them.
PROPERTIES: Final = {
    "process.roles": "broker,controller",
    "controller.listener.names": "CONTROLLER",
    "inter.broker.listener.name": "PLAINTEXT",
    "log.dirs": "/data",
    "controller.quorum.election.timeout.ms": "200",
    "controller.quorum.election.backoff.max.ms": "200",
    "broker.heartbeat.interval.ms": "500",
    "broker.session.timeout.ms": "3000",
    "replica.lag.time.max.ms": "3000",
    "group.initial.rebalance.delay.ms": "0",
    "offsets.topic.num.partitions": "1",
    "transaction.state.log.num.partitions": "1",
}


class Cluster(FailingRequests):
    """Nodes that are numbered from 1. `properties` are settings of all nodes, by Kafka's names;
    `seed` determines which unflushed data a power loss destroys. With `security` "scram" or
    "plain", clients and nodes log in: `client_settings` returns the settings for one of `users`,
    and for `admin`, who always exists and is a super user."""

    def __init__(
        self,
        nodes: int = 1,
        *,
        properties: Mapping[str, str] | None = None,
        seed: int | str = 0,
        security: str | None = None,
        users: Iterable[str] = ("alice", "bob"),
    ) -> None:
        super().__init__()
        self._security = None if security is None else ClusterSecurity(security, users)
        self._random = Random(seed)
        self._links = Links()
        self._threads: dict[int, NodeThread] = {}
        #: Nodes whose failure the test has caused: their disk was full.
        self._failing_nodes: set[int] = set()
        ports = _free_ports(2 * nodes)
        self._addresses = {i: Address(HOST, ports[i - 1]) for i in range(1, nodes + 1)}
        controllers = {i: Address(HOST, ports[nodes + i - 1]) for i in range(1, nodes + 1)}
        voters = tuple(
            Voter(NodeId(i), address, directory_id_of(i)) for i, address in controllers.items()
        )
        secured = self._security
        self._request = FormatRequest(
            cluster_id=CLUSTER_ID,
            controllers=InitialControllers(voters),
            scram=() if secured is None else secured.credentials(),
        )
        listener = "PLAINTEXT" if secured is None else LISTENER
        self._platters = {i: Platter() for i in self._addresses}
        self._configs: dict[int, BrokerConfig] = {}
        for node_id, address in self._addresses.items():
            self._links.add_listener(address.port, node_id)
            self._links.add_listener(controllers[node_id].port, node_id)
            self._configs[node_id] = broker_config(
                {
                    **PROPERTIES,
                    **internal_topics(nodes),
                    "node.id": str(node_id),
                    "listeners": f"{listener}://{address},CONTROLLER://{controllers[node_id]}",
                    "controller.quorum.bootstrap.servers": ",".join(map(str, controllers.values())),
                    **({} if secured is None else secured.properties()),
                    **(properties or {}),
                }
            )
        self._links.on_change = self._notify_links_changed

    # ── context manager ──────────────────────────────────────────────────────────────────────

    def __enter__(self) -> "Cluster":
        try:
            self.start()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        failures = self.close()
        if failures and error is None:
            raise failures[0]

    async def __aenter__(self) -> "Cluster":
        starting = asyncio.ensure_future(asyncio.to_thread(self.start))
        try:
            await asyncio.shield(starting)
        except BaseException:
            # The caller gets no cluster to close, and the starting thread cannot be cancelled.
            await asyncio.gather(starting, return_exceptions=True)
            await asyncio.to_thread(self.close)
            raise
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await asyncio.to_thread(self.__exit__, kind, error, trace)

    def close(self) -> list[BaseException]:
        """Kills all nodes. Returns the errors of nodes that failed by themselves."""
        for thread in self._threads.values():
            thread.kill()
        failures = [
            thread.failure
            for node_id, thread in self._threads.items()
            if thread.failure is not None and node_id not in self._failing_nodes
        ]
        self._threads.clear()
        return failures

    # ── nodes ────────────────────────────────────────────────────────────────────────────────

    def start(self, *node_ids: int) -> None:
        """Starts these nodes, or all that are not running, and waits until they serve clients and
        are registered. A node that ran before continues with the data on its disk."""
        requested = node_ids or tuple(self._configs)
        for node_id in requested:
            self._check_node(node_id)
        for node_id in requested:
            if not self.is_running(node_id):
                self._remove_ended(node_id)
                self._threads[node_id] = NodeThread(
                    self._configs[node_id],
                    self._request,
                    platter=self._platters[node_id],
                    links=self._links,
                    interpose=self.faults.interpose(
                        node_id, lambda channel: self._links.node_of(channel) == CLIENTS
                    ),
                )
        for node_id in requested:
            self._threads[node_id].wait_serving()
        running = [i for i in self._configs if self.is_running(i)]
        for node_id in requested:
            self._wait_image(node_id, lambda image: _are_unfenced(image, running))

    def stop(self, node_id: int) -> None:
        """Shuts the node down like SIGTERM; returns when it has exited."""
        self._thread_of(node_id).stop()

    def kill(self, node_id: int) -> None:
        """Kills the node like SIGKILL: written data is preserved."""
        self._thread_of(node_id).kill()

    def lose_power(self, node_id: int) -> None:
        """Kills the node; data that was not fsynced is partly lost."""
        self._thread_of(node_id).kill()
        self._platters[node_id].on_power_lost(self._random)

    def pause(self, node_id: int) -> None:
        """Suspends the node like SIGSTOP, until `resume`."""
        self._thread_of(node_id).pause()

    def resume(self, node_id: int) -> None:
        self._thread_of(node_id).resume()

    def wait_ended(self, node_id: int) -> None:
        """Waits until a node has exited by itself, for example because its disk is full."""
        self._thread_of(node_id).wait_ended()

    def is_running(self, node_id: int) -> bool:
        return node_id in self._threads and self._threads[node_id].is_running

    # ── links and disks ──────────────────────────────────────────────────────────────────────

    def cut(self, source: int, target: int, *, both_ways: bool = True) -> None:
        """Drops the link between two nodes until `heal`. 0 stands for all clients."""
        for node_id in (source, target):
            if node_id != CLIENTS:
                self._check_node(node_id)
        self._links.cut(source, target)
        if both_ways:
            self._links.cut(target, source)

    def isolate(self, node_id: int, *, clients_too: bool = False) -> None:
        """Cuts the links to all other nodes, and to clients if `clients_too`."""
        self._check_node(node_id)
        for other in self._configs:
            if other != node_id:
                self.cut(node_id, other)
        if clients_too:
            self.cut(node_id, CLIENTS)

    def fill_disk(self, node_id: int) -> None:
        """Makes all writes of a node fail until `heal`; the node exits at its next write."""
        self._check_node(node_id)
        platter = self._platters[node_id]
        self._failing_nodes.add(node_id)
        platter.capacity_bytes = platter.used_bytes

    def heal(self) -> None:
        """Removes all faults: links work, disks have free space, requests succeed, paused nodes
        resume. Nodes that have exited are not restarted."""
        self.faults.clear()
        self._links.heal()
        for platter in self._platters.values():
            platter.capacity_bytes = CAPACITY_BYTES
        for thread in self._threads.values():
            thread.resume()

    # ── state ────────────────────────────────────────────────────────────────────────────────

    @property
    def bootstrap_servers(self) -> str:
        """The addresses of all nodes, for clients: host:port, separated by commas."""
        return ",".join(str(address) for address in self._addresses.values())

    def client_settings(self, user: str = ADMIN) -> dict[str, str]:
        """Returns the settings with which clients connect as this user, by Kafka's names. Without
        security, these are the bootstrap servers only."""
        if self._security is None:
            return {"bootstrap.servers": self.bootstrap_servers}
        return self._security.client_settings(user, self.bootstrap_servers)

    def address(self, node_id: int) -> str:
        return str(self._addresses[node_id])

    @property
    def image(self) -> MetadataImage:
        """The newest metadata image of the running nodes."""
        images: list[MetadataImage] = [
            self.call(node_id, lambda node: node.shared.image)
            for node_id in self._configs
            if self.is_running(node_id)
        ]
        if not images:
            raise ValueError("no node is running")
        return max(images, key=lambda image: image.offset)

    def leader_of(self, topic: str, partition: int) -> int:
        """Returns the node id of the leader; -1 if there is none."""
        found = self.image.topic(topic)
        if found is None or partition not in found.partitions:
            return -1
        return found.partitions[partition].leader

    @property
    def controller_id(self) -> int:
        """The active controller in the newest epoch; -1 if no running node knows it."""
        views: list[tuple[int, int]] = [
            self.call(node_id, lambda node: (node.shared.quorum.epoch, node.shared.quorum.leader))
            for node_id in self._configs
            if self.is_running(node_id)
        ]
        return max(views, default=(-1, -1))[1]

    def create_topic(
        self,
        name: str,
        *,
        partitions: int = 1,
        replication_factor: int = 1,
        configs: Mapping[str, str] | None = None,
    ) -> None:
        """Creates a topic and waits until all running nodes have it in their metadata."""
        request = CreateTopicsRequest(
            topics=[
                CreatableTopic(
                    name=name,
                    num_partitions=partitions,
                    replication_factor=replication_factor,
                    configs=[
                        CreatableTopicConfig(name=key, value=value)
                        for key, value in (configs or {}).items()
                    ],
                )
            ],
            timeout_ms=30_000,
        )
        running = [node_id for node_id in self._configs if self.is_running(node_id)]
        if not running:
            raise ValueError("no node is running")
        response: CreateTopicsResponse = self.call(
            running[0],
            lambda node: node.link.request(request, CREATE_TOPICS_VERSIONS, CreateTopicsResponse),
        )
        result = response.topics[0]
        if result.error_code:
            raise ValueError(
                f"cannot create topic {name!r}: {ErrorCode(result.error_code).name}:"
                f" {result.error_message}"
            )
        for node_id in running:
            self._wait_image(node_id, lambda image: image.topic(name) is not None)

    def call(self, node_id: int, function: Callable[[Node], Any]) -> Any:
        """Calls a function with the node, in the node's thread, and returns its result (that of the
        coroutine, if it returns one). Gives tests access to state that clients cannot see."""
        return self._thread_of(node_id).call(function)

    def _wait_image(self, node_id: int, is_met: Callable[[MetadataImage], bool]) -> None:
        self.call(node_id, lambda node: node.shared.metadata.wait_image(is_met))

    def _check_node(self, node_id: int) -> None:
        if node_id not in self._configs:
            raise ValueError(
                f"node {node_id} does not exist: nodes are numbered from 1 to {len(self._configs)}"
            )

    def _thread_of(self, node_id: int) -> NodeThread:
        self._check_node(node_id)
        thread = self._threads.get(node_id)
        if thread is None:
            raise ValueError(f"node {node_id} has not been started")
        return thread

    def _remove_ended(self, node_id: int) -> None:
        """Removes the thread of a node that has exited; raises NodeFailed if it had failed."""
        thread = self._threads.pop(node_id, None)
        if thread is not None and thread.failure is not None and node_id not in self._failing_nodes:
            raise NodeFailed(f"node {node_id} had failed") from thread.failure
        self._failing_nodes.discard(node_id)

    def _notify_links_changed(self) -> None:
        for thread in list(self._threads.values()):
            thread.links_changed()


def _are_unfenced(image: MetadataImage, node_ids: list[int]) -> bool:
    return all(
        node_id in image.brokers and not image.brokers[node_id].fenced for node_id in node_ids
    )


def _free_ports(count: int) -> list[int]:
    """Returns different free ports: all of them are bound before any is released."""
    sockets = [socket.socket() for _ in range(count)]
    try:
        for bound in sockets:
            bound.bind((HOST, 0))
        return [bound.getsockname()[1] for bound in sockets]
    finally:
        for bound in sockets:
            bound.close()
