"""The broker: its partitions and their logs, which follow the metadata image.

The composition root calls it in this order:

    broker = Broker(
        shared,                      # SharedServices: identity, metadata, quorum, links
        directory_ids=...,           # Mapping[path, UUID]: the log dirs that can be used
        link=...,                    # to the active controller (broker/links/controller_link.py)
        registration=...,            # broker/control/registration.py
        producer_ids=...,            # broker/coordinators/producer_ids.py
        halt=...,                    # Callable[[str], None]: stop the node, with the reason
    )
    driver.add_listener(metadata.on_committed)   # sync, in order, from the first record on
    ... register (logs.read_previous_epoch), wait until the image has that registration ...
    await broker.load(epoch)         # opens and recovers all logs, creates missing ones
    broker.replicas.start(peers, link)   # followers fetch, leaders request ISR changes
    ... heartbeats (logs.offline_ids), unfenced, open the listeners ...
    await broker.stop()              # after the listeners are closed: flush, snapshots, checkpoints

Before `load()`, committed records only change the image. After it, each change also creates,
changes and deletes partitions, without blocking: workers create files, and requests to a partition
wait until its log exists.

`api/` uses: `config`, `image`, `cluster_id`, `node_id`, `partitions` (PartitionTable),
`logs` (LogManager), `link`, `fetch_sessions`, `producer_ids`, `runtime`,
`clock`, `groups` and `transactions` (CoordinatorRuntime), `internal_topics`, `claims`
(TopicClaims).
"""

import logging
from collections.abc import Callable, Iterator, Mapping
from typing import Final, NamedTuple, Protocol
from uuid import UUID

from lograft.broker.client_telemetry import ClientTelemetry
from lograft.broker.control.directory_assignment import DirectoryAssigner
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
from lograft.broker.links.controller_link import ControllerLink
from lograft.broker.logs.housekeeping import Housekeeping
from lograft.broker.logs.log_cleaner import LogCleaner
from lograft.broker.logs.log_manager import LogManager
from lograft.broker.logs.log_moves import LogMoves
from lograft.broker.logs.retention_holds import RetentionHolds
from lograft.broker.partitions.exporter_series import ExporterSeries
from lograft.broker.partitions.fetch_sessions import FetchSessions
from lograft.broker.partitions.log_directory import LogDirectory
from lograft.broker.partitions.partition import Partition
from lograft.broker.partitions.partition_table import PartitionTable
from lograft.broker.partitions.replica_selection import is_rack_aware, nearest_replica
from lograft.broker.partitions.topic_traffic import TopicTrafficTable
from lograft.broker.partitions.waits import Expirations
from lograft.broker.record_traces import RecordTraces
from lograft.broker.replicas.follower_sessions import FollowerSessions
from lograft.broker.replicas.replicas import Replicas
from lograft.broker.shared_services import SharedServices
from lograft.metadata.auto_creation import on_demand_max
from lograft.metadata.delta import MetadataDelta
from lograft.metadata.image import MetadataImage
from lograft.metadata.types import (
    LeaderRecovery,
    PartitionState,
    ResourceType,
    TopicState,
)
from lograft.model.errors import LograftError
from lograft.model.metrics import Sample
from lograft.model.seams import Task
from lograft.model.settings.broker import BrokerConfig
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

LOGGER: Final = logging.getLogger(__name__)


class NodeAddress(NamedTuple):
    host: str
    port: int
    rack: str | None


class Registration(Protocol):
    """This broker's registration with the controller (broker/control/registration.py)."""

    def current_epoch(self) -> BrokerEpoch: ...

    def has_lease(self) -> bool:
        """Returns whether the session is valid, so that the controller cannot have elected other
        leaders for this broker's partitions."""

    def on_directory_failed(self, directory_id: UUID, path: str, *, has_led: bool) -> None: ...


class Broker:
    def __init__(
        self,
        shared: SharedServices,
        *,
        directory_ids: Mapping[str, UUID],
        link: ControllerLink,
        registration: Registration,
        producer_ids: ProducerIdSource,
        halt: Callable[[str], None],
    ) -> None:
        runtime, metadata, self.brokers = shared.runtime, shared.metadata, shared.brokers
        config = metadata.static_config
        self.shared = shared
        self.runtime = runtime
        self.clock = runtime.clock
        self.node_id: NodeId = config.node_id
        self.cluster_id = shared.cluster_id
        #: None: records are not traced.
        self.traces: RecordTraces | None = None
        #: The connection to the active controller, in this process or another one.
        self.link = link
        self.producer_ids = producer_ids
        #: Owns the image and the configuration.
        self.metadata = metadata
        self.partitions = PartitionTable(
            TopicTrafficTable(
                runtime.clock, shown_max=lambda: metadata.config.lograft_metrics_topics_max
            )
        )
        self.expirations = Expirations()
        self._exporter = ExporterSeries(
            self.partitions, lambda: metadata.config, self._partition_count
        )
        #: Reports the log dirs of replicas to the controller; the node runs its task.
        self.assigner = DirectoryAssigner(
            config.node_id,
            broker_epoch=registration.current_epoch,
            metadata=metadata,
            link=link,
        )
        self.logs = LogManager(
            runtime,
            config,
            directory_ids=directory_ids,
            on_directory_failed=registration.on_directory_failed,
            on_partition_opened=self._on_partition_opened,
            halt=halt,
        )
        self.coordinators = Coordinators(
            runtime,
            metadata=metadata,
            partitions=self.partitions,
            link=self.brokers,
            producer_ids=producer_ids,
            has_lease=registration.has_lease,
        )
        self.groups = self.coordinators.groups
        self.transactions = self.coordinators.transactions
        self.replicas = Replicas(
            config.node_id,
            runtime,
            self.logs,
            cluster_id=shared.cluster_id,
            metadata=metadata,
            on_role=self.coordinators.on_role,
        )
        self.verification = TransactionVerification(
            self.brokers,
            runtime.clock,
            coordinator_of=self.transaction_coordinator,
            coordinators_here=self.transactions,
            metadata=metadata,
        )
        holds = RetentionHolds(
            self.brokers,
            has_groups=self._has_groups,
            coordinator_of=self.group_coordinator,
        )
        self._housekeeping = Housekeeping(runtime, self.logs, holds)
        self._cleaner = LogCleaner(runtime, self.logs)
        self.moves = LogMoves(runtime, self.logs, self.replicas.raft, metadata=metadata)
        self.fetch_sessions = FetchSessions(
            runtime.randomness, count_max=config.max_incremental_fetch_session_cache_slots
        )
        #: Whether leaders redirect consumers to the replica in their rack (KIP-392).
        self.selects_by_rack = is_rack_aware(config.replica_selector_class)
        self.follower_sessions = FollowerSessions(
            runtime.randomness,
            table=self.partitions,
            throttle=self.replicas.sending,
            sends_watermarks_at_once=self.selects_by_rack,
        )
        self.telemetry = ClientTelemetry()
        self.internal_topics = InternalTopics(metadata, link)
        self.claims = TopicClaims(
            metadata,
            link=link,
            users=shared.topic_users,
            groups=self.groups,
            clock=runtime.clock,
        )
        self._loaded = False
        #: The epoch of this broker's registration in the image.
        self._registered = NO_BROKER_EPOCH
        self._tasks: list[Task] = []
        metadata.on_changed.append(self._on_changed)
        metadata.on_config_changed.append(self._on_config_changed)

    @property
    def image(self) -> MetadataImage:
        return self.metadata.image

    @property
    def is_loaded(self) -> bool:
        """Whether the logs of this broker have been opened and recovered."""
        return self._loaded

    @property
    def config(self) -> BrokerConfig:
        """The settings of the file, overridden by the dynamic settings."""
        return self.metadata.config

    async def load(self, broker_epoch: BrokerEpoch) -> None:
        """Opens the logs. Called once, when the image contains this process's registration with
        `broker_epoch`: earlier records about its partitions were for a previous process."""
        assert self.image.offset >= broker_epoch, (self.image.offset, broker_epoch)
        self.metadata.follow_config()
        await self.logs.load(self._config_of_found, self.image.topic_ids.__getitem__)
        raft = self.replicas.raft
        await raft.load(self.logs.directories)
        raft.forget_deleted(self._is_known)
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
        """Closes all logs cleanly. Nothing may be appended afterwards."""
        self.coordinators.stop()
        self.replicas.stop()
        for task in self._tasks:
            task.cancel()
        if not self._loaded:
            # The logs were never opened, so they and the checkpoints remain unchanged.
            return
        await self.moves.stop()
        me = self.image.brokers.get(self.node_id)
        await self.logs.stop(broker_epoch=-1 if me is None else me.epoch)

    # Changes of the metadata image.

    def _on_changed(self, delta: MetadataDelta) -> None:
        self.telemetry.on_configs(self.image.configs, delta.configs)
        if self._loaded:
            self._apply(delta)
            if self.node_id in delta.brokers:
                self._follow_registration()
            self.coordinators.on_image(delta)
        self.replicas.suspect_brokers.on_image()

    def _follow_registration(self) -> None:
        """Uses the epoch of a new registration, which is necessary if the controller removed the
        old one, in later fetch requests."""
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
            if partition.leads and state.leader == self.node_id:
                self.replicas.on_isr(before=partition.assignment.isr, after=state.isr)
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
            traffic=self.partitions.traffic.of(topic.name),
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

    def _on_partition_opened(self, partition: Partition, directory: LogDirectory) -> None:
        self.assigner.on_opened(partition.topic_id, partition.index, directory.directory_id)

    def _is_known(self, key: TopicIdPartition) -> bool:
        return self.image.partition(*key) is not None

    def _partition_count(self, topic: str) -> int:
        known = self.image.topic(topic)
        return 0 if known is None else len(known.partitions)

    def _has_groups(self) -> bool:
        return OFFSETS_TOPIC in self.image.topic_ids

    # Settings.

    def topic_config(self, topic: str) -> TopicConfig:
        return self.metadata.topic_config(topic)

    def _config_of_found(self, topic: str, topic_id: UUID | None) -> TopicConfig | None:
        """Returns the settings for a log found on disk; None if its topic does not exist."""
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
        """Applies changed defaults to topics that do not override them."""
        self.logs.config = config
        self._cleaner.on_config_changed()
        if config.topic_defaults != before.topic_defaults:
            for name in list(self.partitions.by_name):
                self._reconfigure(name)

    # For the API handlers.

    def partition_state(self, topic: str, topic_id: UUID, index: int) -> PartitionState | None:
        """Finds a partition by topic name, or by topic id if the name is empty."""
        known = self.image.topic(topic) if topic else self.image.topics.get(topic_id)
        return None if known is None else known.partitions.get(index)

    def missing_error(self, topic: str, index: int, *, to_produce: bool = False) -> LograftError:
        """Returns the reason why the table does not contain this partition."""
        known = self.image.topic(topic)
        if known is None:
            return UnknownPartition(f"there is no topic {topic}")
        return self._why_missing(known, index, to_produce)

    def missing_id_error(
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
        """Returns the coordinator of a transactional id; None if its partition has no leader."""
        return self._coordinator(TRANSACTIONS_TOPIC, transactional_id)

    def group_coordinator(self, group_id: str) -> NodeId | None:
        """Returns the coordinator of a group; None if its partition has no leader."""
        return self._coordinator(OFFSETS_TOPIC, group_id)

    def _coordinator(self, internal_topic: str, key: str) -> NodeId | None:
        topic = self.metadata.image.topic(internal_topic)
        if topic is None:
            return None
        leader = topic.partitions[key_hash(key) % len(topic.partitions)].leader
        return None if leader == NO_NODE else NodeId(leader)

    def leads_any(self, node_id: int) -> bool:
        return self.image.leader_counts.get(node_id, 0) > 0

    def endpoint_of(self, node_id: int, listener: str) -> NodeAddress | None:
        """Returns a broker's address for clients of a listener; None if it is not available."""
        state = self.metadata.image.brokers.get(node_id)
        end = None if state is None or state.fenced else state.endpoint(listener)
        return None if end is None or state is None else NodeAddress(end.host, end.port, state.rack)

    def nearest_replica(
        self, partition: Partition, offset: Offset, client_rack: str
    ) -> NodeId | None:
        """Returns the replica that a consumer should read from; None if it is the leader."""
        brokers = self.image.brokers

        def rack_of(node_id: NodeId) -> str | None:
            state = brokers.get(node_id)
            return None if state is None or state.fenced else state.rack

        return nearest_replica(
            partition.statuses(), client_rack=client_rack, offset=offset, rack_of=rack_of
        )

    def collect_samples(self) -> Iterator[Sample]:
        yield from self.partitions.collect_samples()
        yield from self._exporter.collect_samples()
        yield from self.expirations.collect_samples()
        yield from self.fetch_sessions.collect_samples()
        yield from self.follower_sessions.collect_samples()
        yield from self.replicas.collect_samples()
        yield from self.logs.collect_samples()
        yield from self._housekeeping.collect_samples()
        yield from self._cleaner.collect_samples()
        yield from self.verification.collect_samples()
        yield from self.coordinators.collect_samples()
        yield from self.claims.collect_samples()
        yield from self.telemetry.collect_samples()
        yield from self.telemetry.collect_client_samples(self.clock.mono_ms())


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
