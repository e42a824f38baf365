from collections.abc import Callable
from uuid import UUID

import pytest

from lograft.metadata.errors import Refused
from lograft.metadata.image import MetadataImage
from lograft.metadata.partitions import create_partitions, grow_on_demand
from lograft.metadata.topics import auto_create_topics
from lograft.model.broker_configs import BrokerConfig
from lograft.model.errors import ErrorCode
from lograft.wire.messages.create_partitions import (
    CreatePartitionsAssignment,
    CreatePartitionsRequest,
    CreatePartitionsTopic,
)
from lograft.wire.records.partition_record import PartitionRecord
from lograft.wire.records.topic_record import TopicRecord

Apply = Callable[..., None]
T = UUID(int=7)


@pytest.fixture
def image(cluster: Callable[..., MetadataImage], apply: Apply) -> MetadataImage:
    image = cluster(1, 2)
    apply(
        image,
        [
            TopicRecord(name="t", topic_id=T),
            PartitionRecord(partition_id=0, topic_id=T, replicas=[1], isr=[1], leader=1),
        ],
    )
    return image


def grow(
    image: MetadataImage, count: int, *assignments: list[int], name: str = "t"
) -> tuple[ErrorCode, list[PartitionRecord]]:
    given = [CreatePartitionsAssignment(broker_ids=ids) for ids in assignments] or None
    topic = CreatePartitionsTopic(name=name, count=count, assignments=given)
    outcome = create_partitions(image, CreatePartitionsRequest(topics=[topic]))
    (result,) = outcome.reply.results
    assert bool(result.error_message) == bool(result.error_code)
    records = [record for record in outcome.records if isinstance(record, PartitionRecord)]
    return ErrorCode(result.error_code), records


def test_new_partitions_follow_the_old_ones(image: MetadataImage) -> None:
    code, records = grow(image, 3)
    assert code == ErrorCode.none
    assert [record.partition_id for record in records] == [1, 2]
    assert all(len(record.replicas) == 1 for record in records)
    # The topic's leaders are spread: broker 1 leads one already.
    assert {record.leader for record in records} >= {2}


def test_replicas_may_be_given(image: MetadataImage) -> None:
    code, records = grow(image, 3, [2], [1])
    assert code == ErrorCode.none
    assert [record.replicas for record in records] == [[2], [1]]


@pytest.mark.parametrize(
    ("count", "assignments", "name", "code"),
    [
        (1, [], "t", ErrorCode.invalid_partitions),
        (0, [], "t", ErrorCode.invalid_partitions),
        (-5, [], "t", ErrorCode.invalid_partitions),
        (20_000, [], "t", ErrorCode.invalid_partitions),
        (2, [], "nope", ErrorCode.unknown_topic_or_partition),
        (3, [[1]], "t", ErrorCode.invalid_replica_assignment),
        (2, [[1, 2]], "t", ErrorCode.invalid_replica_assignment),
        (2, [[9]], "t", ErrorCode.invalid_replica_assignment),
    ],
)
def test_what_cannot_be_is_refused(
    image: MetadataImage, count: int, assignments: list[list[int]], name: str, code: ErrorCode
) -> None:
    assert grow(image, count, *assignments, name=name) == (code, [])


def test_validate_only_and_repeated_names(image: MetadataImage) -> None:
    topics = [CreatePartitionsTopic(name="t", count=2, assignments=None)]
    request = CreatePartitionsRequest(topics=topics, validate_only=True)
    assert create_partitions(image, request).records == ()
    outcome = create_partitions(image, CreatePartitionsRequest(topics=topics * 2))
    assert [result.error_code for result in outcome.reply.results] == [ErrorCode.invalid_request]
    assert outcome.records == ()


def test_a_topic_on_demand_grows_on_demand_up_to_its_limit(
    cluster: Callable[..., MetadataImage],
    apply: Apply,
    configured: Callable[..., BrokerConfig],
    new_id: Callable[[], UUID],
) -> None:
    config = configured(auto_create_partitions_enable="true")
    image = cluster(1)
    apply(image, auto_create_topics(image, ["t"], config=config, new_id=new_id).records)
    apply(image, grow_on_demand(image, "t", 3).records)
    topic = image.topic("t")
    assert topic is not None
    assert list(topic.partitions) == [0, 1, 2, 3]
    assert grow_on_demand(image, "t", 2).records == ()
    apply(image, grow_on_demand(image, "t", 9).records)
    with pytest.raises(Refused, match=r"beyond the 10 .*auto\.create\.partitions\.max") as refusal:
        grow_on_demand(image, "t", 10)
    assert refusal.value.code == ErrorCode.invalid_partitions


def test_other_topics_do_not_grow_on_demand(image: MetadataImage) -> None:
    for name, index in (("t", 1), ("t", -1), ("nope", 0)):
        with pytest.raises(Refused) as refusal:
            grow_on_demand(image, name, index)
        assert refusal.value.code == ErrorCode.unknown_topic_or_partition
