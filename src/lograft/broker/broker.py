"""The broker: partitions, their logs, and the metadata image they follow.

How the composition root uses it, in this order:

    broker = Broker(
        runtime,
        metadata,                    # ClusterMetadata: the image and the configuration
        cluster_id=...,              # str, as in meta.properties
        directory_ids=...,           # Mapping[path, UUID]: the log dirs that can be used
        controller=...,              # of this process, or None (broker/control/controller.py)
        link=...,                    # the way to the active one (broker/links/controller_link.py)
        quorum=...,                  # the RaftDriver, to be described
        producer_ids=...,            # broker/coordinators/producer_ids.py
        halt=...,                    # Callable[[str], None]: stop the node, with the reason
    )
    driver.add_listener(metadata.on_committed)   # sync, in order, from the first record on
    ... register (logs.read_previous_epoch), wait until the image has that registration ...
    await broker.load(epoch)         # opens and recovers every log, makes missing ones
    broker.replicas.start(peers, link)   # followers fetch, leaders ask for changes of the ISR
    ... heartbeats (logs.offline_ids), unfenced, open the listeners ...
    await broker.stop()              # after the listeners are closed: flush, snapshots, checkpoints

Before `load()` committed records only build the image; after it each change also creates, changes
and deletes partitions. It never blocks: files are made by workers, and a
partition whose log is still being made lets its requests wait.

What `api/` uses: `config`, `image`, `cluster_id`, `node_id`, `partitions` (PartitionTable),
`logs` (LogManager), `controller_here`, `link`, `fetch_sessions`, `producer_ids`, `runtime`,
`clock`, `groups` and `transactions` (CoordinatorRuntime), `internal_topics`, `claims`
(TopicClaims).
"""

import logging
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from typing import Final, NamedTuple, Protocol, TypeVar
from uuid import UUID

from lograft.broker.client_telemetry import ClientTelemetry
from lograft.broker.cluster_metadata import ClusterMetadata
from lograft.broker.control.internal_topics import InternalTopics
from lograft.broker.coordinators.coordinator_runtime import key_hash
from lograft.broker.coordinators.coordinators import Coordinators, ProducerIdSource
from lograft.broker.coordinators.topic_claims import TopicClaims
from lograft.broker.coordinators.transaction_verification import TransactionVerification
from lograft.broker.errors import (
    NotLeader,
    PartitionMissing,
    UnknownPartition,
    UnknownTopicId,
)
from lograft.broker.links.broker_link import BrokerLink
from lograft.broker.links.controller_link import ControllerLink
from lograft.broker.logs.housekeeping import Housekeeping
from lograft.broker.logs.log_cleaner import LogCleaner
from lograft.broker.logs.log_manager import LogManager
from lograft.broker.logs.log_moves import LogMoves
from lograft.broker.logs.retention_holds import RetentionHolds
from lograft.broker.partitions.fetch_sessions import FetchSessions
from lograft.broker.partitions.partition import Partition
from lograft.broker.partitions.partition_table import PartitionTable
from lograft.broker.partitions.replica_selection import is_rack_aware, nearest_replica
from lograft.broker.quorum.raft_driver import ReplicaView
from lograft.broker.quorum.snapshots import Quorum
from lograft.broker.replicas.follower_sessions import FollowerSessions
from lograft.broker.replicas.replicas import Replicas
from lograft.consensus import messages as raft_messages
from lograft.consensus.types import ReplicaKey, Voter, VoterSet
from lograft.metadata.delta import MetadataDelta
from lograft.metadata.ignored_settings import find_stored_ignored_settings
from lograft.metadata.image import MetadataImage
from lograft.metadata.on_demand import on_demand_max
from lograft.metadata.types import (
    ControllerResult,
    LeaderRecovery,
    PartitionState,
    ResourceType,
    TopicState,
)
from lograft.metadata.unenforced_state import describe_stored_features, describe_unenforced
from lograft.model.errors import ErrorCode, LograftError
from lograft.model.metrics import Sample
from lograft.model.seams import Address, Runtime, Task
from lograft.model.settings.broker import BrokerConfig
from lograft.model.settings.effects import NO_EFFECT_WARNING
from lograft.model.settings.topic import TopicConfig
from lograft.model.types import (
    NO_NODE,
    OFFSETS_TOPIC,
    TRANSACTIONS_TOPIC,
    ZERO_UUID,
    BrokerEpoch,
    Epoch,
    NodeId,
    Offset,
    TopicIdPartition,
)
from lograft.replication.types import NO_BROKER_EPOCH, Assignment
from lograft.storage.log import Log
from lograft.wire.messages.broker_heartbeat import BrokerHeartbeatRequest, BrokerHeartbeatResponse
from lograft.wire.messages.broker_registration import (
    BrokerRegistrationRequest,
    BrokerRegistrationResponse,
)

T = TypeVar("T")
LOGGER: Final = logging.getLogger(__name__)


class NodeAddress(NamedTuple):
    host: str
    port: int
    rack: str | None


class ControllerPort(Protocol):
    """The controller in this process, which may be the active one."""

    #: Asks the leader of a raft partition to hand over to the first replica.
    hand_over: Callable[[TopicIdPartition, NodeId], Awaitable[ErrorCode]] | None

    @property
    def image(self) -> MetadataImage | None:
        """None on a controller that is not active."""

    def submit(self, decision: Callable[[MetadataImage], ControllerResult[T]]) -> Awaitable[T]:
        """The decision's reply, once its records are committed. Raises NotController."""

    def register_broker(
        self, request: BrokerRegistrationRequest
    ) -> Awaitable[BrokerRegistrationResponse]: ...

    def heartbeat(self, request: BrokerHeartbeatRequest) -> Awaitable[BrokerHeartbeatResponse]: ...

    def on_disconnected(self, broker_id: int, broker_epoch: int) -> None:
        """The connection of a broker's heartbeats ended."""


class QuorumView(Protocol):
    """The metadata quorum as this node sees it (broker/quorum/raft_driver.py)."""

    @property
    def me(self) -> ReplicaKey: ...

    @property
    def is_leader(self) -> bool: ...

    @property
    def leader(self) -> NodeId: ...

    @property
    def epoch(self) -> Epoch: ...

    @property
    def high_watermark(self) -> Offset: ...

    @property
    def quorum(self) -> Quorum: ...

    @property
    def voters(self) -> VoterSet: ...

    @property
    def log(self) -> Log: ...

    def leader_endpoint(self) -> Address | None: ...

    def learn(self, node_id: NodeId, address: Address) -> None: ...

    def replicas(self) -> Sequence[ReplicaView]: ...

    def describe_me(self) -> Voter: ...

    def ask(
        self, request: raft_messages.Request, *, bytes_max: int = 0
    ) -> Awaitable[raft_messages.Response]: ...


class Broker:
    def __init__(
        self,
        runtime: Runtime,
        metadata: ClusterMetadata,
        *,
        cluster_id: str,
        directory_ids: Mapping[str, UUID],
        controller: ControllerPort | None,
        link: ControllerLink,
        quorum: QuorumView,
        producer_ids: ProducerIdSource,
        halt: Callable[[str], None],
    ) -> None:
        config = metadata.static_config
        self.runtime = runtime
        self.clock = runtime.clock
        self.node_id: NodeId = config.node_id
        self.cluster_id = cluster_id
        #: In this process; None on a node that is a broker only.
        self.controller_here = controller
        #: The way to the active one, wherever it is.
        self.link = link
        self.quorum = quorum
        self.producer_ids = producer_ids
        #: Owns the image and the configuration.
        self.metadata = metadata
        self.partitions = PartitionTable()
        self.logs = LogManager(runtime, config, directory_ids=directory_ids, halt=halt)
        self.replicas = Replicas(
            config.node_id,
            runtime,
            self.logs,
            cluster_id=cluster_id,
            metadata=metadata,
        )
        #: The way to other brokers, and to this one.
        self.brokers = BrokerLink(
            config.node_id,
            listener=config.inter_broker_listener_name,
            metadata=metadata,
        )
        self.verification = TransactionVerification(
            self.brokers,
            runtime.clock,
            coordinator_of=self.transaction_coordinator,
            metadata=metadata,
        )
        holds = RetentionHolds(
            self.brokers,
            there_are_groups=lambda: OFFSETS_TOPIC in self.image.topic_ids,
            coordinator_of=self.group_coordinator,
        )
        self._housekeeping = Housekeeping(runtime, self.logs, holds)
        self._cleaner = LogCleaner(runtime, self.logs)
        self.moves = LogMoves(runtime, self.logs, self.replicas.raft, metadata=metadata)
        self.fetch_sessions = FetchSessions(
            runtime.randomness, count_max=config.max_incremental_fetch_session_cache_slots
        )
        #: Whether leaders send consumers to the replica nearest to them.
        self.selects_by_rack = is_rack_aware(config.replica_selector_class)
        self.follower_sessions = FollowerSessions(
            runtime.randomness,
            table=self.partitions,
            throttle=self.replicas.sending,
            hurries_watermarks=self.selects_by_rack,
        )
        self.coordinators = Coordinators(
            runtime,
            metadata=metadata,
            partitions=self.partitions,
            link=self.brokers,
            producer_ids=producer_ids,
        )
        self.groups = self.coordinators.groups
        self.transactions = self.coordinators.transactions
        self.verification.coordinators_here = self.transactions
        self.replicas.on_role = self.coordinators.on_role
        self.telemetry = ClientTelemetry()
        self.internal_topics = InternalTopics(metadata, link)
        self.claims = TopicClaims(
            metadata, link=link, brokers=self.brokers, groups=self.groups, clock=runtime.clock
        )
        self._loaded = False
        #: Of this broker's registration as the image has it.
        self._registered = NO_BROKER_EPOCH
        #: By kind, what the log was last told about; None: this node is still starting.
        self._unenforced: dict[str, str] | None = None
        self._tasks: list[Task] = []
        metadata.on_changed.append(self._on_changed)
        metadata.on_config_changed.append(self._on_config_changed)

    @property
    def image(self) -> MetadataImage:
        return self.metadata.image

    @property
    def config(self) -> BrokerConfig:
        """The settings of the file with the dynamic ones."""
        return self.metadata.config

    @property
    def kraft_version(self) -> int:
        """Of the metadata quorum; it lies in control records, which are not part of the image."""
        return self.quorum.quorum.kraft_version

    async def load(self, broker_epoch: BrokerEpoch) -> None:
        """Once, when the image has the registration of this life, which got `broker_epoch`: what
        it said before of this broker's partitions was meant for an earlier life."""
        assert self.image.offset >= broker_epoch, (self.image.offset, broker_epoch)
        self.metadata.follow_config()
        await self.logs.load(self._config_of_found, self.image.topic_ids.__getitem__)
        raft = self.replicas.raft
        await raft.load(self.logs.directories)
        raft.forget_deleted(lambda key: self.image.partition(*key) is not None)
        self._loaded = True
        self._registered = broker_epoch
        self.replicas.on_registered(broker_epoch)
        for topic in list(self.image.topics.values()):
            config = self.topic_config(topic.name)
            for index, state in topic.partitions.items():
                if self.node_id in state.replicas:
                    self._add(topic, index, state, config, found=True)
        self.logs.start()
        self.moves.resume(self.partitions.get_by_id)
        self._tasks.append(self.runtime.spawn(self._housekeeping.run(), name="housekeeping"))
        self._tasks.append(self.runtime.spawn(self._cleaner.run(), name="cleaner"))

    async def stop(self) -> None:
        """Every log is closed cleanly; nothing may be appended any more."""
        self.coordinators.stop()
        self.replicas.stop()
        for task in self._tasks:
            task.cancel()
        if not self._loaded:
            # Its logs were never opened: they are as the life before left them, clean or not, and
            # so are the checkpoints.
            return
        await self.moves.stop()
        me = self.image.brokers.get(self.node_id)
        await self.logs.stop(broker_epoch=-1 if me is None else me.epoch)

    # Following the metadata log.

    def warn_of_ignored_settings(self) -> None:
        """At start. Changes are reported by the active controller."""
        ignored = find_stored_ignored_settings(self.image)
        if ignored:
            LOGGER.warning(NO_EFFECT_WARNING, ", ".join(ignored))

    def warn_of_unenforced_state(self) -> None:
        """At start, and again for each kind that changes: an operator may rely on this state."""
        now = describe_unenforced(self.image) | describe_stored_features(self.image)
        before, self._unenforced = self._unenforced or {}, now
        for kind, sentence in now.items():
            if before.get(kind) != sentence:
                LOGGER.warning("%s", sentence)

    def _on_changed(self, delta: MetadataDelta) -> None:
        if self._unenforced is not None and (delta.security or delta.quotas or delta.features):
            self.warn_of_unenforced_state()
        self.telemetry.on_configs(self.image.configs, delta.configs)
        if self._loaded:
            self._apply(delta)
            if self.node_id in delta.brokers:
                self._follow_registration()
            self.coordinators.on_image(delta)
        self.replicas.doubts.on_image()

    def _follow_registration(self) -> None:
        """A later one (the controller had forgotten this broker) is told to whoever fetches."""
        me = self.image.brokers.get(self.node_id)
        if me is None or me.epoch <= self._registered:
            return
        self._registered = me.epoch
        self.replicas.on_registered(me.epoch)
        for partition in self.partitions:
            partition.on_registered(me.epoch)

    def _apply(self, delta: MetadataDelta) -> None:
        for topic in delta.deleted_topics.values():
            for partition in self.partitions.of_topic(topic.topic_id):
                self._remove(partition)
        for topic_id in delta.created_topics:
            topic = self.image.topics[topic_id]
            config = self.topic_config(topic.name)
            for index, state in topic.partitions.items():
                self._follow(topic, index, state, config)
        for topic_id, indexes in delta.changed_topics.items():
            topic = self.image.topics[topic_id]
            config = self.topic_config(topic.name)
            for index in indexes:
                self._follow(topic, index, topic.partitions[index], config)
        for resource in delta.configs:
            if resource.type == ResourceType.TOPIC:
                self._reconfigure(resource.name)

    def _follow(
        self, topic: TopicState, index: int, state: PartitionState, config: TopicConfig
    ) -> None:
        partition = self.partitions.get_by_id(topic.topic_id, index)
        if self.node_id not in state.replicas:
            if partition is not None:
                self._remove(partition)
        elif partition is None:
            self._add(topic, index, state, config, found=False)
        else:
            partition.on_assignment(_assignment_of(state))

    def _add(
        self,
        topic: TopicState,
        index: int,
        state: PartitionState,
        config: TopicConfig,
        *,
        found: bool,
    ) -> None:
        partition = Partition(
            topic.name,
            index,
            topic_id=topic.topic_id,
            me=self.node_id,
            config=config,
            host=self.replicas,
        )
        partition.on_assignment(_assignment_of(state))
        self.partitions.add(partition)
        if found and self.logs.adopt(partition):
            return
        directory_id = state.directories[state.replicas.index(self.node_id)]
        self.logs.make(
            partition,
            directory_id=None if directory_id == ZERO_UUID else directory_id,
            is_new=not found,
        )

    def _remove(self, partition: Partition) -> None:
        self.partitions.remove(partition.topic_id, partition.index)
        partition.on_deleted()
        self.replicas.raft.on_removed(
            partition, is_deleted=partition.topic_id not in self.image.topics
        )
        self.logs.delete(partition)

    # Settings.

    def topic_config(self, topic: str) -> TopicConfig:
        return self.metadata.topic_config(topic)

    def _config_of_found(self, topic: str, topic_id: UUID | None) -> TopicConfig | None:
        """For a log found on disk; None if it belongs to no topic of the cluster (any more)."""
        known = self.image.topic_ids.get(topic)
        if known is None or (topic_id is not None and topic_id != known):
            return None
        return self.topic_config(topic)

    def _reconfigure(self, topic: str) -> None:
        topic_id = self.image.topic_ids.get(topic)
        if topic_id is not None:
            config = self.topic_config(topic)
            for partition in self.partitions.of_topic(topic_id):
                partition.on_config_changed(config)

    def _on_config_changed(self, before: BrokerConfig, config: BrokerConfig) -> None:
        """Topics without an override of their own follow."""
        self.logs.config = config
        self._cleaner.on_config_changed()
        if config.topic_defaults != before.topic_defaults:
            for name in list(self.partitions.by_name):
                self._reconfigure(name)

    # What the API handlers ask.

    def partition_state(self, topic: str, topic_id: UUID, index: int) -> PartitionState | None:
        """By name, or by id where the name is empty."""
        known = self.image.topic(topic) if topic else self.image.topics.get(topic_id)
        return None if known is None else known.partitions.get(index)

    def why_missing(self, topic: str, index: int, *, to_produce: bool = False) -> LograftError:
        """Why the table has no such partition."""
        known = self.image.topic(topic)
        if known is None:
            return UnknownPartition(f"there is no topic {topic}")
        return self._why_missing(known, index, to_produce)

    def why_missing_id(
        self, topic_id: UUID, index: int, *, to_produce: bool = False
    ) -> LograftError:
        known = self.image.topics.get(topic_id)
        if known is None:
            return UnknownTopicId(f"there is no topic with the id {topic_id}")
        return self._why_missing(known, index, to_produce)

    def _why_missing(self, topic: TopicState, index: int, to_produce: bool) -> LograftError:
        if index in topic.partitions:
            return NotLeader(f"this broker has no replica of {topic.name}-{index}")
        if to_produce and index >= 0 and on_demand_max(self.image, topic.name) is not None:
            return PartitionMissing(topic.name, index)
        return UnknownPartition(f"{topic.name} has no partition {index}")

    def transaction_coordinator(self, transactional_id: str) -> NodeId | None:
        """The broker that keeps the transactions of this id; None if nobody does now."""
        return self._coordinator(TRANSACTIONS_TOPIC, transactional_id)

    def group_coordinator(self, group_id: str) -> NodeId | None:
        """The broker that keeps the offsets of this group; None if nobody does now."""
        return self._coordinator(OFFSETS_TOPIC, group_id)

    def _coordinator(self, internal_topic: str, key: str) -> NodeId | None:
        topic = self.image.topic(internal_topic)
        if topic is None:
            return None
        leader = topic.partitions[key_hash(key) % len(topic.partitions)].leader
        return None if leader == NO_NODE else NodeId(leader)

    def leads_any(self, node_id: int) -> bool:
        return self.image.leader_counts.get(node_id, 0) > 0

    def endpoint_of(self, node_id: int, listener: str) -> NodeAddress | None:
        """Where clients of a listener reach a broker; None if they cannot now."""
        state = self.image.brokers.get(node_id)
        end = None if state is None or state.fenced else state.endpoint(listener)
        return None if end is None or state is None else NodeAddress(end.host, end.port, state.rack)

    def nearest_replica(
        self, partition: Partition, offset: Offset, client_rack: str
    ) -> NodeId | None:
        """Where a consumer should read instead of here, from the leader; None: here."""
        brokers = self.image.brokers

        def rack_of(node_id: NodeId) -> str | None:
            state = brokers.get(node_id)
            return None if state is None or state.fenced else state.rack

        return nearest_replica(
            partition.statuses(), client_rack=client_rack, offset=offset, rack_of=rack_of
        )

    def collect_samples(self) -> Iterator[Sample]:
        yield from self.metadata.image.collect_samples()
        yield from self.partitions.collect_samples()
        yield from self.fetch_sessions.collect_samples()
        yield from self.follower_sessions.collect_samples()
        yield from self.replicas.collect_samples()
        yield from self.logs.collect_samples()
        yield from self._cleaner.collect_samples()
        yield from self.verification.collect_samples()
        yield from self.coordinators.collect_samples()
        yield from self.claims.collect_samples()
        yield from self.telemetry.collect_samples()


def _assignment_of(state: PartitionState) -> Assignment:
    return Assignment(
        tuple(NodeId(node) for node in state.replicas),
        tuple(NodeId(node) for node in state.isr),
        NodeId(state.leader),
        Epoch(state.leader_epoch),
        state.partition_epoch,
        state.leader_recovery == LeaderRecovery.RECOVERING,
        state.mode,
        Epoch(state.life),
        state.directories,
        tuple(NodeId(node) for node in state.adding_replicas),
        tuple(NodeId(node) for node in state.removing_replicas),
    )
