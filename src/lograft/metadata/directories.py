"""Decides to which log directories a broker's replicas are assigned."""

from collections.abc import Iterable, Mapping
from uuid import UUID

from lograft.metadata.elections import PartitionChange, controller_elects
from lograft.metadata.image import MetadataImage
from lograft.metadata.leadership_rules import LeadershipRules
from lograft.metadata.types import ControllerResult
from lograft.model.errors import ErrorCode, Rejected
from lograft.model.settings.broker import BrokerConfig
from lograft.model.types import TopicIdPartition
from lograft.wire.records.partition_change_record import PartitionChangeRecord


def assign_directories(
    image: MetadataImage,
    broker_id: int,
    broker_epoch: int,
    assignments: Mapping[UUID, Iterable[TopicIdPartition]],
    *,
    config: BrokerConfig,
) -> ControllerResult[dict[TopicIdPartition, ErrorCode]]:
    """The reply contains the partitions that could not be assigned. A replica in a directory that
    the broker does not have (any more) is out of sync and leads nothing."""
    broker = image.brokers.get(broker_id)
    if broker is None:
        raise Rejected(ErrorCode.BROKER_ID_NOT_REGISTERED, f"Broker {broker_id} is not registered.")
    if broker.epoch != broker_epoch:
        raise Rejected(
            ErrorCode.STALE_BROKER_EPOCH,
            f"Broker {broker_id} is registered with epoch {broker.epoch}, not {broker_epoch}.",
        )
    leadership_rules = LeadershipRules(image, config)
    records: dict[TopicIdPartition, PartitionChangeRecord] = {}
    errors: dict[TopicIdPartition, ErrorCode] = {}
    for directory, partitions in assignments.items():
        for key in partitions:
            state = image.partition(key.topic_id, key.partition)
            if key.topic_id not in image.topics:
                errors[key] = ErrorCode.UNKNOWN_TOPIC_ID
            elif state is None:
                errors[key] = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            elif broker_id not in state.replicas:
                errors[key] = ErrorCode.NOT_LEADER_OR_FOLLOWER
            elif key in records:
                errors[key] = ErrorCode.INVALID_REQUEST  # In two directories.
            else:
                change = PartitionChange(
                    leadership_rules, image.topics[key.topic_id], key.partition
                )
                change.directories[broker_id] = directory
                if not broker.serves(directory) and controller_elects(state):
                    change.remove_from_isr(broker_id)
                record = change.build()
                if record is not None:
                    records[key] = record
    return ControllerResult(tuple(records.values()), errors)
