"""Computes the target assignment of a consumer group with an assignor."""

from collections.abc import Collection, Iterable, Mapping
from hashlib import blake2b
from typing import NamedTuple
from uuid import UUID

from lograft.coordination.assignors import Assignment, Assignor, GroupSpec, MemberSpec
from lograft.metadata.image import MetadataImage
from lograft.metadata.types import TopicState


class Subscriber(NamedTuple):
    #: May contain duplicates and topics that do not exist.
    topics: tuple[str, ...]
    previous: Assignment
    rack: str | None
    instance_id: str | None


def compute_targets(
    subscribers: Mapping[str, Subscriber], assign: Assignor, image: MetadataImage
) -> dict[str, Assignment]:
    # Most members have equal subscriptions.
    ids_of: dict[tuple[str, ...], tuple[UUID, ...]] = {}
    members: dict[str, MemberSpec] = {}
    for member_id, subscriber in subscribers.items():
        ids = ids_of.get(subscriber.topics)
        if ids is None:
            ids = ids_of[subscriber.topics] = existing_topics(subscriber.topics, image)
        members[member_id] = MemberSpec(
            ids, subscriber.previous, subscriber.rack, subscriber.instance_id
        )
    counts = {
        topic_id: len(image.topics[topic_id].partitions)
        for ids in ids_of.values()
        for topic_id in ids
    }

    def racks(topic_id: UUID, partition: int) -> Collection[str]:
        return _racks(image.topics[topic_id], partition, image)

    if any(member.rack is not None for member in members.values()):
        return assign(GroupSpec(members, counts, racks))
    return assign(GroupSpec(members, counts))


def existing_topics(names: Iterable[str], image: MetadataImage) -> tuple[UUID, ...]:
    ids = image.topic_ids
    return tuple(sorted({ids[name] for name in names if name in ids}))


def metadata_hash(names: Iterable[str], image: MetadataImage) -> int:
    """Hash of everything an assignor sees of these topics; 0 if there are none."""
    topics = [image.topics[topic_id] for topic_id in existing_topics(names, image)]
    if not topics:
        return 0
    digest = blake2b(digest_size=8)
    for topic in topics:
        digest.update(topic.topic_id.bytes)
        digest.update(len(topic.partitions).to_bytes(4))
        for partition in range(len(topic.partitions)):
            for rack in _racks(topic, partition, image):
                digest.update(partition.to_bytes(4) + rack.encode() + b"\0")
    return int.from_bytes(digest.digest(), signed=True)


def _racks(topic: TopicState, partition: int, image: MetadataImage) -> list[str]:
    replicas = topic.partitions[partition].replicas
    known = (image.brokers.get(broker_id) for broker_id in replicas)
    return sorted({broker.rack for broker in known if broker and broker.rack is not None})
