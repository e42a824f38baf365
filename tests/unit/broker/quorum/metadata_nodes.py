"""The control path of one node on a simulated machine: log, quorum, controller, snapshots."""

from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any, TypeVar, cast
from uuid import UUID

from lograft.api.errors import code_of
from lograft.broker.cluster_metadata import ClusterMetadata
from lograft.broker.control.controller import Controller
from lograft.broker.control.registration import BrokerRegistration
from lograft.broker.links.controller_link import ControllerLink, ForwardedRequest
from lograft.broker.links.peers import Peers
from lograft.broker.quorum.formatting import FormatRequest, Standalone, format_directories
from lograft.broker.quorum.metadata_loading import LoadedMetadata, load_metadata
from lograft.broker.quorum.raft_driver import RaftDriver
from lograft.broker.quorum.snapshotter import Snapshotter
from lograft.metadata.directories import assign_directories
from lograft.metadata.image import MetadataImage
from lograft.metadata.producer_ids import allocate_producer_ids
from lograft.metadata.topics import create_topics
from lograft.metadata.types import ControllerResult, Endpoint
from lograft.model.errors import LograftError
from lograft.model.settings.broker import BrokerConfig, broker_config
from lograft.model.types import Epoch, Offset, TopicIdPartition
from lograft.simulation.loop import SimulatedLoop
from lograft.simulation.machine import Life, Machine
from lograft.simulation.network import Network
from lograft.storage.log_dirs import read_meta_properties
from lograft.wire.apis import response_class
from lograft.wire.message import Message
from lograft.wire.messages.allocate_producer_ids import AllocateProducerIdsRequest
from lograft.wire.messages.assign_replicas_to_dirs import (
    AssignReplicasToDirsRequest,
    AssignReplicasToDirsResponse,
)
from lograft.wire.messages.broker_heartbeat import BrokerHeartbeatRequest
from lograft.wire.messages.broker_registration import BrokerRegistrationRequest
from lograft.wire.messages.create_topics import (
    CreatableTopic,
    CreateTopicsRequest,
    CreateTopicsResponse,
)

T = TypeVar("T")
FOLDER = "/data/__cluster_metadata-0"


def node_config(**settings: str) -> BrokerConfig:
    return broker_config(
        {
            "node.id": "1",
            "process.roles": "broker,controller",
            "controller.listener.names": "CONTROLLER",
            "listeners": "PLAINTEXT://localhost:9092,CONTROLLER://localhost:9093",
            "controller.quorum.bootstrap.servers": "localhost:9093",
            "log.dirs": "/data",
            **{name.replace("_", "."): value for name, value in settings.items()},
        }
    )


def new_machine(seed: int = 1) -> Machine:
    loop = SimulatedLoop(seed)
    return Machine(loop, Network(loop), "node")


def run(work: Callable[[Life], Awaitable[T]], machine: Machine | None = None) -> T:
    """A process on the machine; it exits when the work is done."""
    machine = machine or new_machine()
    life = machine.boot()

    async def main() -> T:
        return await work(life)

    result = machine.loop.run_until_complete(life.run(main(), name="main"))
    assert not life.failures
    machine.kill()
    return result


class FakeDirectories:
    """The log dirs of a broker, as in its heartbeats."""

    def __init__(self) -> None:
        self.offline: list[UUID] = []
        self.cordoned: list[UUID] = []

    def offline_ids(self) -> list[UUID]:
        return list(self.offline)

    def cordoned_ids(self) -> list[UUID]:
        return self.cordoned


class ControlNode:
    """Broker and controller without the data path: the image, and its changes."""

    def __init__(self, life: Life, config: BrokerConfig, loaded: LoadedMetadata) -> None:
        self.life = life
        self.runtime = life.runtime
        self.config = config
        self.loaded = loaded
        self.metadata = ClusterMetadata(config)
        self.image = self.metadata.image
        self.batches: list[tuple[Offset, Epoch, int]] = []
        self.driver = RaftDriver(life.runtime, loaded, config, cluster_id="c")
        self.driver.add_listener(self._on_committed)
        self.controller = Controller(
            life.runtime,
            self.driver,
            self.metadata,
            cluster_id="c",
            bootstrap=loaded.bootstrap,
        )
        peers = Peers(life.runtime, client_id="test")
        self.link = ControllerLink(life.runtime, self.driver, peers, local_controller=self)
        self.snapshotter = Snapshotter(life.runtime, self.driver, self.metadata)
        self.driver.add_listener(self.snapshotter.on_committed)

    def _on_committed(self, offset: Offset, epoch: Epoch, records: Any) -> None:
        self.image.apply(records, offset=offset, epoch=epoch)
        self.batches.append((offset, epoch, len(records)))

    @classmethod
    async def load(cls, life: Life, config: BrokerConfig) -> "ControlNode":
        """Formats the storage on first use."""
        runtime = life.runtime

        def job() -> LoadedMetadata:
            disk = runtime.disk
            if read_meta_properties(disk, "/data") is None:
                request = FormatRequest(
                    cluster_id="c",
                    controllers=None if config.controller_quorum_voters else Standalone(),
                )
                format_directories(
                    disk,
                    config,
                    request,
                    randomness=runtime.randomness,
                    now_ms=runtime.clock.wall_ms(),
                )
            meta = read_meta_properties(disk, "/data")
            assert meta is not None
            assert meta.directory_id is not None
            return load_metadata(
                disk, config, directory_id=meta.directory_id, now_ms=runtime.clock.wall_ms()
            )

        return cls(life, config, await runtime.workers.run(job))

    @classmethod
    async def start(cls, life: Life, config: BrokerConfig | None = None) -> "ControlNode":
        node = await cls.load(life, config or node_config())
        node.driver.start()
        await node.driver.wait_ready()
        await node.controller.submit(lambda image: ControllerResult((), None))
        return node

    async def handle_forwarded(self, request: ForwardedRequest) -> Message:
        raise AssertionError("no client asks here")

    async def call(self, message: Message, version: int) -> Message:
        """The work of the handlers of these APIs."""
        controller = self.controller
        try:
            match message:
                case BrokerRegistrationRequest():
                    return await controller.register_broker(message)
                case BrokerHeartbeatRequest():
                    return await controller.heartbeat(message)
                case AllocateProducerIdsRequest():
                    return await controller.submit(partial(allocate_producer_ids, request=message))
                case AssignReplicasToDirsRequest():
                    return await self._assign(message)
                case _:
                    raise AssertionError(message)
        except LograftError as error:
            kind: Any = response_class(message.KEY)
            return cast(Message, kind(error_code=code_of(error)))

    async def _assign(self, request: AssignReplicasToDirsRequest) -> Message:
        assignments = {
            directory.id: [
                TopicIdPartition(topic.topic_id, partition.partition_index)
                for topic in directory.topics
                for partition in topic.partitions
            ]
            for directory in request.directories
        }
        await self.controller.submit(
            partial(
                assign_directories,
                broker_id=request.broker_id,
                broker_epoch=request.broker_epoch,
                assignments=assignments,
                config=self.config,
            )
        )
        return AssignReplicasToDirsResponse()

    def registration(self) -> BrokerRegistration:
        registration = BrokerRegistration(
            self.runtime,
            self.config,
            self.link,
            cluster_id="c",
            directory_ids=[self.directory_id],
            metadata=self.metadata,
            halt=_not_halted,
        )
        registration.prepare(
            FakeDirectories(), endpoints=[Endpoint("PLAINTEXT", "localhost", 9092, 0)]
        )
        return registration

    @property
    def directory_id(self) -> UUID:
        return self.loaded.me.directory_id

    async def create(self, name: str, partitions: int = 1) -> CreateTopicsResponse:
        topic = CreatableTopic(name=name, num_partitions=partitions, replication_factor=1)
        return await self.controller.submit(
            partial(
                create_topics,
                request=CreateTopicsRequest(topics=[topic]),
                config=self.config,
                new_id=self.runtime.randomness.uuid,
            )
        )

    async def with_broker(self) -> "ControlNode":
        registration = self.registration()
        await registration.register()
        self.runtime.spawn(registration.run(), name="heartbeats")
        await registration.wait_unfenced()
        return self


def _not_halted(reason: str) -> None:
    raise AssertionError(reason)


def decision(*records: Message) -> Callable[[MetadataImage], ControllerResult[str]]:
    return lambda image: ControllerResult(records, "done")
