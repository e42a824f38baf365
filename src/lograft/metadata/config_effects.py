"""The effects of changed configs on partitions, decided in the same batch as the configs."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from lograft.metadata.elections import PartitionChange
from lograft.metadata.image import MetadataImage
from lograft.metadata.leadership_rules import (
    MIN_ISR,
    UNCLEAN_ELECTIONS,
    LeadershipRules,
    valid_value,
)
from lograft.metadata.types import ELR_VERSION, ConfigResource, ResourceType, TopicState
from lograft.model.errors import ErrorCode, Rejected
from lograft.model.settings.broker import BrokerConfig
from lograft.wire.message import Message
from lograft.wire.records.config_record import ConfigRecord

_MATTERS: Final = (MIN_ISR, UNCLEAN_ELECTIONS)
_CLUSTER: Final = ConfigResource(ResourceType.BROKER, "")


def effects(
    image: MetadataImage, records: Sequence[ConfigRecord], config: BrokerConfig
) -> list[Message]:
    """With a lower `min.insync.replicas`, a leader may commit without the eligible replicas, so
    they lose their eligibility. (A partition without a leader commits nothing, so its replicas
    would still have everything; Kafka clears them as well.) If unclean elections become allowed,
    offline partitions get a leader immediately."""
    if not any(record.name in _MATTERS for record in records):
        return []
    after = image.copy()
    for record in records:
        after.replay(record)
    leadership_rules = LeadershipRules(after, config)
    partition_records: list[Message] = []
    for topic in _topics(image, records):
        for index, state in topic.partitions.items():
            if state.elr or state.leader < 0:
                change = PartitionChange(leadership_rules, topic, index)
                change.elect_uncleanly_if_allowed()
                partition_record = change.build()
                if partition_record is not None:
                    partition_records.append(partition_record)
    return partition_records


def check_min_isr(
    image: MetadataImage, resource: ConfigResource, new_values: Iterable[str]
) -> None:
    """With ELR, all brokers must use the same minimum, because it decides what is committed."""
    if resource.type != ResourceType.BROKER or not image.features.get(ELR_VERSION, 0):
        return
    is_set = MIN_ISR in image.configs.get(resource, {})
    if resource.name and MIN_ISR in new_values:
        raise Rejected(
            ErrorCode.INVALID_CONFIG,
            f"{MIN_ISR} cannot differ between brokers while {ELR_VERSION} is enabled. Set it for"
            " all brokers or for a topic.",
        )
    if not resource.name and is_set and MIN_ISR not in new_values:
        raise Rejected(
            ErrorCode.INVALID_CONFIG,
            f"{MIN_ISR} cannot be removed for all brokers while {ELR_VERSION} is enabled. Set it"
            " to another value.",
        )


def uniform_min_isr(image: MetadataImage, min_insync_replicas: int) -> Iterator[ConfigRecord]:
    """Records that set one minimum for the whole cluster: the stored one, or else
    `min_insync_replicas` from the controller's properties file."""
    if valid_value(MIN_ISR, image.configs.get(_CLUSTER, {})) is None:
        yield ConfigRecord(
            resource_type=_CLUSTER.type,
            resource_name=_CLUSTER.name,
            name=MIN_ISR,
            value=str(min_insync_replicas),
        )
    for resource, values in image.configs.items():
        if resource.type == ResourceType.BROKER and resource.name and MIN_ISR in values:
            yield ConfigRecord(
                resource_type=resource.type, resource_name=resource.name, name=MIN_ISR, value=None
            )


def _topics(image: MetadataImage, records: Iterable[ConfigRecord]) -> list[TopicState]:
    names: dict[str, None] = {}
    for record in records:
        if record.name in _MATTERS:
            if record.resource_type == ResourceType.BROKER:
                return list(image.topics.values())
            names[record.resource_name] = None
    topics = (image.topic(name) for name in names)
    return [topic for topic in topics if topic is not None]
