"""Another number of replicas for partitions that exist: a reassignment that keeps who is there."""

from collections.abc import Sequence

from lograft.metadata.image import MetadataImage
from lograft.metadata.partitions import placed
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
    """The records that begin it, for these partitions or for all. Raises Rejected for any."""
    chosen = list(indexes) or list(topic.partitions)
    unknown = [index for index in chosen if index not in topic.partitions]
    if unknown:
        raise Rejected(
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            f"There is no partition {topic.name}-{unknown[0]}.",
        )
    if factor > len(image.brokers):
        raise Rejected(
            ErrorCode.INVALID_REPLICATION_FACTOR,
            f"{factor} replicas need as many brokers, {len(image.brokers)} are registered.",
        )
    request = AlterPartitionReassignmentsRequest(
        topics=[
            ReassignableTopic(
                name=topic.name,
                partitions=[
                    ReassignablePartition(
                        partition_index=index, replicas=_replicas(image, topic, index, factor)
                    )
                    for index in chosen
                    if len(target_of(topic.partitions[index])) != factor
                ],
            )
        ]
    )
    outcome = alter_reassignments(image, request, config=config)
    for answer in outcome.reply.responses[0].partitions:
        if answer.error_code:
            raise Rejected(
                ErrorCode(answer.error_code), answer.error_message or f"{answer.partition_index}"
            )
    return outcome.records


def _replicas(image: MetadataImage, topic: TopicState, index: int, factor: int) -> list[int]:
    """Fewer: the first ones stay. More: those come that the ring would have chosen too."""
    now = target_of(topic.partitions[index])
    (ring,) = placed(
        image, topic.name, range(index, index + 1), replication_factor=factor, holders=now
    )
    wanted = [*now, *(broker for broker in ring if broker not in now)]
    return wanted[:factor]
