from collections.abc import Callable
from uuid import UUID

import pytest

from lograft.metadata.image import MetadataImage
from lograft.metadata.partitions import create_partitions
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
    assert code == ErrorCode.NONE
    assert [record.partition_id for record in records] == [1, 2]
    assert all(len(record.replicas) == 1 for record in records)
    # The topic's leaders are balanced: broker 1 already leads one partition.
    assert {record.leader for record in records} >= {2}


def test_replicas_may_be_given(image: MetadataImage) -> None:
    code, records = grow(image, 3, [2], [1])
    assert code == ErrorCode.NONE
    assert [record.replicas for record in records] == [[2], [1]]


@pytest.mark.parametrize(
    ("count", "assignments", "name", "code"),
    [
        (1, [], "t", ErrorCode.INVALID_PARTITIONS),
        (0, [], "t", ErrorCode.INVALID_PARTITIONS),
        (-5, [], "t", ErrorCode.INVALID_PARTITIONS),
        (20_000, [], "t", ErrorCode.INVALID_PARTITIONS),
        (2, [], "nope", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (3, [[1]], "t", ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (2, [[1, 2]], "t", ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (2, [[9]], "t", ErrorCode.INVALID_REPLICA_ASSIGNMENT),
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
    assert [result.error_code for result in outcome.reply.results] == [ErrorCode.INVALID_REQUEST]
    assert outcome.records == ()
