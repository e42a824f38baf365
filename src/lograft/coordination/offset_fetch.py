"""Fetches a group's offsets. Like every reply, the response waits until they are committed."""

from uuid import UUID

from lograft.coordination.group_shard import GroupShard
from lograft.coordination.offset_table import Committed
from lograft.coordination.types import CoordinatorResult, Ticket
from lograft.model.errors import ErrorCode
from lograft.model.types import NO_EPOCH, NO_OFFSET, ZERO_UUID
from lograft.wire.messages.offset_fetch import (
    OffsetFetchRequestGroup,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopics,
)


def fetch_offsets(
    shard: GroupShard,
    request: OffsetFetchRequestGroup,
    ticket: Ticket,
    *,
    require_stable: bool,
) -> CoordinatorResult:
    """Without topics, returns all offsets of the group. An unknown group has none, which is not an
    error. With `require_stable`, partitions with an open transaction return
    UNSTABLE_OFFSET_COMMIT, because their offset may be about to change."""
    group = shard.groups.get(request.group_id)
    if group is not None:
        group.check_fetch(member_id=request.member_id, epoch=request.member_epoch)
    table = shard.offsets

    def response(
        topic: str, partition: int, topic_id: UUID = ZERO_UUID
    ) -> OffsetFetchResponsePartitions:
        if require_stable and table.is_pending(request.group_id, topic, partition):
            return _answer(partition, None, ErrorCode.UNSTABLE_OFFSET_COMMIT)
        committed = table.get(request.group_id, topic, partition)
        if committed is not None and not _is_same_topic(committed.topic_id, topic_id):
            committed = None
        return _answer(partition, committed)

    if request.topics is None:
        topics = [
            OffsetFetchResponseTopics(
                name=topic, partitions=[response(topic, partition) for partition in partitions]
            )
            for topic, partitions in table.of(request.group_id).items()
        ]
    else:
        topics = [
            OffsetFetchResponseTopics(
                name=requested.name,
                topic_id=requested.topic_id,
                partitions=[
                    response(requested.name, partition, requested.topic_id)
                    for partition in requested.partition_indexes
                ],
            )
            for requested in request.topics
        ]
    reply = OffsetFetchResponseGroup(group_id=request.group_id, topics=topics)
    return CoordinatorResult(replies=[(ticket, reply)])


def _is_same_topic(committed: UUID, requested: UUID) -> bool:
    """Whether the offset belongs to this topic and not to an earlier one of the same name, as far
    as both ids are known."""
    return committed in (requested, ZERO_UUID) or requested == ZERO_UUID


def _answer(
    partition: int, committed: Committed | None, code: ErrorCode = ErrorCode.NONE
) -> OffsetFetchResponsePartitions:
    if committed is None:
        return OffsetFetchResponsePartitions(
            partition_index=partition,
            committed_offset=NO_OFFSET,
            committed_leader_epoch=NO_EPOCH,
            metadata="",
            error_code=code,
        )
    response = OffsetFetchResponsePartitions(
        partition_index=partition,
        committed_offset=committed.offset,
        committed_leader_epoch=committed.leader_epoch,
        metadata=committed.metadata,
    )
    if committed.before is not None:
        response.reset_timestamp = committed.before.reset_ms
        response.offset_before_reset = committed.before.offset
    return response
