"""The replicas of this broker: services for the roles of its partitions.

A partition reports its new role. This object then fetches for followers, and sends proposals to the
controller and checks the lag of followers for leaders. Partitions with one replica need none of
that, and idle partitions no work of their own.
"""

import asyncio
from collections.abc import Callable, Iterator, Sequence
from typing import Final

from lograft.broker.cluster_metadata import ClusterMetadata
from lograft.broker.links.peers import Peers
from lograft.broker.logs.log_manager import LogManager
from lograft.broker.partitions.partition import Partition
from lograft.broker.partitions.replication_throttle import (
    FOLLOWER_RATE,
    LEADER_RATE,
    ReplicationThrottle,
)
from lograft.broker.replicas.follower_partition import FollowerPartition
from lograft.broker.replicas.isr_changes import ControllerRequests, IsrChanges
from lograft.broker.replicas.raft_partitions import RaftPartitions
from lograft.broker.replicas.replica_fetcher import FetcherContext, ReplicaFetcher
from lograft.broker.replicas.suspect_brokers import SuspectBrokers
from lograft.model.metrics import Counter, Gauge, Sample, enum_label
from lograft.model.seams import Address, Runtime, Task
from lograft.model.settings.topic import TopicConfig
from lograft.model.types import BrokerEpoch, NodeId, Offset
from lograft.replication.replica import IsrReplica
from lograft.replication.roles import PartitionReplica
from lograft.replication.types import (
    NO_BROKER_EPOCH,
    Effects,
    IsrProposal,
    ReplicationSettings,
)
from lograft.storage.log import Log

FLUSH_EACH: Final = 1
#: Number of leaders that are checked for lagging followers before other tasks can run.
LEADERS_PER_TURN: Final = 200

WITH_FOLLOWERS: Final = Gauge(
    "lograft_partitions_with_followers", "Partitions led by this broker that have followers."
)
FOLLOWED: Final = Gauge(
    "lograft_partitions_followed", "Partitions that this broker replicates as a follower."
)
RECORDS_LOST: Final = Counter(
    "lograft_committed_records_lost_total",
    "Records that were committed on this broker and removed because the leader does not have them.",
)
FOLLOWERS_FAILED: Final = Counter(
    "lograft_followers_failed_total", "Number of times a follower stopped because of an error."
)
ISR_SHRINKS: Final = Counter(
    "lograft_isr_shrinks_total",
    "Number of times a replica left the ISR of a partition led by this broker.",
)
ISR_EXPANSIONS: Final = Counter(
    "lograft_isr_expansions_total",
    "Number of times a replica joined the ISR of a partition led by this broker.",
)
THROTTLED: Final = Counter(
    "lograft_replication_throttled_total",
    "Number of times the replication throttle delayed a partition, as leader or follower.",
    enum_label("side", ("leader", "follower")),
)


class ImageBrokers:
    """The brokers in this node's metadata image."""

    def __init__(self, metadata: ClusterMetadata) -> None:
        self._metadata = metadata

    def registered_epoch(self, node_id: NodeId) -> BrokerEpoch | None:
        broker = self._metadata.image.brokers.get(node_id)
        return None if broker is None else broker.epoch

    def can_join_isr(self, node_id: NodeId) -> bool:
        broker = self._metadata.image.brokers.get(node_id)
        return broker is not None and broker.is_active


class Replicas:
    """Implements `partition.PartitionHost`. Until `start` connects it to other nodes, followers do
    not fetch."""

    def __init__(
        self,
        me: NodeId,
        runtime: Runtime,
        logs: LogManager,
        *,
        cluster_id: str,
        metadata: ClusterMetadata,
        on_role: Callable[[Partition], None],
    ) -> None:
        """`on_role` is called for every partition whose role has changed, after it was handled."""
        self._me = me
        self._runtime = runtime
        self._logs = logs
        self._metadata = metadata
        self._brokers = ImageBrokers(metadata)
        self._broker_epoch = NO_BROKER_EPOCH
        self.suspect_brokers = SuspectBrokers(runtime.clock)
        self._fetcher_context: FetcherContext | None = None
        #: Fetch streams by leader; one without partitions is idle.
        self._fetchers: dict[NodeId, ReplicaFetcher] = {}
        #: Throttles of sending and fetching for replicas that are not in sync.
        self.sending = ReplicationThrottle(LEADER_RATE, metadata)
        self.fetching = ReplicationThrottle(FOLLOWER_RATE, metadata)
        self._changes = IsrChanges(me, runtime.clock)
        #: Partitions that this broker leads and that have followers.
        self._led: dict[Partition, None] = {}
        #: Partitions that became followers before `start`.
        self._unstarted: dict[Partition, None] = {}
        self.raft = RaftPartitions(
            me,
            runtime,
            cluster_id=cluster_id,
            metadata=metadata,
            address_of=self._address_of,
            brokers=self._brokers,
            broker_epoch=lambda: self._broker_epoch,
        )
        self._tasks: list[Task] = []
        self._records_lost = 0
        self._failed = 0
        self._isr_shrinks = 0
        self._isr_expansions = 0
        self._on_role = on_role

    def start(self, peers: Peers, link: ControllerRequests) -> None:
        """Starts fetching and sending proposals: other nodes can be reached from now on."""
        assert self._fetcher_context is None, "started twice"
        self._fetcher_context = FetcherContext(
            self._me,
            self._runtime.clock,
            self._runtime.spawn,
            peers,
            self._metadata,
            lambda: self._broker_epoch,
            self._address_of,
            self.fetching,
            self.raft.on_rejected,
            self.suspect_brokers,
        )
        self.raft.start(peers, link)
        spawn = self._runtime.spawn
        self._tasks += [
            spawn(self._changes.run(link, lambda: self._broker_epoch), name="ISR changes"),
            spawn(self._tick(), name="ISR lag"),
        ]
        unstarted, self._unstarted = self._unstarted, {}
        for partition in unstarted:
            self.role_changed(partition)

    def stop(self) -> None:
        """Stops fetching and sending proposals."""
        self.raft.stop()
        for fetcher in self._fetchers.values():
            fetcher.stop()
        for task in self._tasks:
            task.cancel()

    async def _tick(self) -> None:
        while True:
            await asyncio.sleep(max(1, self._metadata.config.replica_lag_time_max_ms // 2) / 1000)
            now_ms = self.now_ms()
            for count, partition in enumerate(list(self._led)):
                if partition.leader is not None:
                    partition.apply(partition.leader.tick(now_ms))
                if count % LEADERS_PER_TURN == LEADERS_PER_TURN - 1:
                    await asyncio.sleep(0)

    def _address_of(self, node_id: NodeId) -> Address | None:
        broker = self._metadata.image.brokers.get(node_id)
        end = None
        if broker is not None:
            end = broker.endpoint(self._metadata.config.inter_broker_listener_name)
        return None if end is None else Address(end.host, end.port)

    # Services for partitions (PartitionHost).

    @property
    def is_registered(self) -> bool:
        return self._broker_epoch != NO_BROKER_EPOCH

    def now_ms(self) -> int:
        return self._runtime.clock.mono_ms()

    def build_replica(
        self, partition: Partition, log: Log, high_watermark: Offset
    ) -> PartitionReplica:
        return IsrReplica(
            self._me,
            broker_epoch=self._broker_epoch,
            log=log,
            high_watermark=high_watermark,
            brokers=self._brokers,
            settings=self._settings(partition.config),
        )

    def build_mode_replica(
        self, partition: Partition, replica: PartitionReplica
    ) -> PartitionReplica:
        assert isinstance(replica, IsrReplica), replica
        if partition.directory is None or not self.raft.is_ready(partition.directory):
            return replica
        return self.raft.build_mode_replica(partition, replica)

    def configure(self, partition: Partition, replica: PartitionReplica) -> Effects:
        return replica.on_settings(self._settings(partition.config))

    def propose(self, partition: Partition, proposal: IsrProposal) -> None:
        assert partition.leader is not None, partition
        self._changes.propose(partition, partition.leader, proposal)

    def role_changed(self, partition: Partition) -> None:
        self.raft.on_role(partition)
        is_out = bool(partition.is_deleted or partition.offline)
        if partition.leader is not None and not is_out and len(partition.assignment.replicas) > 1:
            self._led[partition] = None
        else:
            self._led.pop(partition, None)
        role = None if is_out else partition.follower
        following = partition.following
        if following is not None and following.role is not role:
            assert isinstance(following, FollowerPartition)
            self._fetcher(following.role.leader).unfollow(following)
            partition.stop_following()
        if role is None:
            self._unstarted.pop(partition, None)
        elif self._fetcher_context is None:
            self._unstarted[partition] = None
        elif partition.following is None:
            fetcher = self._fetcher(role.leader)
            following = FollowerPartition(
                partition,
                role,
                fetcher,
                truncator=self._logs,
                clock=self._runtime.clock,
                spawn=self._runtime.spawn,
                on_lost=self._on_lost,
            )
            partition.start_following(following)
            fetcher.follow(following)
        self._on_role(partition)

    def _fetcher(self, leader: NodeId) -> ReplicaFetcher:
        found = self._fetchers.get(leader)
        if found is None:
            assert self._fetcher_context is not None
            found = self._fetchers[leader] = ReplicaFetcher(leader, self._fetcher_context)
        return found

    def _on_lost(self, partition: Partition, records: int) -> None:
        self._records_lost += records
        self._failed += not records

    def _settings(self, config: TopicConfig) -> ReplicationSettings:
        broker = self._metadata.config
        return ReplicationSettings(
            min_insync_replicas=config.min_insync_replicas,
            replica_lag_time_max_ms=broker.replica_lag_time_max_ms,
            replica_fetch_backoff_ms=broker.replica_fetch_backoff_ms,
            durable_only=config.flush_messages == FLUSH_EACH,
            unclean_elections=config.unclean_leader_election_enable,
        )

    # Events from the broker.

    def on_registered(self, broker_epoch: BrokerEpoch) -> None:
        """The image contains this broker's newest registration."""
        self._broker_epoch = broker_epoch

    def on_isr(self, *, before: Sequence[int], after: Sequence[int]) -> None:
        """The ISR of a partition led by this broker, before and after a change of the metadata."""
        self._isr_shrinks += any(replica not in after for replica in before)
        self._isr_expansions += any(replica not in before for replica in after)

    def collect_samples(self) -> Iterator[Sample]:
        yield THROTTLED.sample(self.sending.exceeded, "leader")
        yield THROTTLED.sample(self.fetching.exceeded, "follower")
        yield ISR_SHRINKS.sample(self._isr_shrinks)
        yield ISR_EXPANSIONS.sample(self._isr_expansions)
        yield WITH_FOLLOWERS.sample(len(self._led))
        yield RECORDS_LOST.sample(self._records_lost)
        yield FOLLOWERS_FAILED.sample(self._failed)
        yield FOLLOWED.sample(0)
        for fetcher in list(self._fetchers.values()):
            yield FOLLOWED.sample(len(fetcher.followed))
            yield from fetcher.collect_samples()
        yield from self._changes.collect_samples()
        yield from self.raft.collect_samples()
