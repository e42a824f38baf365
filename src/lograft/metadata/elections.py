"""Who leads a partition when a broker goes or comes: from the in-sync replicas, else nobody."""

from collections.abc import Iterator
from typing import Final
from uuid import UUID

from lograft.metadata.image import MetadataImage
from lograft.metadata.types import LOST_DIRECTORY, PartitionState
from lograft.wire.records.partition_change_record import PartitionChangeRecord

#: Directory ids below are reserved: unassigned, lost, migrating (KIP-858).
RESERVED_DIRECTORIES: Final = 100


def is_reserved_directory(directory: UUID) -> bool:
    return directory.int < RESERVED_DIRECTORIES


def may_lead(
    image: MetadataImage, partition: PartitionState, broker_id: int, *, leaving: int = -1
) -> bool:
    """Whether the broker is up and the replica's disk works."""
    broker = image.brokers.get(broker_id)
    if broker is None or broker_id == leaving or not broker.is_active:
        return False
    directory = partition.directories[partition.replicas.index(broker_id)]
    if is_reserved_directory(directory):
        return directory != LOST_DIRECTORY
    return directory in broker.log_dirs or not broker.log_dirs


def leave(image: MetadataImage, broker_id: int) -> Iterator[PartitionChangeRecord]:
    """The broker leads nothing any more and leaves every ISR that has another member. A last
    member stays: it alone has all the records."""
    for topic in image.topics.values():
        for index, partition in topic.partitions.items():
            if broker_id in partition.isr or partition.leader == broker_id:
                change = without(image, topic.topic_id, index, partition, broker_id)
                if change is not None:
                    yield change


def without(
    image: MetadataImage, topic_id: UUID, index: int, partition: PartitionState, broker_id: int
) -> PartitionChangeRecord | None:
    """One partition without the broker; None if nothing changes."""
    remaining = tuple(r for r in partition.isr if r != broker_id)
    isr = remaining or partition.isr
    leader = partition.leader
    if leader == broker_id or leader not in isr:
        leader = next(
            (
                r
                for r in partition.replicas
                if r in isr and may_lead(image, partition, r, leaving=broker_id)
            ),
            -1,
        )
    return _change(topic_id, index, partition, isr=isr, leader=leader)


def arrive(image: MetadataImage, broker_id: int) -> Iterator[PartitionChangeRecord]:
    """The broker is up (again): it leads what nobody leads and it has all the records of."""
    for topic in image.topics.values():
        for index, partition in topic.partitions.items():
            if partition.leader >= 0 or broker_id not in partition.replicas:
                continue
            change = None
            if broker_id in partition.isr:
                change = _change(topic.topic_id, index, partition, leader=broker_id)
            elif not partition.isr and broker_id in partition.elr:
                change = _change(
                    topic.topic_id, index, partition, isr=(broker_id,), leader=broker_id
                )
                assert change is not None
                change.eligible_leader_replicas = [r for r in partition.elr if r != broker_id]
                change.last_known_elr = []
            if change is not None:
                yield change


def _change(
    topic_id: UUID,
    index: int,
    before: PartitionState,
    *,
    isr: tuple[int, ...] | None = None,
    leader: int,
) -> PartitionChangeRecord | None:
    record = PartitionChangeRecord(partition_id=index, topic_id=topic_id)
    changed = False
    if isr is not None and isr != before.isr:
        record.isr = list(isr)
        changed = True
    if leader != before.leader:
        record.leader = leader
        changed = True
    return record if changed else None
