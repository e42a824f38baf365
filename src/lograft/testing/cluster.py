"""A real cluster inside the test process: nodes in threads, real sockets, disks in memory.

    async with Cluster(nodes=3) as cluster:          # or: with Cluster(nodes=3) as cluster
        cluster.create_topic("t", partitions=2, replication_factor=3)
        async with Producer(bootstrap_servers=cluster.bootstrap_servers) as producer:
            await producer.send("t", b"one")
            cluster.kill(cluster.leader_of("t", 0))
            await producer.send("t", b"two")

Any Kafka client can talk to it. Nodes do not share the test's event loop, so a call that waits for
them (`start`, `stop`, `create_topic`) blocks its caller for a few milliseconds and nobody else.
"""

import asyncio
import socket
from collections.abc import Callable, Mapping
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
#: Small, soon there, and quick to notice: a test waits for all of it.
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
    """Nodes are numbered from 1. `properties` are settings of all nodes, by Kafka's names; `seed`
    draws what a power loss takes."""

    def __init__(
        self, nodes: int = 1, *, properties: Mapping[str, str] | None = None, seed: int | str = 0
    ) -> None:
        super().__init__()
        self._random = Random(seed)
        self._links = Links()
        self._lives: dict[int, NodeThread] = {}
        #: Nodes whose end is the test's doing: their disk was full.
        self._hurt: set[int] = set()
        ports = _free_ports(2 * nodes)
        self._addresses = {i: Address(HOST, ports[i - 1]) for i in range(1, nodes + 1)}
        controllers = {i: Address(HOST, ports[nodes + i - 1]) for i in range(1, nodes + 1)}
        voters = tuple(
            Voter(NodeId(i), address, directory_id_of(i)) for i, address in controllers.items()
        )
        self._request = FormatRequest(cluster_id=CLUSTER_ID, controllers=InitialControllers(voters))
        self._platters = {i: Platter() for i in self._addresses}
        self._configs: dict[int, BrokerConfig] = {}
        for node_id, address in self._addresses.items():
            self._links.place(address.port, node_id)
            self._links.place(controllers[node_id].port, node_id)
            self._configs[node_id] = broker_config(
                {
                    **PROPERTIES,
                    **internal_topics(nodes),
                    "node.id": str(node_id),
                    "listeners": f"PLAINTEXT://{address},CONTROLLER://{controllers[node_id]}",
                    "controller.quorum.bootstrap.servers": ",".join(map(str, controllers.values())),
                    **(properties or {}),
                }
            )
        self._links.on_change = self._tell_of_links

    # ── with ─────────────────────────────────────────────────────────────────────────────────

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
            # Who is cancelled here gets no cluster to close; its thread cannot be cancelled.
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
        """Ends all nodes at once. What nodes died of that nobody killed."""
        for life in self._lives.values():
            life.kill()
        failures = [
            life.failure
            for node_id, life in self._lives.items()
            if life.failure is not None and node_id not in self._hurt
        ]
        self._lives.clear()
        return failures

    # ── nodes ────────────────────────────────────────────────────────────────────────────────

    def start(self, *node_ids: int) -> None:
        """Starts these nodes, or all that do not run, and waits until they serve and know each
        other. A node that ran before finds what it had on its disk."""
        wanted = node_ids or tuple(self._configs)
        for node_id in wanted:
            self._check_node(node_id)
        for node_id in wanted:
            if not self.is_running(node_id):
                self._forget(node_id)
                self._lives[node_id] = NodeThread(
                    self._configs[node_id],
                    self._request,
                    platter=self._platters[node_id],
                    links=self._links,
                    interpose=self.faults.interpose(
                        node_id, lambda channel: self._links.node_of(channel) == CLIENTS
                    ),
                )
        for node_id in wanted:
            self._lives[node_id].wait_serving()
        running = [i for i in self._configs if self.is_running(i)]
        for node_id in wanted:
            self._wait_image(node_id, lambda image: _are_there(image, running))

    def stop(self, node_id: int) -> None:
        """As SIGTERM does; returns when the node has ended."""
        self._life(node_id).stop()

    def kill(self, node_id: int) -> None:
        """As SIGKILL does: what was written stays."""
        self._life(node_id).kill()

    def lose_power(self, node_id: int) -> None:
        """As kill, and of what was not fsynced only some is left."""
        self._life(node_id).kill()
        self._platters[node_id].power_lost(self._random)

    def pause(self, node_id: int) -> None:
        """As SIGSTOP does; `resume` lets it go on."""
        self._life(node_id).pause()

    def resume(self, node_id: int) -> None:
        self._life(node_id).resume()

    def wait_ended(self, node_id: int) -> None:
        """Until a node has ended that nobody ends: of a full disk, say."""
        self._life(node_id).wait_ended()

    def is_running(self, node_id: int) -> bool:
        return node_id in self._lives and self._lives[node_id].is_running

    # ── links and disks ──────────────────────────────────────────────────────────────────────

    def cut(self, one: int, other: int, *, both_ways: bool = True) -> None:
        """Nothing gets from one node to the other until `heal`. 0 stands for all clients."""
        for node_id in (one, other):
            if node_id != CLIENTS:
                self._check_node(node_id)
        self._links.cut(one, other)
        if both_ways:
            self._links.cut(other, one)

    def isolate(self, node_id: int, *, clients_too: bool = False) -> None:
        """From every other node, and from clients if wanted."""
        self._check_node(node_id)
        for other in self._configs:
            if other != node_id:
                self.cut(node_id, other)
        if clients_too:
            self.cut(node_id, CLIENTS)

    def fill_disk(self, node_id: int) -> None:
        """Nothing more can be written there until `heal`. A node ends of that."""
        self._check_node(node_id)
        platter = self._platters[node_id]
        self._hurt.add(node_id)
        platter.capacity_bytes = platter.used_bytes

    def heal(self) -> None:
        """Links work, disks have room, requests do not fail, nobody is paused; who has ended is to
        be started again."""
        self.faults.clear()
        self._links.mend()
        for platter in self._platters.values():
            platter.capacity_bytes = CAPACITY_BYTES
        for life in self._lives.values():
            life.resume()

    # ── looking ──────────────────────────────────────────────────────────────────────────────

    @property
    def bootstrap_servers(self) -> str:
        """For clients: host:port of every node, with commas between."""
        return ",".join(str(address) for address in self._addresses.values())

    def address(self, node_id: int) -> str:
        return str(self._addresses[node_id])

    @property
    def image(self) -> MetadataImage:
        """The newest metadata that any running node has."""
        images: list[MetadataImage] = [
            self.ask(node_id, lambda node: node.shared.image)
            for node_id in self._configs
            if self.is_running(node_id)
        ]
        if not images:
            raise ValueError("no node runs that could be asked")
        return max(images, key=lambda image: image.offset)

    def leader_of(self, topic: str, partition: int) -> int:
        """-1: there is none."""
        found = self.image.topic(topic)
        if found is None or partition not in found.partitions:
            return -1
        return found.partitions[partition].leader

    @property
    def controller_id(self) -> int:
        """The active controller, as the newest epoch has it; -1: nobody knows one."""
        views: list[tuple[int, int]] = [
            self.ask(node_id, lambda node: (node.shared.quorum.epoch, node.shared.quorum.leader))
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
        """Returns when every running node knows the topic and its leaders."""
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
            raise ValueError("no node runs that could be asked")
        answer: CreateTopicsResponse = self.ask(
            running[0],
            lambda node: node.link.request(request, CREATE_TOPICS_VERSIONS, CreateTopicsResponse),
        )
        told = answer.topics[0]
        if told.error_code:
            raise ValueError(
                f"topic {name!r}: {ErrorCode(told.error_code).name}: {told.error_message}"
            )
        for node_id in running:
            self._wait_image(node_id, lambda image: image.topic(name) is not None)

    def ask(self, node_id: int, question: Callable[[Node], Any]) -> Any:
        """Calls the question with the node, in its own thread; awaits the answer if it must. For
        looking at what no client sees."""
        return self._life(node_id).ask(question)

    def _wait_image(self, node_id: int, is_met: Callable[[MetadataImage], bool]) -> None:
        self.ask(node_id, lambda node: node.shared.metadata.wait_image(is_met))

    def _check_node(self, node_id: int) -> None:
        if node_id not in self._configs:
            raise ValueError(
                f"there is no node {node_id}: they are numbered from 1 to {len(self._configs)}"
            )

    def _life(self, node_id: int) -> NodeThread:
        self._check_node(node_id)
        life = self._lives.get(node_id)
        if life is None:
            raise ValueError(f"node {node_id} has not been started")
        return life

    def _forget(self, node_id: int) -> None:
        """A life that has ended."""
        life = self._lives.pop(node_id, None)
        if life is not None and life.failure is not None and node_id not in self._hurt:
            raise NodeFailed(f"node {node_id} had ended by itself") from life.failure
        self._hurt.discard(node_id)

    def _tell_of_links(self) -> None:
        for life in list(self._lives.values()):
            life.links_changed()


def _are_there(image: MetadataImage, node_ids: list[int]) -> bool:
    return all(
        node_id in image.brokers and not image.brokers[node_id].fenced for node_id in node_ids
    )


def _free_ports(count: int) -> list[int]:
    """All held until all are known, so that they differ."""
    held = [socket.socket() for _ in range(count)]
    try:
        for one in held:
            one.bind((HOST, 0))
        return [one.getsockname()[1] for one in held]
    finally:
        for one in held:
            one.close()
