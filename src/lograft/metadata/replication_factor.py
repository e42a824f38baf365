"""Changes the replication factor of existing partitions, by reassignments that keep the current
replicas where possible."""

from collections.abc import Sequence

from lograft.metadata.image import MetadataImage
from lograft.metadata.partitions import place_replicas
from lograft.metadata.reassignment import alter_reassignments, target_of
from lograft.metadata.types import TopicState
from lograft.model.errors import ErrorCode, Rejected
from lograft.model.settings.broker import BrokerConfig
from lograft.wire.message import Message
from lograft.wire.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)


def resize(
    image: MetadataImage,
    topic: TopicState,
    indexes: Sequence[int],
    factor: int,
    *,
    config: BrokerConfig,
) -> tuple[Message, ...]:
    """The records that start the change, for these partitions or for all. Raises Rejected if any of
    them is rejected."""
    selected = list(indexes) or list(topic.partitions)
    unknown = [index for index in selected if index not in topic.partitions]
    if unknown:
        raise Rejected(
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            f"Partition {topic.name}-{unknown[0]} does not exist.",
        )
    if factor > len(image.brokers):
        raise Rejected(
            ErrorCode.INVALID_REPLICATION_FACTOR,
            f"A replication factor of {factor} requires {factor} brokers, but only"
            f" {len(image.brokers)} are registered.",
        )
    request = AlterPartitionReassignmentsRequest(
        topics=[
            ReassignableTopic(
                name=topic.name,
                partitions=[
                    ReassignablePartition(
                        partition_index=index, replicas=_replicas(image, topic, index, factor)
                    )
                    for index in selected
                    if len(target_of(topic.partitions[index])) != factor
                ],
            )
        ]
    )
    outcome = alter_reassignments(image, request, config=config)
    for result in outcome.reply.responses[0].partitions:
        if result.error_code:
            raise Rejected(
                ErrorCode(result.error_code), result.error_message or f"{result.partition_index}"
            )
    return outcome.records


def _replicas(image: MetadataImage, topic: TopicState, index: int, factor: int) -> list[int]:
    """With fewer replicas, the first ones are kept; with more, the ring selects the others."""
    current = target_of(topic.partitions[index])
    (ring,) = place_replicas(
        image, topic.name, range(index, index + 1), replication_factor=factor, holders=current
    )
    replicas = [*current, *(broker for broker in ring if broker not in current)]
    return replicas[:factor]
