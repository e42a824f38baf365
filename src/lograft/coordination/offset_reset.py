"""Resets the offsets of a group while it is in use, and undoes a reset (docs/decisions/0010).

A single batch contains all changes. The members are fenced, so their later commits for the old
positions are rejected, including those of an open transaction; they rejoin and start at the new
offsets. Each new offset records the one that it replaces, and every later commit preserves that, so
any later coordinator can undo the reset.
"""

from collections.abc import Iterator

from lograft.coordination.group_shard import GroupShard
from lograft.coordination.offset_records import offset_record, offset_tombstone
from lograft.coordination.offset_table import OffsetBeforeReset
from lograft.coordination.types import CoordinatorResult, Record, Ticket
from lograft.model.errors import ErrorCode, Rejected
from lograft.model.types import NO_EPOCH, NO_OFFSET, RESET_GENERATION, ResetAction
from lograft.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)


def reset_offsets(
    shard: GroupShard, request: OffsetCommitRequest, ticket: Ticket, now_ms: int
) -> CoordinatorResult:
    """All topics or none; they all exist. The group need not exist."""
    if request.member_id or request.generation_id_or_member_epoch != RESET_GENERATION:
        raise _invalid(f"A reset must have an empty member id and generation {RESET_GENERATION}.")
    if request.reset_action == ResetAction.RESET:
        records = list(_reset_records(shard, request))
    elif request.reset_action == ResetAction.UNDO:
        records = list(_undo_records(shard, request))
    else:
        raise _invalid(f"Unknown reset action {request.reset_action}.")
    reply = (ticket, _answer(request))
    group = shard.groups.get(request.group_id)
    if group is None or group.is_empty():
        return CoordinatorResult(records=records, replies=[reply])
    fenced = group.fence_all(now_ms)
    assert fenced.on_failure is None, group
    return CoordinatorResult(records=[*fenced.records, *records], replies=[*fenced.replies, reply])


def _reset_records(shard: GroupShard, request: OffsetCommitRequest) -> Iterator[Record]:
    now_ms = shard.context.wall_ms()
    metadata_max = shard.context.config().offset_metadata_max_bytes
    for topic, requested in _requested_partitions(request):
        if requested.committed_offset < 0:
            raise _invalid(f"Cannot reset to the negative offset {requested.committed_offset}.")
        if len(requested.committed_metadata or "") > metadata_max:
            raise Rejected(
                ErrorCode.OFFSET_METADATA_TOO_LARGE,
                f"Offset metadata exceeds the maximum of {metadata_max} bytes.",
            )
        known = shard.offsets.get(request.group_id, topic.name, requested.partition_index)
        if known is None:
            before = OffsetBeforeReset(NO_OFFSET, NO_EPOCH, "", now_ms)
        else:
            before = OffsetBeforeReset(known.offset, known.leader_epoch, known.metadata, now_ms)
        yield offset_record(
            request.group_id,
            topic.name,
            requested.partition_index,
            offset=requested.committed_offset,
            leader_epoch=requested.committed_leader_epoch,
            metadata=requested.committed_metadata,
            commit_ms=now_ms,
            topic_id=topic.topic_id,
            before=before,
        )


def _undo_records(shard: GroupShard, request: OffsetCommitRequest) -> Iterator[Record]:
    """The request contains the offset to restore, as its client last saw it."""
    now_ms = shard.context.wall_ms()
    for topic, requested in _requested_partitions(request):
        key = (request.group_id, topic.name, requested.partition_index)
        before = shard.offsets.before_reset(*key)
        if before is None:
            raise _invalid(
                f"{topic.name}-{requested.partition_index} of group {request.group_id} was not"
                " reset, or the reset is already undone."
            )
        if before.offset != requested.committed_offset:
            raise _invalid(
                f"{topic.name}-{requested.partition_index} of group {request.group_id} had offset"
                f" {before.offset} before its last reset, not {requested.committed_offset}."
            )
        if before.offset == NO_OFFSET:
            yield offset_tombstone(*key)
        else:
            yield offset_record(
                *key,
                offset=before.offset,
                leader_epoch=before.leader_epoch,
                metadata=before.metadata,
                commit_ms=now_ms,
                topic_id=topic.topic_id,
            )


def _requested_partitions(
    request: OffsetCommitRequest,
) -> Iterator[tuple[OffsetCommitRequestTopic, OffsetCommitRequestPartition]]:
    return ((topic, requested) for topic in request.topics for requested in topic.partitions)


def _answer(request: OffsetCommitRequest) -> OffsetCommitResponse:
    return OffsetCommitResponse(
        topics=[
            OffsetCommitResponseTopic(
                name=topic.name,
                topic_id=topic.topic_id,
                partitions=[
                    OffsetCommitResponsePartition(partition_index=requested.partition_index)
                    for requested in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )


def _invalid(sentence: str) -> Rejected:
    return Rejected(ErrorCode.INVALID_REQUEST, sentence)
