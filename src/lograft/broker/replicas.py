"""The replicas of this broker: what its partitions' roles need of it, and what they ask it to do.

A partition tells this object of its new role; it fetches for the followers, sends the leaders'
proposals to the controller and looks at the clock for them. Nothing here runs for a partition with
one replica, and nothing per partition while nothing happens.
"""

from collections.abc import Callable
from typing import Final

from lograft.broker.partition import Partition
from lograft.metadata.image import MetadataImage
from lograft.model.broker_configs import BrokerConfig
from lograft.model.seams import Clock
from lograft.model.topic_configs import TopicConfig
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


class BrokersSeen:
    """The brokers as this node's image has them."""

    def __init__(self, image: Callable[[], MetadataImage]) -> None:
        self._image = image

    def registered_epoch(self, node_id: NodeId) -> BrokerEpoch | None:
        broker = self._image().brokers.get(node_id)
        return None if broker is None else broker.epoch

    def may_join_isr(self, node_id: NodeId) -> bool:
        broker = self._image().brokers.get(node_id)
        return broker is not None and broker.is_active


class Replicas:
    """A `partition.PartitionHost`."""

    def __init__(
        self,
        me: NodeId,
        *,
        clock: Clock,
        config: Callable[[], BrokerConfig],
        image: Callable[[], MetadataImage],
    ) -> None:
        self._me = me
        self._clock = clock
        self._config = config
        self._brokers = BrokersSeen(image)
        self._broker_epoch = NO_BROKER_EPOCH

    # What partitions need.

    @property
    def acts(self) -> bool:
        return self._broker_epoch != NO_BROKER_EPOCH

    def now_ms(self) -> int:
        return self._clock.mono_ms()

    def make_replica(
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

    def configure(self, partition: Partition, replica: PartitionReplica) -> Effects:
        return replica.on_settings(self._settings(partition.config))

    def propose(self, partition: Partition, proposal: IsrProposal) -> None:
        pass

    def role_changed(self, partition: Partition) -> None:
        pass

    def _settings(self, config: TopicConfig) -> ReplicationSettings:
        broker = self._config()
        return ReplicationSettings(
            min_insync_replicas=config.min_insync_replicas,
            replica_lag_time_max_ms=broker.replica_lag_time_max_ms,
            replica_fetch_backoff_ms=broker.replica_fetch_backoff_ms,
            durable_only=config.flush_messages == FLUSH_EACH,
            unclean_elections=config.unclean_leader_election_enable,
        )

    # What the broker tells.

    def on_registered(self, broker_epoch: BrokerEpoch) -> None:
        """The image has reached this broker's (newest) registration."""
        self._broker_epoch = broker_epoch
