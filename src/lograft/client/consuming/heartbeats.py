"""The content of the heartbeats of a KIP-848 member. Values only."""

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
    #: "" without a pattern.
    pattern: str
    assignor: str | None
    owned: frozenset[TopicIdPartition]

    def fields_since(self, sent: "HeartbeatContent | None") -> dict[str, Any]:
        """Returns the request fields that differ from `sent`, the content of the last acknowledged
        heartbeat; all fields if it is None."""
        fields: dict[str, Any] = {}
        if sent is None or sent.rebalance_timeout_ms != self.rebalance_timeout_ms:
            fields["rebalance_timeout_ms"] = self.rebalance_timeout_ms
        if sent is None or sent.topics != self.topics:
            fields["subscribed_topic_names"] = list(self.topics)
        if self.pattern != ("" if sent is None else sent.pattern):
            fields["subscribed_topic_regex"] = self.pattern
        if sent is None or sent.assignor != self.assignor:
            fields["server_assignor"] = self.assignor
        if sent is None or sent.owned != self.owned:
            fields["topic_partitions"] = _group_by_topic(self.owned)
        return fields


def _group_by_topic(
    owned: frozenset[TopicIdPartition],
) -> list[ConsumerGroupHeartbeatRequestTopicPartitions]:
    by_topic: dict[UUID, list[int]] = {}
    for topic_id, index in sorted(owned, key=lambda entry: (entry.topic_id.int, entry.partition)):
        by_topic.setdefault(topic_id, []).append(index)
    return [
        ConsumerGroupHeartbeatRequestTopicPartitions(topic_id=topic_id, partitions=indexes)
        for topic_id, indexes in by_topic.items()
    ]


def member_id_of(uuid: UUID) -> str:
    """Formats a UUID as Kafka does: 22 characters of URL-safe Base64."""
    return urlsafe_b64encode(uuid.bytes).decode().rstrip("=")
