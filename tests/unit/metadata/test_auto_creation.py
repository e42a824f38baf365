from collections.abc import Callable
from uuid import UUID

import pytest

from lograft.metadata.auto_creation import creation_request, growth_request
from lograft.metadata.configs import incremental_alter_configs
from lograft.metadata.image import MetadataImage
from lograft.metadata.partitions import PARTITIONS_PER_REQUEST_MAX, create_partitions
from lograft.metadata.topics import create_topics
from lograft.metadata.types import ON_DEMAND_MAX
from lograft.model.errors import ErrorCode, Rejected
from lograft.model.settings.broker import BrokerConfig
from lograft.wire.messages.create_topics import CreatableTopicConfig
from lograft.wire.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from lograft.wire.records.config_record import ConfigRecord
from lograft.wire.records.partition_record import PartitionRecord
from lograft.wire.records.topic_record import TopicRecord

Apply = Callable[..., None]
Cluster = Callable[..., MetadataImage]
Configured = Callable[..., BrokerConfig]
NewId = Callable[[], UUID]


def test_topics_on_demand_have_the_defaults(
    cluster: Cluster, configured: Configured, new_id: NewId
) -> None:
    config = configured(num_partitions="3")
    request = creation_request(["a", "b c"], config=config, timeout_ms=100)
    assert request.timeout_ms == 100
    outcome = create_topics(cluster(1), request, config=config, new_id=new_id)
    assert [r.error_code for r in outcome.reply.topics] == [0, ErrorCode.INVALID_TOPIC_EXCEPTION]
    assert [type(record) for record in outcome.records] == [TopicRecord] + [PartitionRecord] * 3


def test_a_topic_on_demand_grows_on_demand_up_to_its_limit(
    cluster: Cluster, apply: Apply, configured: Configured, new_id: NewId
) -> None:
    config = configured(auto_create_partitions_enable="true")
    image = cluster(1)
    created = creation_request(["t"], config=config, timeout_ms=100)
    apply(image, create_topics(image, created, config=config, new_id=new_id).records)
    for index in (3, 9):
        request = growth_request(image, "t", index, timeout_ms=100)
        assert request is not None
        apply(image, create_partitions(image, request).records)
        topic = image.topic("t")
        assert topic is not None
        assert list(topic.partitions) == list(range(index + 1))
        assert growth_request(image, "t", 2, timeout_ms=100) is None
    with pytest.raises(Rejected, match=r"limit of 10 .*auto\.create\.partitions\.max") as refusal:
        growth_request(image, "t", 10, timeout_ms=100)
    assert refusal.value.code == ErrorCode.INVALID_PARTITIONS


def test_the_setting_can_be_changed_on_an_existing_topic(cluster: Cluster, apply: Apply) -> None:
    image = cluster(1)
    for number, name in enumerate(("t", "__consumer_offsets"), 7):
        topic_id = UUID(int=number)
        apply(
            image,
            [
                TopicRecord(name=name, topic_id=topic_id),
                PartitionRecord(topic_id=topic_id, replicas=[1], isr=[1], leader=1),
            ],
        )

    def set_limit(name: str, value: str | None) -> None:
        record = ConfigRecord(
            resource_type=2, resource_name=name, name="auto.create.partitions.max", value=value
        )
        apply(image, [record])

    set_limit("t", "2")
    request = growth_request(image, "t", 1, timeout_ms=100)
    assert request is not None
    assert request.topics[0].count == 2
    with pytest.raises(Rejected, match=r"limit of 2 .*increase auto\.create\.partitions\.max"):
        growth_request(image, "t", 2, timeout_ms=100)
    set_limit("t", None)
    with pytest.raises(Rejected, match=r"set auto\.create\.partitions\.max"):
        growth_request(image, "t", 1, timeout_ms=100)
    # Coordinators are selected by the number of these partitions.
    set_limit("__consumer_offsets", "9")
    with pytest.raises(Rejected) as refusal:
        growth_request(image, "__consumer_offsets", 1, timeout_ms=100)
    assert refusal.value.code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_internal_topics_do_not_take_the_setting(
    cluster: Cluster, apply: Apply, configured: Configured, new_id: NewId
) -> None:
    config = configured(auto_create_partitions_enable="true")
    image = cluster(1)
    internal = creation_request(["__consumer_offsets"], config=config, timeout_ms=100)
    assert internal.topics[0].configs == []
    internal.topics[0].configs = [CreatableTopicConfig(name=ON_DEMAND_MAX, value="9")]
    refused = create_topics(image, internal, config=config, new_id=new_id).reply.topics[0]
    assert refused.error_code == ErrorCode.INVALID_CONFIG
    assert "has a fixed number of partitions" in (refused.error_message or "")
    internal.topics[0].configs = []
    apply(image, create_topics(image, internal, config=config, new_id=new_id).records)

    def alter(name: str, value: str) -> int:
        resource = AlterConfigsResource(
            resource_type=2,
            resource_name="__consumer_offsets",
            configs=[AlterableConfig(name=name, config_operation=0, value=value)],
        )
        request = IncrementalAlterConfigsRequest(resources=[resource])
        outcome = incremental_alter_configs(image, request, config=config)
        return outcome.reply.responses[0].error_code

    assert alter(ON_DEMAND_MAX, "9") == ErrorCode.INVALID_CONFIG
    # A value from before this rule does not prevent other changes.
    apply(
        image,
        [
            ConfigRecord(
                resource_type=2, resource_name="__consumer_offsets", name=ON_DEMAND_MAX, value="9"
            )
        ],
    )
    assert alter("retention.ms", "1000") == ErrorCode.NONE


@pytest.mark.parametrize(("value", "is_valid"), [("10000", True), ("10001", False), ("0", False)])
def test_the_setting_is_at_most_what_one_request_creates(
    value: str, is_valid: bool, cluster: Cluster, configured: Configured, new_id: NewId
) -> None:
    config = configured()
    request = creation_request(["t"], config=config, timeout_ms=100)
    request.topics[0].configs = [CreatableTopicConfig(name=ON_DEMAND_MAX, value=value)]
    created = create_topics(cluster(1), request, config=config, new_id=new_id).reply.topics[0]
    assert created.error_code == (ErrorCode.NONE if is_valid else ErrorCode.INVALID_CONFIG)
    assert int(value) <= PARTITIONS_PER_REQUEST_MAX or not is_valid


def test_other_topics_do_not_grow_on_demand(cluster: Cluster, apply: Apply) -> None:
    image = cluster(1)
    apply(
        image,
        [
            TopicRecord(name="t", topic_id=UUID(int=7)),
            PartitionRecord(topic_id=UUID(int=7), replicas=[1], isr=[1], leader=1),
        ],
    )
    for name, index in (("t", 1), ("t", -1), ("nope", 0)):
        with pytest.raises(Rejected) as refusal:
            growth_request(image, name, index, timeout_ms=100)
        assert refusal.value.code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
