"""Commits to topics that only one group may read (`subscription.mode=ptp`), checked per topic."""

from typing import TypeVar

from lograft.api.context import Context
from lograft.api.topic_names import NamedTopic, NamedTopics
from lograft.model.errors import Rejected

T = TypeVar("T", bound=NamedTopic)


async def check_claims(context: Context, group_id: str, topics: NamedTopics[T]) -> NamedTopics[T]:
    """Claims unclaimed topics for the group, and rejects those that another group has claimed."""
    broker = context.broker
    if not broker.image.claims or not topics.known:
        return topics
    broker.groups.led_for(group_id)  # Raises Rejected if another broker coordinates the group.
    rejected = dict[str, Rejected]()
    for topic in topics.known:
        try:
            await broker.claims.claim(group_id, [topic.name])
        except Rejected as error:
            rejected[topic.name] = error
    return NamedTopics(
        [topic for topic in topics.known if topic.name not in rejected],
        [
            *topics.rejected,
            *((t, rejected[t.name].code) for t in topics.known if t.name in rejected),
        ],
    )
