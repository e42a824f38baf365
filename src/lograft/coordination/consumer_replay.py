"""Replays the records of a consumer group; nothing else changes its state."""

from collections.abc import Callable
from typing import Any, Final

from lograft.coordination.consumer_group import ConsumerGroup
from lograft.coordination.consumer_member import ConsumerMember
from lograft.coordination.subscriptions import ResolvedRegex
from lograft.wire.message import Message
from lograft.wire.records.consumer_group_current_member_assignment_key import (
    ConsumerGroupCurrentMemberAssignmentKey,
)
from lograft.wire.records.consumer_group_current_member_assignment_value import (
    ConsumerGroupCurrentMemberAssignmentValue,
)
from lograft.wire.records.consumer_group_member_metadata_key import ConsumerGroupMemberMetadataKey
from lograft.wire.records.consumer_group_member_metadata_value import (
    ConsumerGroupMemberMetadataValue,
)
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
)
from lograft.wire.records.consumer_group_target_assignment_metadata_key import (
    ConsumerGroupTargetAssignmentMetadataKey,
)
from lograft.wire.records.consumer_group_target_assignment_metadata_value import (
    ConsumerGroupTargetAssignmentMetadataValue,
)


def _group_epoch(
    group: ConsumerGroup, key: ConsumerGroupMetadataKey, value: ConsumerGroupMetadataValue | None
) -> None:
    """The tombstone is handled by `ConsumerGroups`, which removes the group."""
    if value is not None:
        group.epoch = value.epoch
        group.metadata_hash = value.metadata_hash
        group.fenced_ms = value.fenced_timestamp
        group.is_stale = False


def _partition_metadata(
    group: ConsumerGroup, key: ConsumerGroupPartitionMetadataKey, value: Message | None
) -> None:
    """Written before Kafka 4.1; replaced by the hash in the group's record."""


def _member_metadata(
    group: ConsumerGroup,
    key: ConsumerGroupMemberMetadataKey,
    value: ConsumerGroupMemberMetadataValue | None,
) -> None:
    if value is None:
        group.remove_member(key.member_id)
    else:
        group.put_member(_member(group, key.member_id).with_metadata(value))


def _current_assignment(
    group: ConsumerGroup,
    key: ConsumerGroupCurrentMemberAssignmentKey,
    value: ConsumerGroupCurrentMemberAssignmentValue | None,
) -> None:
    if value is not None or key.member_id in group.members:
        group.put_member(_member(group, key.member_id).with_current_assignment(value))


def _target_assignment(
    group: ConsumerGroup,
    key: ConsumerGroupTargetAssignmentMemberKey,
    value: ConsumerGroupTargetAssignmentMemberValue | None,
) -> None:
    if value is None:
        group.targets.pop(key.member_id, None)
    else:
        group.targets[key.member_id] = {
            topic.topic_id: tuple(sorted(topic.partitions)) for topic in value.topic_partitions
        }


def _target_epoch(
    group: ConsumerGroup,
    key: ConsumerGroupTargetAssignmentMetadataKey,
    value: ConsumerGroupTargetAssignmentMetadataValue | None,
) -> None:
    group.target_epoch = -1 if value is None else value.assignment_epoch
    group.target_ms = 0 if value is None else value.assignment_timestamp


def _regex(
    group: ConsumerGroup,
    key: ConsumerGroupRegularExpressionKey,
    value: ConsumerGroupRegularExpressionValue | None,
) -> None:
    if value is None:
        group.resolved.pop(key.regular_expression, None)
    else:
        group.resolved[key.regular_expression] = ResolvedRegex(
            tuple(sorted(value.topics)), value.version, value.timestamp
        )


def _member(group: ConsumerGroup, member_id: str) -> ConsumerMember:
    """Compaction may have removed some of the member's records, so any may come first."""
    return group.members.get(member_id) or ConsumerMember(member_id)


#: Replay functions by the type of the key: `replay(group, key, value)`.
REPLAY: Final[dict[type[Message], Callable[[ConsumerGroup, Any, Any], None]]] = {
    ConsumerGroupMetadataKey: _group_epoch,
    ConsumerGroupPartitionMetadataKey: _partition_metadata,
    ConsumerGroupMemberMetadataKey: _member_metadata,
    ConsumerGroupCurrentMemberAssignmentKey: _current_assignment,
    ConsumerGroupTargetAssignmentMemberKey: _target_assignment,
    ConsumerGroupTargetAssignmentMetadataKey: _target_epoch,
    ConsumerGroupRegularExpressionKey: _regex,
}
