"""Commits to topics that one group may read (`subscription.mode=ptp`): each has its own answer."""

from typing import TypeVar

from lograft.api.context import Context
from lograft.api.topic_names import NamedTopic, NamedTopics
from lograft.model.errors import Rejected

T = TypeVar("T", bound=NamedTopic)


async def claimed_topics(context: Context, group_id: str, topics: NamedTopics[T]) -> NamedTopics[T]:
    """Says also which topics another group has claimed. Claims those that nobody has."""
    broker = context.broker
    if not broker.image.claims or not topics.known:
        return topics
    broker.groups.led_for(group_id)  # Rejected where it is coordinated elsewhere.
    refused = dict[str, Rejected]()
    for topic in topics.known:
        try:
            await broker.claims.claim(group_id, [topic.name])
        except Rejected as error:
            refused[topic.name] = error
    return NamedTopics(
        [topic for topic in topics.known if topic.name not in refused],
        [
            *topics.refused,
            *((one, refused[one.name].code) for one in topics.known if one.name in refused),
        ],
    )
