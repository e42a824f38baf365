"""What a member of a KIP-848 group says in its heartbeats. Values only."""

from base64 import urlsafe_b64encode
from typing import Any, NamedTuple
from uuid import UUID

from lograft.model.types import TopicIdPartition
from lograft.wire.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequestTopicPartitions,
)


class HeartbeatContent(NamedTuple):
    rebalance_timeout_ms: int
    topics: tuple[str, ...]
    #: "" where there is none.
    pattern: str
    assignor: str | None
    owned: frozenset[TopicIdPartition]

    def news_since(self, told: "HeartbeatContent | None") -> dict[str, Any]:
        """The fields of a request; those that the coordinator knows are left out. `told`: None
        says everything."""
        fields: dict[str, Any] = {}
        if told is None or told.rebalance_timeout_ms != self.rebalance_timeout_ms:
            fields["rebalance_timeout_ms"] = self.rebalance_timeout_ms
        if told is None or told.topics != self.topics:
            fields["subscribed_topic_names"] = list(self.topics)
        if self.pattern != ("" if told is None else told.pattern):
            fields["subscribed_topic_regex"] = self.pattern
        if told is None or told.assignor != self.assignor:
            fields["server_assignor"] = self.assignor
        if told is None or told.owned != self.owned:
            fields["topic_partitions"] = _by_topic(self.owned)
        return fields


def _by_topic(
    owned: frozenset[TopicIdPartition],
) -> list[ConsumerGroupHeartbeatRequestTopicPartitions]:
    found: dict[UUID, list[int]] = {}
    for one in sorted(owned, key=lambda one: (one.topic_id.int, one.partition)):
        found.setdefault(one.topic_id, []).append(one.partition)
    return [
        ConsumerGroupHeartbeatRequestTopicPartitions(topic_id=topic_id, partitions=partitions)
        for topic_id, partitions in found.items()
    ]


def member_id_of(uuid: UUID) -> str:
    """As Kafka writes its uuids: 22 characters."""
    return urlsafe_b64encode(uuid.bytes).decode().rstrip("=")
