"""The records of a consumer group, in the versions that Kafka 4.3 writes."""

from collections.abc import Collection

from lograft.coordination.assignors import Assignment
from lograft.coordination.consumer_member import ConsumerMember
from lograft.coordination.types import Record
from lograft.model.types import NO_TIMESTAMP
from lograft.wire.records.consumer_group_current_member_assignment_key import (
    ConsumerGroupCurrentMemberAssignmentKey,
)
from lograft.wire.records.consumer_group_member_metadata_key import ConsumerGroupMemberMetadataKey
from lograft.wire.records.consumer_group_metadata_key import ConsumerGroupMetadataKey
from lograft.wire.records.consumer_group_metadata_value import ConsumerGroupMetadataValue
from lograft.wire.records.consumer_group_partition_metadata_key import (
    ConsumerGroupPartitionMetadataKey,
)
from lograft.wire.records.consumer_group_regular_expression_key import (
    ConsumerGroupRegularExpressionKey,
)
from lograft.wire.records.consumer_group_regular_expression_value import (
    ConsumerGroupRegularExpressionValue,
)
from lograft.wire.records.consumer_group_target_assignment_member_key import (
    ConsumerGroupTargetAssignmentMemberKey,
)
from lograft.wire.records.consumer_group_target_assignment_member_value import (
    ConsumerGroupTargetAssignmentMemberValue,
    TopicPartition,
)
from lograft.wire.records.consumer_group_target_assignment_metadata_key import (
    ConsumerGroupTargetAssignmentMetadataKey,
)
from lograft.wire.records.consumer_group_target_assignment_metadata_value import (
    ConsumerGroupTargetAssignmentMetadataValue,
)


def group_epoch_record(
    group_id: str, epoch: int, metadata_hash: int, *, fenced_ms: int = NO_TIMESTAMP
) -> Record:
    return Record(
        ConsumerGroupMetadataKey(group_id=group_id),
        ConsumerGroupMetadataValue(
            epoch=epoch, metadata_hash=metadata_hash, fenced_timestamp=fenced_ms
        ),
    )


def member_metadata_record(group_id: str, member: ConsumerMember) -> Record:
    return Record(
        ConsumerGroupMemberMetadataKey(group_id=group_id, member_id=member.member_id),
        member.metadata(),
    )


def current_assignment_record(group_id: str, member: ConsumerMember) -> Record:
    return Record(
        ConsumerGroupCurrentMemberAssignmentKey(group_id=group_id, member_id=member.member_id),
        member.current_assignment(),
    )


def target_assignment_record(group_id: str, member_id: str, target: Assignment) -> Record:
    return Record(
        ConsumerGroupTargetAssignmentMemberKey(group_id=group_id, member_id=member_id),
        ConsumerGroupTargetAssignmentMemberValue(
            topic_partitions=[
                TopicPartition(topic_id=topic_id, partitions=list(partitions))
                for topic_id, partitions in target.items()
            ]
        ),
    )


def target_epoch_record(group_id: str, epoch: int, wall_ms: int) -> Record:
    return Record(
        ConsumerGroupTargetAssignmentMetadataKey(group_id=group_id),
        ConsumerGroupTargetAssignmentMetadataValue(
            assignment_epoch=epoch, assignment_timestamp=wall_ms
        ),
    )


def regex_record(
    group_id: str, regex: str, topics: Collection[str], *, version: int, wall_ms: int
) -> Record:
    return Record(
        ConsumerGroupRegularExpressionKey(group_id=group_id, regular_expression=regex),
        ConsumerGroupRegularExpressionValue(
            topics=sorted(topics), version=version, timestamp=wall_ms
        ),
    )


def regex_tombstone(group_id: str, regex: str) -> Record:
    return Record(
        ConsumerGroupRegularExpressionKey(group_id=group_id, regular_expression=regex), None
    )


def member_tombstones(group_id: str, member_id: str) -> list[Record]:
    return [
        Record(
            ConsumerGroupCurrentMemberAssignmentKey(group_id=group_id, member_id=member_id), None
        ),
        Record(
            ConsumerGroupTargetAssignmentMemberKey(group_id=group_id, member_id=member_id), None
        ),
        Record(ConsumerGroupMemberMetadataKey(group_id=group_id, member_id=member_id), None),
    ]


def group_tombstones(
    group_id: str, member_ids: Collection[str], regexes: Collection[str]
) -> list[Record]:
    current = ConsumerGroupCurrentMemberAssignmentKey
    target = ConsumerGroupTargetAssignmentMemberKey
    metadata = ConsumerGroupMemberMetadataKey
    keys = [
        *(current(group_id=group_id, member_id=member_id) for member_id in member_ids),
        *(target(group_id=group_id, member_id=member_id) for member_id in member_ids),
        ConsumerGroupTargetAssignmentMetadataKey(group_id=group_id),
        *(metadata(group_id=group_id, member_id=member_id) for member_id in member_ids),
        *(
            ConsumerGroupRegularExpressionKey(group_id=group_id, regular_expression=regex)
            for regex in regexes
        ),
        # Written before Kafka 4.1; logs migrated from there may contain one.
        ConsumerGroupPartitionMetadataKey(group_id=group_id),
        ConsumerGroupMetadataKey(group_id=group_id),
    ]
    return [Record(key, None) for key in keys]
