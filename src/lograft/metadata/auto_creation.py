"""Automatic creation of topics and partitions: a broker's requests to the controller after a client
has used a missing one."""

from collections.abc import Iterable, Mapping

from lograft.metadata.image import MetadataImage
from lograft.metadata.types import ON_DEMAND_MAX, ResourceType
from lograft.model.errors import ErrorCode, Rejected
from lograft.model.settings.broker import BrokerConfig
from lograft.model.types import INTERNAL_TOPICS
from lograft.wire.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from lograft.wire.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)


def creation_request(
    names: Iterable[str], *, config: BrokerConfig, timeout_ms: int
) -> CreateTopicsRequest:
    """Creates topics with this broker's defaults."""
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
                configs=[] if name in INTERNAL_TOPICS else settings,
            )
            for name in names
        ],
        timeout_ms=timeout_ms,
    )


def on_demand_max(image: MetadataImage, topic_name: str) -> int | None:
    """The maximum number of partitions that producers can create on demand; None if the topic does
    not grow. Internal topics never do, because their partition count determines coordinators."""
    text = image.config_of(ResourceType.TOPIC, topic_name).get(ON_DEMAND_MAX)
    return None if text is None or topic_name in INTERNAL_TOPICS else int(text)


def check_on_demand_max(
    topic_name: str, new_values: Mapping[str, str], current: Mapping[str, str]
) -> None:
    """Rejects the config for internal topics, which do not grow. A value that is already set stays
    valid, so that other configs of the topic can be changed."""
    limit = new_values.get(ON_DEMAND_MAX)
    if topic_name in INTERNAL_TOPICS and limit is not None and limit != current.get(ON_DEMAND_MAX):
        raise Rejected(
            ErrorCode.INVALID_CONFIG,
            f"{topic_name} has a fixed number of partitions, so {ON_DEMAND_MAX} cannot be set.",
        )


def growth_request(
    image: MetadataImage, topic_name: str, index: int, *, timeout_ms: int
) -> CreatePartitionsRequest | None:
    """The request that extends a topic up to partition `index`, to which a producer writes. None
    if the partition exists. Raises Rejected if the topic's config does not allow it."""
    topic = image.topic(topic_name)
    if topic is None or index < 0:
        raise Rejected(
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            f"Partition {topic_name}-{index} does not exist.",
        )
    if index < len(topic.partitions):
        return None
    limit = on_demand_max(image, topic_name)
    if limit is None:
        raise Rejected(
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            f"Partition {topic_name}-{index} does not exist, and the topic does not create"
            f" partitions on demand. Add it with CreatePartitions, or set {ON_DEMAND_MAX} on the"
            " topic.",
        )
    if index >= limit:
        raise Rejected(
            ErrorCode.INVALID_PARTITIONS,
            f"Partition {topic_name}-{index} exceeds the limit of {limit} partitions on demand."
            f" Add it with CreatePartitions, or increase {ON_DEMAND_MAX} of the topic.",
        )
    return CreatePartitionsRequest(
        topics=[CreatePartitionsTopic(name=topic_name, count=index + 1, assignments=None)],
        timeout_ms=timeout_ms,
    )
