"""The changes of a sequence of records, so that nodes that replay the log act only on those."""

from dataclasses import dataclass, field
from uuid import UUID

from lograft.metadata.types import ConfigResource, TopicState


@dataclass(slots=True)
class MetadataDelta:
    """The difference between two images. Dicts serve as sets that keep the order of the log."""

    created_topics: dict[UUID, None] = field(default_factory=dict)
    #: Topics that existed before, with their new or changed partitions.
    changed_topics: dict[UUID, dict[int, None]] = field(default_factory=dict)
    #: With their last state, which the image no longer contains.
    deleted_topics: dict[UUID, TopicState] = field(default_factory=dict)
    configs: dict[ConfigResource, None] = field(default_factory=dict)
    brokers: dict[int, None] = field(default_factory=dict)
    controllers: dict[int, None] = field(default_factory=dict)
    features: dict[str, None] = field(default_factory=dict)
    producer_ids: bool = False
    #: Created, replaced and removed ones.
    acls: dict[UUID, None] = field(default_factory=dict)
    #: Whether ACLs, credentials, tokens or quotas changed: caches of decisions become invalid.
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
            del self.created_topics[topic.topic_id]  # The topic was never visible.
        else:
            self.deleted_topics[topic.topic_id] = topic
