"""A broker on a simulated machine, without sockets: requests arrive as frames, and time is virtual.
The controller is a stub that decides and commits immediately; everything else is the real
component."""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, TypeVar, cast
from uuid import UUID

from lograft.api.router import FastPaths, Router, Session
from lograft.api.security_log import SecurityLog
from lograft.broker.broker import Broker
from lograft.broker.cluster_metadata import ClusterMetadata
from lograft.broker.errors import NotController
from lograft.broker.links.controller_link import ControllerLink
from lograft.broker.links.peers import Peers
from lograft.broker.partitions.partition import Partition
from lograft.broker.quorum.raft_driver import ReplicaView
from lograft.broker.quorum.snapshots import Quorum
from lograft.broker.shared_services import SharedServices
from lograft.consensus import messages as core
from lograft.consensus.types import ReplicaKey, Voter, VoterSet
from lograft.metadata.brokers import heartbeat, register_broker
from lograft.metadata.features import SUPPORTED
from lograft.metadata.image import MetadataImage
from lograft.metadata.topics import create_topics
from lograft.metadata.types import ControllerResult
from lograft.model.errors import ErrorCode
from lograft.model.exchange import DelayedReply, EncodedResponse, PendingReply, Reply
from lograft.model.seams import Address, Channel, FileSlice
from lograft.model.settings.broker import BrokerConfig, broker_config
from lograft.model.types import BrokerEpoch, Epoch, NodeId, Offset, TopicIdPartition
from lograft.security.authorization import Authorizer
from lograft.simulation.loop import SimulatedLoop
from lograft.simulation.machine import Life, Machine
from lograft.simulation.network import Network
from lograft.storage.log import Log
from lograft.wire.apis import response_class, response_header_version
from lograft.wire.batches import Record, build_batch
from lograft.wire.codec import read_all
from lograft.wire.headers import frame_request, read_response_header
from lograft.wire.message import Message
from lograft.wire.messages.broker_heartbeat import BrokerHeartbeatRequest, BrokerHeartbeatResponse
from lograft.wire.messages.broker_registration import (
    BrokerRegistrationRequest,
    BrokerRegistrationResponse,
    Feature,
    Listener,
)
from lograft.wire.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from lograft.wire.records.feature_level_record import FeatureLevelRecord

T = TypeVar("T")
M = TypeVar("M", bound=Message)
CLUSTER_ID = "qO2lVZ6sTXWVlDXMwI2gRw"
LISTENER = "PLAINTEXT"


class StandInController:
    """Commits every decision immediately; `down` makes it reject them."""

    def __init__(self) -> None:
        self.image = MetadataImage()
        self.on_committed: Callable[[Offset, Epoch, tuple[Message, ...]], None] | None = None
        self.log: list[tuple[Offset, tuple[Message, ...]]] = []
        self.down = False
        self.disconnected: list[tuple[int, int]] = []
        self.hand_over: Callable[[TopicIdPartition, NodeId], Awaitable[ErrorCode]] | None = None

    async def register_broker(
        self, request: BrokerRegistrationRequest
    ) -> BrokerRegistrationResponse:
        return await self.submit(
            lambda image: register_broker(
                image, request, cluster_id=CLUSTER_ID, config=make_config()
            )
        )

    async def heartbeat(self, request: BrokerHeartbeatRequest) -> BrokerHeartbeatResponse:
        return await self.submit(lambda image: heartbeat(image, request, config=make_config()))

    def on_disconnected(self, broker_id: int, broker_epoch: int) -> None:
        self.disconnected.append((broker_id, broker_epoch))

    async def submit(self, decision: Callable[[MetadataImage], ControllerResult[T]]) -> T:
        if self.down:
            raise NotController("down")
        outcome = decision(self.image)
        self.append(outcome.records)
        await asyncio.sleep(0.0005)
        return outcome.reply

    def append(self, records: tuple[Message, ...]) -> None:
        if not records:
            return
        offset = Offset(self.image.offset + len(records))
        self.image.apply(records, offset=offset, epoch=Epoch(1))
        self.log.append((offset, records))
        if self.on_committed is not None:
            self.on_committed(offset, Epoch(1), records)


class StandInRegistration:
    """The epoch of a broker that the controller accepts, unless a test changes it."""

    def __init__(self) -> None:
        self.lease = True
        #: (id, path, whether there were leaders) of log dirs that went offline.
        self.failed: list[tuple[UUID, str, bool]] = []

    def current_epoch(self) -> BrokerEpoch:
        return BrokerEpoch(1)

    def has_lease(self) -> bool:
        return self.lease

    def on_directory_failed(self, directory_id: UUID, path: str, *, has_led: bool) -> None:
        self.failed.append((directory_id, path, has_led))


class StandInProducerIds:
    def __init__(self) -> None:
        self._next = 1000

    async def next(self) -> int:
        return self.take()

    async def wait_some(self) -> None:
        pass

    def take(self) -> int:
        self._next += 1
        return self._next


class StandInQuorum:
    is_leader = True
    leader = NodeId(1)
    epoch = Epoch(3)
    high_watermark = Offset(42)
    quorum = Quorum(kraft_version=1, voters=VoterSet.of([ReplicaKey(NodeId(1), UUID(int=77))]))

    @property
    def log(self) -> Log:
        log = Log.__new__(Log)
        log.end_offset = Offset(43)
        return log

    asked: tuple[core.Request, int] | None = None
    answer: core.Response | None = None
    learned: tuple[NodeId, Address] | None = None
    #: The address of the active controller if it is another node.
    endpoint: Address | None = None

    def leader_endpoint(self) -> Address | None:
        return self.endpoint

    @property
    def voters(self) -> VoterSet:
        return self.quorum.voters

    @property
    def me(self) -> ReplicaKey:
        return self.voters.voters[0].key

    def learn(self, node_id: NodeId, address: Address) -> None:
        self.learned = (node_id, address)

    def replicas(self) -> list[ReplicaView]:
        return [ReplicaView(self.me, Offset(43), 1000, 1000, True)] if self.is_leader else []

    def describe_voter(self) -> Voter:
        return Voter(self.me)

    async def ask(self, request: core.Request, *, bytes_max: int = 0) -> core.Response:
        """Responds to every request with the response that the test has prepared."""
        self.asked = (request, bytes_max)
        assert self.answer is not None, request
        return self.answer


class Peer:
    peer = Address("10.0.0.1", 4711)


def make_config(log_dirs: str = "/data", **settings: str) -> BrokerConfig:
    return broker_config(
        {
            "node.id": "1",
            "process.roles": "broker,controller",
            "controller.listener.names": "CONTROLLER",
            "listeners": "PLAINTEXT://localhost:9092,CONTROLLER://localhost:9093",
            "controller.quorum.voters": "1@localhost:9093",
            "log.dirs": log_dirs,
            **{name.replace("_", "."): value for name, value in settings.items()},
        }
    )


class Bench:
    """`controller` outlives the processes of the broker, like the metadata log."""

    def __init__(self, life: Life, config: BrokerConfig, controller: StandInController) -> None:
        self.life = life
        self.config = config
        self.controller = controller
        self.halted: list[str] = []
        for path in config.log_dirs:
            life.disk.make_dir(path)
        self.quorum = quorum = StandInQuorum()
        peers = Peers(life.runtime, client_id="bench")
        link = ControllerLink(life.runtime, quorum, peers)
        shared = SharedServices(
            life.runtime,
            ClusterMetadata(config),
            cluster_id=CLUSTER_ID,
            controller=controller,
            quorum=quorum,
            peers=peers,
        )
        self.registration = StandInRegistration()
        self.broker = Broker(
            shared,
            directory_ids={path: directory_id(path) for path in config.log_dirs},
            link=link,
            registration=self.registration,
            producer_ids=StandInProducerIds(),
            halt=self.halted.append,
        )
        self.authorize_with(None)
        self.previous_epoch = -1

    def authorize_with(self, authorizer: Authorizer | None) -> None:
        """For all later connections, and for requests that this node forwards to itself."""
        self._authorizer = authorizer
        self._routers: dict[str, Session] = {}
        self.broker.link.local_controller = Router(
            self.broker.shared,
            None,
            listener="CONTROLLER",
            role="controller",
            authorizer=authorizer,
            quotas=self.broker.shared.quotas,
            security_log=SecurityLog(self.life.runtime.clock),
        )

    async def start(self) -> None:
        controller = self.controller
        if controller.image.is_empty:
            controller.append(
                tuple(
                    FeatureLevelRecord(name=name, feature_level=versions.max_version)
                    for name, versions in SUPPORTED.items()
                )
            )
        for offset, records in controller.log:
            self.broker.metadata.on_committed(offset, Epoch(1), records)
        controller.on_committed = self.broker.metadata.on_committed
        self.previous_epoch = await self.broker.logs.read_previous_epoch()
        reply = await controller.register_broker(self._registration())
        await self.broker.load(BrokerEpoch(reply.broker_epoch))
        await self.broker.logs.mark_running(reply.broker_epoch)
        await controller.heartbeat(
            BrokerHeartbeatRequest(
                broker_id=1,
                broker_epoch=reply.broker_epoch,
                current_metadata_offset=controller.image.offset,
            )
        )

    def _registration(self) -> BrokerRegistrationRequest:
        return BrokerRegistrationRequest(
            broker_id=1,
            cluster_id=CLUSTER_ID,
            incarnation_id=self.life.runtime.randomness.uuid(),
            listeners=[Listener(name=LISTENER, host="localhost", port=9092)],
            features=[
                Feature(
                    name=name,
                    min_supported_version=versions.min_version,
                    max_supported_version=versions.max_version,
                )
                for name, versions in SUPPORTED.items()
            ],
            rack=None,
            log_dirs=[directory.directory_id for directory in self.broker.logs.directories],
        )

    def begin_topic(self, name: str, partitions: int = 1, **configs: str) -> list[Partition]:
        """The partitions exist, but their logs are not open yet."""
        request = CreateTopicsRequest(
            topics=[
                CreatableTopic(
                    name=name,
                    num_partitions=partitions,
                    replication_factor=1,
                    configs=[
                        CreatableTopicConfig(name=key.replace("_", "."), value=value)
                        for key, value in configs.items()
                    ],
                )
            ]
        )
        outcome = create_topics(
            self.controller.image,
            request,
            config=self.config,
            new_id=self.life.runtime.randomness.uuid,
        )
        assert outcome.reply.topics[0].error_code == 0, outcome.reply.topics[0]
        self.controller.append(outcome.records)
        return [self.partition(name, index) for index in range(partitions)]

    async def create_topic(self, name: str, partitions: int = 1, **configs: str) -> list[Partition]:
        partitions_of_topic = self.begin_topic(name, partitions, **configs)
        for partition in partitions_of_topic:
            await partition.wait_open(timeout_ms=10_000)
        return partitions_of_topic

    def partition(self, name: str, index: int = 0) -> Partition:
        found = self.broker.partitions.get(name, index)
        assert found is not None, f"no partition {name}-{index}"
        return found

    def topic_id(self, name: str) -> UUID:
        return self.broker.image.topic_ids[name]

    def send(
        self, request: Message, version: int, *, client_id: str = "test", role: str = "broker"
    ) -> EncodedResponse | PendingReply | None:
        """The handler's response for the connection."""
        frame = frame_request(request, version, correlation_id=7, client_id=client_id)[4:]
        reply = self.session(role).handle_frame(memoryview(bytearray(frame)))
        return decoded(reply)

    def session(self, role: str) -> Session:
        """A connection's handler, one for each kind of listener."""
        session = self._routers.get(role)
        if session is None:
            listener = LISTENER if role == "broker" else "CONTROLLER"
            router = Router(
                self.broker.shared,
                self.broker if role == "broker" else None,
                listener=listener,
                role=role,
                link=self.broker.link,
                authorizer=self._authorizer,
                quotas=self.broker.shared.quotas,
            )
            session = self._routers[role] = router(cast(Channel, Peer()))
        return session

    async def ask(
        self,
        request: Message,
        version: int,
        kind: type[M],
        *,
        client_id: str = "test",
        role: str = "broker",
    ) -> M:
        reply = self.send(request, version, client_id=client_id, role=role)
        if isinstance(reply, PendingReply):
            reply = await reply.response
        assert reply is not None, "there is no answer"
        return self.read(reply, request.KEY, version, kind)

    def read(self, answer: EncodedResponse, key: int, version: int, kind: type[M]) -> M:
        assert kind is response_class(key)
        data = b"".join(
            part.file.pread(part.size, part.position) if isinstance(part, FileSlice) else part
            for part in answer.parts
        )[4:]
        correlation_id, position = read_response_header(data, response_header_version(key, version))
        assert correlation_id == 7
        return read_all(kind, version, data, position)


def fast_paths_of(router: Router) -> FastPaths:
    assert router.fast_paths is not None
    return router.fast_paths


def set_leader(partition: Partition, node: int, *, epoch: int) -> None:
    """Applies the change as if it were in the metadata."""
    before = partition.assignment
    partition.on_assignment(
        before._replace(
            leader=NodeId(node),
            leader_epoch=Epoch(epoch),
            partition_epoch=before.partition_epoch + 1,
        )
    )


def decoded(reply: Reply) -> EncodedResponse | PendingReply | None:
    """Responses of the fast paths, for comparison with the general path."""
    if isinstance(reply, bytes):
        return EncodedResponse((reply,))
    return PendingReply(unparked(reply)) if isinstance(reply, DelayedReply) else reply


async def unparked(parked: DelayedReply) -> EncodedResponse | None:
    """Waits like a connection."""
    changed = asyncio.Event()
    parked.begin(changed.set)
    try:
        reply: Reply = parked
        while reply is parked:
            await changed.wait()
            changed.clear()
            reply = parked.try_complete()
    except BaseException:
        parked.cancel()
        raise
    result = decoded(reply)
    return await result.response if isinstance(result, PendingReply) else result


def directory_id(path: str) -> UUID:
    return UUID(bytes=path.encode().rjust(16, b"\1")[-16:])


def batch_of(*values: bytes, timestamp: int = 1_767_225_600_000, **settings: Any) -> bytes:
    records = [
        Record(offset, timestamp + offset, None, value) for offset, value in enumerate(values)
    ]
    return build_batch(records, **settings)


Scenario = Callable[[Bench], Coroutine[Any, Any, None]]


_MACHINES: list[Machine] = []


def new_machine(seed: int = 1) -> Machine:
    loop = SimulatedLoop(seed)
    machine = Machine(loop, Network(loop), "node")
    _MACHINES.append(machine)
    return machine


def close_machines() -> None:
    """After each test: a killed node leaves coroutines that are never awaited."""
    while _MACHINES:
        _MACHINES.pop().loop.close()


def run(
    scenario: Scenario,
    *,
    machine: Machine | None = None,
    controller: StandInController | None = None,
    life: Life | None = None,
    stop: bool = True,
    **settings: str,
) -> Bench:
    """One process of a broker: starts, runs the scenario, and stops cleanly if requested."""
    machine = machine or new_machine()
    life = life or machine.boot()
    bench = Bench(life, make_config(**settings), controller or StandInController())

    async def live() -> None:
        await bench.start()
        await scenario(bench)
        if stop:
            await bench.broker.stop()

    task = life.run(live(), name="test")
    machine.loop.run_until_complete(task)
    assert not life.failures, life.failures
    return bench
