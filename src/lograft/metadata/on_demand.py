"""What a broker asks the controller for because a client used what nobody had created."""

from collections.abc import Iterable

from lograft.metadata.errors import Refused
from lograft.metadata.image import MetadataImage
from lograft.metadata.types import ON_DEMAND_MAX, ResourceType
from lograft.model.broker_configs import BrokerConfig
from lograft.model.errors import ErrorCode
from lograft.wire.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from lograft.wire.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)


def creation_request(
    names: Iterable[str], *, config: BrokerConfig, timeout_ms: int
) -> CreateTopicsRequest:
    """Topics with this broker's defaults."""
    settings = []
    if config.auto_create_partitions_enable:
        limit = str(config.auto_create_partitions_max)
        settings.append(CreatableTopicConfig(name=ON_DEMAND_MAX, value=limit))
    return CreateTopicsRequest(
        topics=[
            CreatableTopic(
                name=name,
                num_partitions=config.num_partitions,
                replication_factor=config.default_replication_factor,
                configs=settings,
            )
            for name in names
        ],
        timeout_ms=timeout_ms,
    )


def growth_request(
    image: MetadataImage, topic_name: str, index: int, *, timeout_ms: int
) -> CreatePartitionsRequest | None:
    """Someone produces to partition `index` of a topic that was created on demand: it grows up to
    that partition, if its own limit (a topic setting) allows it. None: the partition is there."""
    topic = image.topic(topic_name)
    if topic is None or index < 0:
        raise Refused(
            ErrorCode.unknown_topic_or_partition, f"There is no partition {topic_name}-{index}."
        )
    if index < len(topic.partitions):
        return None
    limit = image.config_of(ResourceType.topic, topic_name).get(ON_DEMAND_MAX)
    if limit is None:
        raise Refused(
            ErrorCode.unknown_topic_or_partition,
            f"There is no partition {topic_name}-{index}, and the topic was not created on demand.",
        )
    if index >= int(limit):
        raise Refused(
            ErrorCode.invalid_partitions,
            f"Partition {topic_name}-{index} is beyond the {limit} that are created on demand"
            f" ({ON_DEMAND_MAX}): create it with CreatePartitions, or raise the limit.",
        )
    return CreatePartitionsRequest(
        topics=[CreatePartitionsTopic(name=topic_name, count=index + 1, assignments=None)],
        timeout_ms=timeout_ms,
    )
