"""Questions about topics that a program asks by itself, beside what the client keeps current."""

from lograft.client.consuming.settings import ConsumerSettings
from lograft.client.core import ClientCore
from lograft.client.metadata import MetadataCache, Topic
from lograft.client.types import TopicInfo
from lograft.wire.messages.metadata import MetadataRequest, MetadataResponse


async def all_topics(core: ClientCore[ConsumerSettings]) -> dict[str, TopicInfo]:
    """Every topic that this client may see."""
    answer = await core.network.request(
        lambda version: MetadataRequest(
            topics=None if version > 0 else [], allow_auto_topic_creation=False
        ),
        MetadataResponse,
    )
    cache = MetadataCache()
    cache.update(answer, covers_all=True)
    return {name: topic_info(topic) for name, topic in sorted(cache.topics.items())}


def topic_info(topic: Topic) -> TopicInfo:
    return TopicInfo(
        topic.name,
        topic.id,
        topic.is_internal,
        tuple(one.info() for one in topic.partitions),
    )
