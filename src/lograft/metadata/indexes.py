"""Indexes of a metadata image, which replace searches through all partitions. Replay updates them
with every changed partition and every changed config of a topic."""

from typing import TYPE_CHECKING

from lograft.metadata.types import (
    POINT_TO_POINT,
    SUBSCRIPTION_GROUP,
    SUBSCRIPTION_MODE,
    PartitionState,
    ResourceType,
)
from lograft.model.types import NO_NODE, ReplicationMode, TopicIdPartition

if TYPE_CHECKING:
    from lograft.metadata.image import MetadataImage

#: Represents a partition before its creation and after its deletion.
_NO_PARTITION = PartitionState((), (), (), (), (), (), (), NO_NODE, 0, 0, 0)


def update_indexes(
    image: "MetadataImage",
    key: TopicIdPartition,
    before: PartitionState | None,
    after: PartitionState,
) -> None:
    if before is None:
        before = _NO_PARTITION
    if before.leader != after.leader:
        _count(image.leader_counts, before.leader, -1)
        _count(image.leader_counts, after.leader, +1)
    if before.replicas != after.replicas:
        _update_replicas(image, key, before.replicas, after.replicas)
    _mark(image.leaderless, key, bool(after.replicas) and after.leader == NO_NODE)
    _mark(image.not_preferred, key, after.leader != NO_NODE and after.leader != after.replicas[0])
    _mark(image.not_isr, key, after.mode is not ReplicationMode.ISR)
    _mark(image.switching, key, after.mode in (ReplicationMode.ENTERING, ReplicationMode.LEAVING))
    _mark(image.reassigning, key, bool(after.adding_replicas or after.removing_replicas))


def remove_from_indexes(
    image: "MetadataImage", key: TopicIdPartition, before: PartitionState
) -> None:
    update_indexes(image, key, before, _NO_PARTITION)


def update_claim(image: "MetadataImage", topic: str) -> None:
    """Updates the claim after a config of the topic changed or all were removed."""
    settings = image.config_of(ResourceType.TOPIC, topic)
    if settings.get(SUBSCRIPTION_MODE) == POINT_TO_POINT:
        image.claims[topic] = settings.get(SUBSCRIPTION_GROUP, "")
    else:
        image.claims.pop(topic, None)


def _count(counts: dict[int, int], broker_id: int, by: int) -> None:
    if broker_id == NO_NODE:
        return
    count = counts.get(broker_id, 0) + by
    if count:
        counts[broker_id] = count
    else:
        del counts[broker_id]


def _update_replicas(
    image: "MetadataImage",
    key: TopicIdPartition,
    before: tuple[int, ...],
    after: tuple[int, ...],
) -> None:
    for broker_id in before:
        if broker_id not in after:
            held = image.held_by[broker_id]
            del held[key]
            if not held:
                del image.held_by[broker_id]
    for broker_id in after:
        if broker_id not in before:
            image.held_by.setdefault(broker_id, {})[key] = None


def _mark(keys: dict[TopicIdPartition, None], key: TopicIdPartition, is_so: bool) -> None:
    if is_so:
        keys[key] = None
    elif keys:
        keys.pop(key, None)
