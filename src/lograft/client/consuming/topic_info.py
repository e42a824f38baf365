"""Metadata of topics for the application, independent of the topics that the consumer reads."""

from lograft.client.consuming.settings import ConsumerSettings
from lograft.client.core import ClientCore
from lograft.client.metadata import MetadataCache, Topic
from lograft.client.types import TopicInfo
from lograft.wire.messages.metadata import MetadataRequest, MetadataResponse


async def fetch_topics(core: ClientCore[ConsumerSettings]) -> dict[str, TopicInfo]:
    """Returns all topics that this client is authorized to see."""
    response = await core.network.request(
        lambda version: MetadataRequest(
            topics=None if version > 0 else [], allow_auto_topic_creation=False
        ),
        MetadataResponse,
    )
    cache = MetadataCache()
    cache.update(response, covers_all=True)
    return {name: topic_info_of(topic) for name, topic in sorted(cache.topics.items())}


def topic_info_of(topic: Topic) -> TopicInfo:
    return TopicInfo(
        topic.name,
        topic.id,
        topic.is_internal,
        tuple(partition.info() for partition in topic.partitions),
    )
