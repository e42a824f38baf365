"""Decisions about disks: a broker with several log dirs says in which one a replica lies."""

from collections.abc import Iterable, Mapping
from uuid import UUID

from lograft.metadata.errors import Refused
from lograft.metadata.image import MetadataImage
from lograft.metadata.types import Outcome
from lograft.model.errors import ErrorCode
from lograft.model.types import TopicIdPartition
from lograft.wire.records.partition_change_record import PartitionChangeRecord


def assign_directories(
    image: MetadataImage,
    broker_id: int,
    broker_epoch: int,
    assignments: Mapping[UUID, Iterable[TopicIdPartition]],
) -> Outcome[dict[TopicIdPartition, ErrorCode]]:
    """The reply names what could not be assigned."""
    broker = image.brokers.get(broker_id)
    if broker is None:
        raise Refused(ErrorCode.broker_id_not_registered, f"Broker {broker_id} is not registered.")
    if broker.epoch != broker_epoch:
        raise Refused(
            ErrorCode.stale_broker_epoch,
            f"Broker {broker_id} is registered with epoch {broker.epoch}, not {broker_epoch}.",
        )
    records = []
    refused: dict[TopicIdPartition, ErrorCode] = {}
    for directory, partitions in assignments.items():
        for key in partitions:
            partition = image.partition(key.topic_id, key.partition)
            if key.topic_id not in image.topics:
                refused[key] = ErrorCode.unknown_topic_id
            elif partition is None:
                refused[key] = ErrorCode.unknown_topic_or_partition
            elif broker_id not in partition.replicas:
                refused[key] = ErrorCode.not_leader_or_follower
            else:
                place = partition.replicas.index(broker_id)
                if partition.directories[place] == directory:
                    continue
                directories = list(partition.directories)
                directories[place] = directory
                records.append(
                    PartitionChangeRecord(
                        partition_id=key.partition, topic_id=key.topic_id, directories=directories
                    )
                )
    return Outcome(tuple(records), refused)
