"""Finds configs without effect among those of topics, groups and client metrics.

The active controller reports those in a request. Every node reports those in the metadata when it
starts, because Apache Kafka may have written them. Brokers report their own configs when they
apply them.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import Final

from lograft.metadata.image import MetadataImage
from lograft.metadata.resource_configs import CLIENT_METRICS_CONFIGS, GROUP_CONFIGS
from lograft.metadata.types import ResourceType
from lograft.model.settings.effects import find_without_effect
from lograft.model.settings.keys import ConfigKey
from lograft.model.settings.topic import TOPIC_CONFIGS
from lograft.wire.message import Message
from lograft.wire.records.config_record import ConfigRecord

#: Maximum number of topics or groups in one message.
_NAMES_MAX: Final = 5
_TABLES: Final[Mapping[int, tuple[str, Mapping[str, ConfigKey]]]] = {
    ResourceType.TOPIC: ("topic", TOPIC_CONFIGS),
    ResourceType.GROUP: ("group", GROUP_CONFIGS),
    ResourceType.CLIENT_METRICS: ("client metrics subscription", CLIENT_METRICS_CONFIGS),
}


def find_ignored_settings(records: Iterable[Message]) -> list[str]:
    """For example `preallocate of topic orders`, in the order of the records."""
    ignored = []
    for record in records:
        if not isinstance(record, ConfigRecord) or record.value is None:
            continue
        owner, keys = _TABLES.get(record.resource_type, ("", {}))
        if find_without_effect(keys, {record.name: record.value}):
            ignored.append(f"{record.name} of {owner} {record.resource_name}")
    return ignored


def find_stored_ignored_settings(image: MetadataImage) -> list[str]:
    """For example `local.retention.ms of 2 topics (orders, payments)`, sorted."""
    owners: defaultdict[tuple[str, str], list[str]] = defaultdict(list)
    for resource, values in image.configs.items():
        kind, keys = _TABLES.get(resource.type, ("", {}))
        for name in find_without_effect(keys, values):
            owners[name, kind].append(resource.name)
    return [
        f"{name} of {len(names)} {kind}{'s' if len(names) > 1 else ''}"
        f" ({', '.join(sorted(names)[:_NAMES_MAX])}{', …' if len(names) > _NAMES_MAX else ''})"
        for (name, kind), names in sorted(owners.items())
    ]
