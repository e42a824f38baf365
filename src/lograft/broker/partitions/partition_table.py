"""The partitions of this broker, found by topic id or by topic name.

Invariant: both maps hold the same partitions. A topic that was deleted and created again under
its old name has a new id, and only the new one is in the table.
"""

from collections.abc import Iterator
from typing import Final
from uuid import UUID

from lograft.broker.partitions.lifecycle import PartitionState
from lograft.broker.partitions.partition import Partition
from lograft.model.metrics import Gauge, Sample, enum_label
from lograft.storage.log import LOG_GAUGES

PARTITIONS: Final = Gauge(
    "lograft_partitions",
    "Partitions that this broker has a replica of.",
    enum_label("role", ("leader", "follower", "none")),
)
PARTITION_STATES: Final = Gauge(
    "lograft_partitions_by_state",
    "Partitions that this broker has a replica of, by the state of their log.",
    enum_label("state", (state.name.lower() for state in PartitionState)),
)


class PartitionTable:
    def __init__(self) -> None:
        #: For the hot path: one look-up per topic, then a plain dict of its partitions.
        self.by_id: dict[UUID, dict[int, Partition]] = {}
        self.by_name: dict[str, dict[int, Partition]] = {}

    def __len__(self) -> int:
        return sum(len(partitions) for partitions in self.by_id.values())

    def __iter__(self) -> Iterator[Partition]:
        for partitions in list(self.by_id.values()):
            yield from list(partitions.values())

    def collect_samples(self) -> Iterator[Sample]:
        for role in ("leader", "follower", "none"):
            yield PARTITIONS.sample(0, role)
        for state in PartitionState:
            yield PARTITION_STATES.sample(0, state.name.lower())
        for gauge in LOG_GAUGES:
            yield gauge.sample(0)
        for partition in self:
            if partition.leader is not None:
                role = "leader"
            else:
                role = "none" if partition.follower is None else "follower"
            yield PARTITIONS.sample(1, role)
            yield PARTITION_STATES.sample(1, partition.state.name.lower())
            if partition.log is not None:
                yield from partition.log.collect_samples()

    def get(self, topic: str, index: int) -> Partition | None:
        partitions = self.by_name.get(topic)
        return None if partitions is None else partitions.get(index)

    def get_by_id(self, topic_id: UUID, index: int) -> Partition | None:
        partitions = self.by_id.get(topic_id)
        return None if partitions is None else partitions.get(index)

    def add(self, partition: Partition) -> None:
        partitions = self.by_id.setdefault(partition.topic_id, {})
        assert partition.index not in partitions, partition
        partitions[partition.index] = partition
        self.by_name[partition.topic] = partitions

    def remove(self, topic_id: UUID, index: int) -> Partition | None:
        partitions = self.by_id.get(topic_id)
        partition = None if partitions is None else partitions.pop(index, None)
        if partition is not None and not partitions:
            del self.by_id[topic_id]
            if self.by_name.get(partition.topic) is partitions:
                del self.by_name[partition.topic]
        return partition

    def of_topic(self, topic_id: UUID) -> list[Partition]:
        return list(self.by_id.get(topic_id, {}).values())
