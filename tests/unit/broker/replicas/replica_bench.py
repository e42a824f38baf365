"""Several brokers on simulated machines, with real connections between them.

The controller is a stub: it decides immediately, and each broker receives the metadata after its
own delay.
"""

import asyncio
import gc
import warnings
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar, cast

from lograft.api.router import Router
from lograft.broker.broker import Broker
from lograft.broker.cluster_metadata import ClusterMetadata
from lograft.broker.errors import ControllerUnreachable
from lograft.broker.links.controller_link import ControllerLink
from lograft.broker.links.peers import Peers
from lograft.broker.partitions.partition import Partition
from lograft.broker.shared_services import SharedServices
from lograft.metadata.alter_partition import alter_partition
from lograft.metadata.brokers import fence_broker, heartbeat, register_broker
from lograft.metadata.features import SUPPORTED
from lograft.metadata.image import MetadataImage
from lograft.metadata.topics import create_topics
from lograft.metadata.types import ControllerResult, PartitionState
from lograft.model.seams import Address
from lograft.model.settings.broker import BrokerConfig
from lograft.model.types import BrokerEpoch, Epoch, Offset
from lograft.net.connection_limits import ConnectionQuota
from lograft.net.frame_memory import FrameBudget
from lograft.net.server import Server, ServerLimits
from lograft.simulation.loop import SimulatedLoop
from lograft.simulation.machine import Life, Machine
from lograft.simulation.network import Network
from lograft.wire.apis import Versions
from lograft.wire.message import Message
from lograft.wire.messages.alter_partition import AlterPartitionRequest
from lograft.wire.messages.broker_heartbeat import BrokerHeartbeatRequest
from lograft.wire.messages.broker_registration import (
    BrokerRegistrationRequest,
    Feature,
    Listener,
)
from lograft.wire.messages.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from lograft.wire.records.feature_level_record import FeatureLevelRecord
from tests.support.waiting import wait_until_async
from tests.unit.broker.bench import (
    CLUSTER_ID,
    LISTENER,
    StandInProducerIds,
    StandInQuorum,
    StandInRegistration,
    directory_id,
    make_config,
)

T = TypeVar("T")
M = TypeVar("M", bound=Message)
PORT = 9092


class Controller:
    """Its image is always the latest; brokers receive a change after `delay_s`."""

    def __init__(self, config: BrokerConfig) -> None:
        self.config = config
        self.image = MetadataImage()
        self.log: list[tuple[Offset, tuple[Message, ...]]] = []
        self.nodes: list[Node] = []
        self.delay_s: dict[int, float] = {}
        #: Proposals get no response while it is unreachable.
        self.unreachable = False
        self.append(
            tuple(
                FeatureLevelRecord(name=name, feature_level=versions.max_version)
                for name, versions in SUPPORTED.items()
            )
        )

    def append(self, records: tuple[Message, ...]) -> None:
        if records:
            offset = Offset(self.image.offset + len(records))
            self.image.apply(records, offset=offset, epoch=Epoch(1))
            self.log.append((offset, records))
            for node in self.nodes:
                node.changed.set()

    def decide(self, outcome: ControllerResult[T]) -> T:
        self.append(outcome.records)
        return outcome.reply

    async def request(
        self,
        message: Message,
        versions: Versions,
        answer: type[T],
        *,
        timeout_ms: int | None = None,
        lograft_only: bool = False,
    ) -> T:
        await asyncio.sleep(0.002)
        if self.unreachable:
            raise ControllerUnreachable("cut off")
        assert isinstance(message, AlterPartitionRequest)
        outcome = alter_partition(self.image, message, versions.newest, config=self.config)
        return cast(T, self.decide(outcome))


class Node:
    """A broker; `life` ends with a kill, and the next one uses the same disk."""

    def __init__(
        self, node_id: int, life: Life, controller: Controller, settings: dict[str, str]
    ) -> None:
        self.node_id = node_id
        self.life = life
        self.controller = controller
        self.config = make_config(
            node_id=str(node_id),
            controller_quorum_voters=f"{node_id}@localhost:9093",
            broker_rack=f"rack{node_id}",
            **settings,
        )
        self.changed = asyncio.Event()
        self.halted: list[str] = []
        self.epoch = -1
        self._seen = 0
        for path in self.config.log_dirs:
            life.disk.make_dir(path)
        runtime = life.runtime
        quorum = StandInQuorum()
        self.peers = Peers(runtime, client_id=f"node{node_id}")
        self.broker = Broker(
            SharedServices(
                runtime,
                ClusterMetadata(self.config),
                cluster_id=CLUSTER_ID,
                controller=cast(Any, controller),
                quorum=quorum,
                peers=self.peers,
            ),
            directory_ids={path: directory_id(f"{node_id}{path}") for path in self.config.log_dirs},
            link=ControllerLink(runtime, quorum, self.peers),
            registration=StandInRegistration(),
            producer_ids=StandInProducerIds(),
            halt=self.halted.append,
        )
        self.server = Server(
            LISTENER,
            Router(self.broker.shared, self.broker, listener=LISTENER),
            runtime=runtime,
            quota=ConnectionQuota(),
            budget=FrameBudget(),
            limits=ServerLimits(),
            transport=runtime.transport,
        )

    async def start(self) -> None:
        controller = self.controller
        await self.server.start(Address(self.life.machine.host, PORT))
        controller.nodes.append(self)
        previous = await self.broker.logs.read_previous_epoch()
        self.epoch = controller.decide(
            register_broker(
                controller.image,
                self._registration(previous),
                cluster_id=CLUSTER_ID,
                config=controller.config,
            )
        ).broker_epoch
        while self._seen < len(controller.log):
            self._learn()
        await self.broker.load(BrokerEpoch(self.epoch))
        self.broker.replicas.start(self.peers, controller)
        self.life.runtime.spawn(self._follow(), name="metadata")
        self.server.serve()
        self.beat()

    def beat(self) -> None:
        """Catches up with its registration and is unfenced."""
        self.controller.decide(
            heartbeat(
                self.controller.image,
                BrokerHeartbeatRequest(
                    broker_id=self.node_id,
                    broker_epoch=self.epoch,
                    current_metadata_offset=self.controller.image.offset,
                ),
                config=self.controller.config,
            )
        )

    def _learn(self) -> None:
        offset, records = self.controller.log[self._seen]
        self._seen += 1
        self.broker.metadata.on_committed(offset, Epoch(1), records)

    async def _follow(self) -> None:
        while True:
            while self._seen < len(self.controller.log):
                await asyncio.sleep(self.controller.delay_s.get(self.node_id, 0.001))
                self._learn()
            self.changed.clear()
            await self.changed.wait()

    def _registration(self, previous_epoch: int) -> BrokerRegistrationRequest:
        return BrokerRegistrationRequest(
            broker_id=self.node_id,
            cluster_id=CLUSTER_ID,
            incarnation_id=self.life.runtime.randomness.uuid(),
            listeners=[Listener(name=LISTENER, host=self.life.machine.host, port=PORT)],
            features=[
                Feature(
                    name=name,
                    min_supported_version=versions.min_version,
                    max_supported_version=versions.max_version,
                )
                for name, versions in SUPPORTED.items()
            ],
            rack=self.config.broker_rack,
            log_dirs=[directory.directory_id for directory in self.broker.logs.directories],
            previous_broker_epoch=previous_epoch,
        )

    def partition(self, topic: str, index: int = 0) -> Partition:
        found = self.broker.partitions.get(topic, index)
        assert found is not None, f"{self.node_id} has no {topic}-{index}"
        return found


class Cluster:
    def __init__(self, count: int = 3, *, seed: int = 1, **settings: str) -> None:
        self.loop = SimulatedLoop(seed)
        self.network = Network(self.loop)
        self.settings = {"replica_lag_time_max_ms": "2000"} | settings
        self.controller = Controller(make_config(**self.settings))
        self.machines = {
            number: Machine(self.loop, self.network, f"n{number}") for number in range(1, count + 1)
        }
        self.nodes: dict[int, Node] = {}
        client = Machine(self.loop, self.network, "client").boot()
        self.client = Peers(client.runtime, client_id="test")

    async def start(self) -> None:
        for number in self.machines:
            await self.boot(number)

    async def boot(self, number: int) -> Node:
        life = self.machines[number].boot()
        node = self.nodes[number] = Node(number, life, self.controller, self.settings)
        await life.run(node.start(), name=f"start {number}")
        return node

    def kill(self, number: int) -> None:
        """The process exits; the controller does not know yet."""
        node = self.nodes.pop(number)
        self.controller.nodes.remove(node)
        self.machines[number].kill()

    def fence(self, number: int) -> None:
        self.controller.decide(
            fence_broker(self.controller.image, number, config=self.controller.config)
        )

    def create_topic(self, name: str, *replicas: int, **configs: str) -> None:
        request = CreateTopicsRequest(
            topics=[
                CreatableTopic(
                    name=name,
                    num_partitions=-1,
                    replication_factor=-1,
                    assignments=[
                        CreatableReplicaAssignment(partition_index=0, broker_ids=list(replicas))
                    ],
                    configs=[
                        CreatableTopicConfig(name=key.replace("_", "."), value=value)
                        for key, value in configs.items()
                    ],
                )
            ]
        )
        reply = self.controller.decide(
            create_topics(
                self.controller.image,
                request,
                config=self.controller.config,
                new_id=self.nodes[replicas[0]].life.runtime.randomness.uuid,
            )
        )
        assert reply.topics[0].error_code == 0, reply.topics[0]

    def state(self, topic: str, index: int = 0) -> PartitionState:
        found = self.controller.image.topic(topic)
        assert found is not None
        return found.partitions[index]

    def leader(self, topic: str, index: int = 0) -> Partition:
        return self.nodes[self.state(topic, index).leader].partition(topic, index)

    async def until(self, is_so: Callable[[], object], *, seconds: float = 30) -> None:
        await wait_until_async(is_so, seconds_max=seconds, pause_seconds=0.005)

    async def until_led(self, topic: str) -> Partition:
        def leads() -> bool:
            node = self.nodes.get(self.state(topic).leader)
            found = None if node is None else node.broker.partitions.get(topic, 0)
            return (
                found is not None
                and found.leader is not None
                and found.leader_epoch == self.state(topic).leader_epoch
            )

        await self.until(leads)
        return self.leader(topic)

    async def ask(
        self,
        number: int,
        request: Message,
        version: int,
        kind: type[M],
        *,
        timeout_ms: int = 10_000,
    ) -> M:
        """A client of that node."""
        return await self.client.request(
            Address(f"n{number}", PORT),
            request,
            Versions(version, version),
            kind,
            timeout_ms=timeout_ms,
        )

    def run(self, scenario: Callable[["Cluster"], Coroutine[Any, Any, None]]) -> None:
        async def live() -> None:
            await self.start()
            await scenario(self)

        try:
            task = self.loop.create_task(live())
            self.loop.run_until_complete(task)
            failures = [f for node in self.nodes.values() for f in node.life.failures]
            assert not failures, failures
        finally:
            self._end()

    def _end(self) -> None:
        """All at the same time, like a power loss: requests that are not handled yet are
        dropped."""
        self.loop.close()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", RuntimeWarning)
            self.nodes.clear()
            self.controller.nodes.clear()
            gc.collect()


def run_cluster(
    scenario: Callable[[Cluster], Coroutine[Any, Any, None]],
    count: int = 3,
    *,
    seed: int = 1,
    **settings: str,
) -> None:
    Cluster(count, seed=seed, **settings).run(scenario)
