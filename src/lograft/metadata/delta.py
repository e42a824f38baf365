"""What a run of records changed, so that a follower of the log acts on the difference only."""

from dataclasses import dataclass, field
from uuid import UUID

from lograft.metadata.types import ConfigResource, TopicState


@dataclass(slots=True)
class MetadataDelta:
    """Compares the image before and after. Dicts serve as sets that keep the log's order."""

    created_topics: dict[UUID, None] = field(default_factory=dict)
    #: Topics that were there before, with the partitions that are new or different.
    changed_topics: dict[UUID, dict[int, None]] = field(default_factory=dict)
    #: With their last state: the image has forgotten them.
    deleted_topics: dict[UUID, TopicState] = field(default_factory=dict)
    configs: dict[ConfigResource, None] = field(default_factory=dict)
    brokers: dict[int, None] = field(default_factory=dict)
    controllers: dict[int, None] = field(default_factory=dict)
    features: dict[str, None] = field(default_factory=dict)
    producer_ids: bool = False
    #: ACLs, credentials, tokens, quotas: whoever caches decisions drops the cache.
    security: bool = False
    quotas: bool = False

    @property
    def is_empty(self) -> bool:
        return self == MetadataDelta()

    def partition_changed(self, topic_id: UUID, partition: int) -> None:
        if topic_id not in self.created_topics:
            self.changed_topics.setdefault(topic_id, {})[partition] = None

    def topic_deleted(self, topic: TopicState) -> None:
        self.changed_topics.pop(topic.topic_id, None)
        if topic.topic_id in self.created_topics:
            del self.created_topics[topic.topic_id]  # nobody ever saw it
        else:
            self.deleted_topics[topic.topic_id] = topic
