"""The difference between two images when the records between them are not available, because a
lagging node has loaded a snapshot instead."""

from collections.abc import Mapping
from typing import TypeVar

from lograft.metadata.delta import MetadataDelta
from lograft.metadata.image import MetadataImage

K = TypeVar("K")


def difference(before: MetadataImage, after: MetadataImage) -> MetadataDelta:
    delta = MetadataDelta(
        configs=_find_changed(before.configs, after.configs),
        brokers=_find_changed(before.brokers, after.brokers),
        controllers=_find_changed(before.controllers, after.controllers),
        features=_find_changed(before.features, after.features),
        producer_ids=before.producer_ids_next != after.producer_ids_next,
        acls=_find_changed(before.acls, after.acls),
        security=(before.acls, before.scram, before.delegation_tokens)
        != (after.acls, after.scram, after.delegation_tokens),
        quotas=before.client_quotas != after.client_quotas,
    )
    for topic_id, topic in before.topics.items():
        if topic_id not in after.topics:
            delta.deleted_topics[topic_id] = topic
    for topic_id, topic in after.topics.items():
        known = before.topics.get(topic_id)
        if known is None:
            delta.created_topics[topic_id] = None
            continue
        indexes = _find_changed(known.partitions, topic.partitions)
        if indexes:
            delta.changed_topics[topic_id] = indexes
    return delta


def _find_changed(before: Mapping[K, object], after: Mapping[K, object]) -> dict[K, None]:
    keys = {**dict.fromkeys(before), **dict.fromkeys(after)}
    return {key: None for key in keys if before.get(key) != after.get(key)}
