"""Finds settings without effect in changes of topic, group and client metrics configs.

Brokers report their own settings when they apply them; the active controller reports these.
"""

from collections.abc import Iterable, Mapping
from typing import Final

from lograft.metadata.resource_configs import CLIENT_METRICS_CONFIGS, GROUP_CONFIGS
from lograft.metadata.types import ResourceType
from lograft.model.settings.effects import find_without_effect
from lograft.model.settings.keys import ConfigKey
from lograft.model.settings.topic import TOPIC_CONFIGS
from lograft.wire.message import Message
from lograft.wire.records.config_record import ConfigRecord

_TABLES: Final[Mapping[int, tuple[str, Mapping[str, ConfigKey]]]] = {
    ResourceType.topic: ("topic", TOPIC_CONFIGS),
    ResourceType.group: ("group", GROUP_CONFIGS),
    ResourceType.client_metrics: ("client metrics", CLIENT_METRICS_CONFIGS),
}


def find_ignored_settings(records: Iterable[Message]) -> list[str]:
    """As `preallocate of topic orders`, in the order of the records."""
    ignored = []
    for record in records:
        if not isinstance(record, ConfigRecord) or record.value is None:
            continue
        owner, keys = _TABLES.get(record.resource_type, ("", {}))
        if find_without_effect(keys, {record.name: record.value}):
            ignored.append(f"{record.name} of {owner} {record.resource_name}")
    return ignored
