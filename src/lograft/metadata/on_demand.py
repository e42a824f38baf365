"""What a broker asks the controller for because a client used what nobody had created."""

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
                configs=[] if name in INTERNAL_TOPICS else settings,
            )
            for name in names
        ],
        timeout_ms=timeout_ms,
    )


def on_demand_max(image: MetadataImage, topic_name: str) -> int | None:
    """Up to how many partitions a topic grows when producers write to them; None: it does not.
    Internal topics never do, since their number of partitions says who coordinates what."""
    text = image.config_of(ResourceType.TOPIC, topic_name).get(ON_DEMAND_MAX)
    return None if text is None or topic_name in INTERNAL_TOPICS else int(text)


def check_on_demand_max(
    topic_name: str, wanted: Mapping[str, str], current: Mapping[str, str]
) -> None:
    """An internal topic would not grow. A value that is set already stays valid, so that the other
    settings of the topic can be changed."""
    limit = wanted.get(ON_DEMAND_MAX)
    if topic_name in INTERNAL_TOPICS and limit is not None and limit != current.get(ON_DEMAND_MAX):
        raise Rejected(
            ErrorCode.INVALID_CONFIG,
            f"{topic_name} has a fixed number of partitions, so {ON_DEMAND_MAX} cannot be set.",
        )


def growth_request(
    image: MetadataImage, topic_name: str, index: int, *, timeout_ms: int
) -> CreatePartitionsRequest | None:
    """The request that lets a topic grow up to partition `index`, to which a producer writes. None:
    the partition exists. Raises Rejected where the topic's setting does not allow it."""
    topic = image.topic(topic_name)
    if topic is None or index < 0:
        raise Rejected(
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"There is no partition {topic_name}-{index}."
        )
    if index < len(topic.partitions):
        return None
    limit = on_demand_max(image, topic_name)
    if limit is None:
        raise Rejected(
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            f"There is no partition {topic_name}-{index}, and the topic does not create partitions"
            f" on demand: add it with CreatePartitions, or set {ON_DEMAND_MAX} on the topic.",
        )
    if index >= limit:
        raise Rejected(
            ErrorCode.INVALID_PARTITIONS,
            f"Partition {topic_name}-{index} is beyond the limit of {limit} partitions on demand:"
            f" add it with CreatePartitions, or raise {ON_DEMAND_MAX} of the topic.",
        )
    return CreatePartitionsRequest(
        topics=[CreatePartitionsTopic(name=topic_name, count=index + 1, assignments=None)],
        timeout_ms=timeout_ms,
    )
