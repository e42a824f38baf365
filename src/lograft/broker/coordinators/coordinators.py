"""The group and transaction coordinators of this broker, and the topics that store their state."""

import logging
from collections.abc import Awaitable, Callable, Iterator
from typing import Any, Final, Protocol

from lograft.broker.cluster_metadata import ClusterMetadata
from lograft.broker.coordinators.coordinator_runtime import CoordinatorRuntime
from lograft.broker.coordinators.end_offsets import EndOffsets
from lograft.broker.coordinators.group_lag import GroupLag
from lograft.broker.coordinators.marker_sender import MarkerSender
from lograft.broker.errors import ControllerUnreachable, UnknownPartition
from lograft.broker.links.broker_link import BrokerLink
from lograft.broker.partitions.partition import Partition
from lograft.broker.partitions.partition_table import PartitionTable
from lograft.coordination.group_shard import GroupShard
from lograft.coordination.transaction_shard import TransactionShard
from lograft.coordination.types import CoordinatorContext, Effect
from lograft.metadata.delta import MetadataDelta
from lograft.model.errors import Rejected
from lograft.model.metrics import Gauge, Sample
from lograft.model.seams import Runtime
from lograft.model.settings.broker import BrokerConfig
from lograft.model.types import OFFSETS_TOPIC, TRANSACTIONS_TOPIC, Epoch, Offset, TopicPartition
from lograft.storage.types import TransactionEnd
from lograft.wire.record_frames import GROUPS, TRANSACTIONS

LOGGER: Final = logging.getLogger(__name__)

OLDEST_TRANSACTION: Final = Gauge(
    "lograft_oldest_transaction_age_seconds",
    "Time since the start of the oldest transaction that is open at this coordinator; 0 if there is"
    " none.",
)


class ProducerIdSource(Protocol):
    def next(self) -> Awaitable[int]:
        """Returns a producer id that has never been used."""

    def wait_some(self) -> Awaitable[None]:
        """Waits until an id is available to `take`. Raises ControllerUnreachable or Rejected."""

    def take(self) -> int:
        """Like `next`, without waiting. Raises Rejected if no id is available."""


class GroupKind:
    topic = OFFSETS_TOPIC
    frames = GROUPS

    def __init__(self, around: CoordinatorContext) -> None:
        self._around = around

    def make_core(self, index: int, epoch: Epoch) -> GroupShard:
        return GroupShard(self._around)

    def partition_count(self, config: BrokerConfig) -> int:
        return config.offsets_topic_num_partitions

    def compression(self, config: BrokerConfig) -> int:
        return config.offsets_topic_compression_codec

    def commit_timeout_ms(self, config: BrokerConfig) -> int:
        return config.offsets_commit_timeout_ms

    def on_effect(self, effect: Effect) -> None:
        raise AssertionError(f"groups have no effects: {effect}")


class TransactionKind:
    topic = TRANSACTIONS_TOPIC
    frames = TRANSACTIONS

    def __init__(
        self,
        around: CoordinatorContext,
        *,
        new_producer_id: Callable[[], int],
        on_effect: Callable[[Effect], None],
    ) -> None:
        self._around = around
        self._new_producer_id = new_producer_id
        self.on_effect = on_effect

    def make_core(self, index: int, epoch: Epoch) -> TransactionShard:
        return TransactionShard(self._around, epoch=epoch, new_producer_id=self._new_producer_id)

    def partition_count(self, config: BrokerConfig) -> int:
        return config.transaction_state_log_num_partitions

    def compression(self, config: BrokerConfig) -> int:
        return 0

    def commit_timeout_ms(self, config: BrokerConfig) -> int:
        return config.request_timeout_ms


class Coordinators:
    def __init__(
        self,
        runtime: Runtime,
        *,
        metadata: ClusterMetadata,
        partitions: PartitionTable,
        link: BrokerLink,
        producer_ids: ProducerIdSource,
        has_lease: Callable[[], bool],
    ) -> None:
        """`has_lease` returns whether this broker's session is valid, so that the controller cannot
        have elected other leaders for its partitions."""
        self._partitions = partitions
        self._runtime = runtime
        self._producer_ids = producer_ids
        self._fetching_ids = False
        self.has_lease = has_lease
        around = CoordinatorContext(
            lambda: metadata.config,
            lambda: metadata.image,
            runtime.clock.wall_ms,
            runtime.randomness.uuid,
        )
        self.groups: Final = CoordinatorRuntime(
            GroupKind(around), runtime, metadata=metadata, has_lease=has_lease
        )
        self._markers = MarkerSender(
            runtime, link, append_here=self.append_marker, metadata=metadata
        )
        self.transactions: Final = CoordinatorRuntime(
            TransactionKind(
                around, new_producer_id=self._new_producer_id, on_effect=self._markers.on_effect
            ),
            runtime,
            metadata=metadata,
            has_lease=has_lease,
        )
        self._markers.transactions = self.transactions
        self._ends = EndOffsets(runtime, metadata=metadata, partitions=partitions, link=link)
        self._lag = GroupLag(
            self._ends,
            shards=self._loaded_groups,
            config=lambda: metadata.config,
            clock=runtime.clock,
        )
        self._by_topic: dict[str, CoordinatorRuntime[Any]] = {
            self.groups.topic: self.groups,
            self.transactions.topic: self.transactions,
        }

    def on_role(self, partition: Partition) -> None:
        coordinator = self._by_topic.get(partition.topic)
        if coordinator is not None:
            coordinator.on_role(partition)

    def on_image(self, delta: MetadataDelta) -> None:
        for coordinator in self._by_topic.values():
            coordinator.on_image(delta)

    def append_marker(self, where: TopicPartition, end: TransactionEnd) -> tuple[Partition, Offset]:
        """Appends a transaction marker to a partition of this broker; returns the log end offset,
        which is not committed yet. Raises the errors of the partition. Markers of
        __consumer_offsets go through the group coordinator, which also replays them."""
        partition = self._partitions.get(where.topic, where.partition)
        if partition is None:
            raise UnknownPartition(f"this broker does not have {where}")
        if where.topic != self.groups.topic:
            now_ms = self._runtime.clock.wall_ms()
            return partition, partition.append_marker(end, now_ms=now_ms).end_offset
        return partition, self.groups.append_marker(where.partition, end)

    def _new_producer_id(self) -> int:
        """Returns an id without waiting, for commands. Raises Rejected if none is available, and
        then fetches some for the client's retry."""
        try:
            return self._producer_ids.take()
        except Rejected:
            if not self._fetching_ids:
                self._fetching_ids = True
                self._runtime.spawn(self._fetch_producer_ids(), name="producer ids")
            raise

    async def _fetch_producer_ids(self) -> None:
        try:
            await self._producer_ids.wait_some()
        except (ControllerUnreachable, Rejected) as error:
            LOGGER.info("could not allocate producer ids: %s", error)
        finally:
            self._fetching_ids = False

    def stop(self) -> None:
        for coordinator in self._by_topic.values():
            coordinator.stop()
        self._markers.stop()
        self._ends.stop()

    def count_loading(self) -> dict[str, int]:
        """Returns by internal topic how many partitions this broker leads and has not loaded."""
        return {
            topic: sum(not shard.is_loaded for shard in coordinator.shards().values())
            for topic, coordinator in self._by_topic.items()
        }

    def collect_samples(self) -> Iterator[Sample]:
        for coordinator in self._by_topic.values():
            yield from coordinator.collect_samples()
        yield from self._lag.collect_samples()
        yield OLDEST_TRANSACTION.sample(self._oldest_transaction_ms() / 1000)
        yield from self._markers.collect_samples()

    def _loaded_groups(self) -> list[GroupShard]:
        return [shard.core for shard in self.groups.shards().values() if shard.is_loaded]

    def _oldest_transaction_ms(self) -> int:
        starts_ms = [
            start_ms
            for shard in self.transactions.shards().values()
            if shard.is_loaded and (start_ms := shard.core.oldest_start_ms()) is not None
        ]
        return max(0, self._runtime.clock.wall_ms() - min(starts_ms)) if starts_ms else 0
