"""Commits and deletes offsets, by functions `(shard, request, …) → CoordinatorResult`.

The topics of a request are those that exist: the API handler responds for the others. An error of
the group (Rejected) applies to all topics.
"""

from typing import Final

from lograft.coordination.group import Group, PartitionCheck
from lograft.coordination.group_shard import GroupShard
from lograft.coordination.offset_records import offset_record, offset_tombstone
from lograft.coordination.types import CoordinatorResult, Record, Ticket
from lograft.model.errors import ErrorCode, Rejected
from lograft.model.settings.keys import LONG_MAX
from lograft.model.types import NO_TIMESTAMP
from lograft.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from lograft.wire.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteResponse,
    OffsetDeleteResponsePartition,
    OffsetDeleteResponseTopic,
)
from lograft.wire.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
)

#: The first version of OffsetCommit that can return GROUP_ID_NOT_FOUND.
GROUP_ID_NOT_FOUND_SINCE: Final = 9
#: The broker's retention applies.
NO_RETENTION: Final = -1


def commit_offsets(
    shard: GroupShard,
    request: OffsetCommitRequest,
    ticket: Ticket,
    *,
    now_ms: int,
    api_version: int,
) -> CoordinatorResult:
    group = _find_or_create_group(
        shard,
        request.group_id,
        epoch=request.generation_id_or_member_epoch,
        knows_not_found=api_version >= GROUP_ID_NOT_FOUND_SINCE,
    )
    check = group.check_commit(
        member_id=request.member_id,
        instance_id=request.group_instance_id,
        epoch=request.generation_id_or_member_epoch,
        transactional=False,
        api_version=api_version,
    )
    group.on_commit(request.member_id, now_ms)
    commit_ms = shard.context.wall_ms()
    expire_ms = NO_TIMESTAMP
    if request.retention_time_ms != NO_RETENTION:
        # Some clients send the maximum for unlimited retention.
        expire_ms = min(commit_ms + request.retention_time_ms, LONG_MAX)
    records: list[Record] = []
    topics = []
    for topic in request.topics:
        responses = []
        for requested in topic.partitions:
            code = _check_partition(
                shard, check, topic.name, requested.partition_index, requested.committed_metadata
            )
            if code is ErrorCode.NONE:
                records.append(
                    offset_record(
                        request.group_id,
                        topic.name,
                        requested.partition_index,
                        offset=requested.committed_offset,
                        leader_epoch=requested.committed_leader_epoch,
                        metadata=requested.committed_metadata,
                        commit_ms=commit_ms,
                        expire_ms=expire_ms,
                        topic_id=topic.topic_id,
                        before=shard.offsets.before_reset(
                            request.group_id, topic.name, requested.partition_index
                        ),
                    )
                )
            responses.append(
                OffsetCommitResponsePartition(
                    partition_index=requested.partition_index, error_code=code
                )
            )
        topics.append(
            OffsetCommitResponseTopic(
                name=topic.name, topic_id=topic.topic_id, partitions=responses
            )
        )
    return CoordinatorResult(
        records=records, replies=[(ticket, OffsetCommitResponse(topics=topics))]
    )


def commit_transactional_offsets(
    shard: GroupShard,
    request: TxnOffsetCommitRequest,
    ticket: Ticket,
    *,
    api_version: int,
) -> CoordinatorResult:
    """The offsets take effect when the producer's transaction is committed."""
    group = _find_or_create_group(
        shard, request.group_id, epoch=request.generation_id, knows_not_found=False
    )
    try:
        check = group.check_commit(
            member_id=request.member_id,
            instance_id=request.group_instance_id,
            epoch=request.generation_id,
            transactional=True,
            api_version=api_version,
        )
    except Rejected as error:
        if error.code is ErrorCode.STALE_MEMBER_EPOCH:
            # Producers know only the errors of the classic protocol.
            raise Rejected(ErrorCode.ILLEGAL_GENERATION, error.message) from None
        raise
    commit_ms = shard.context.wall_ms()
    records: list[Record] = []
    topics = []
    for topic in request.topics:
        responses = []
        for requested in topic.partitions:
            code = _check_partition(
                shard, check, topic.name, requested.partition_index, requested.committed_metadata
            )
            if code is ErrorCode.NONE:
                records.append(
                    offset_record(
                        request.group_id,
                        topic.name,
                        requested.partition_index,
                        offset=requested.committed_offset,
                        leader_epoch=requested.committed_leader_epoch,
                        metadata=requested.committed_metadata,
                        commit_ms=commit_ms,
                        before=shard.offsets.before_reset(
                            request.group_id, topic.name, requested.partition_index
                        ),
                    )
                )
            responses.append(
                TxnOffsetCommitResponsePartition(
                    partition_index=requested.partition_index, error_code=code
                )
            )
        topics.append(TxnOffsetCommitResponseTopic(name=topic.name, partitions=responses))
    return CoordinatorResult(
        records=records,
        replies=[(ticket, TxnOffsetCommitResponse(topics=topics))],
        producer=(request.producer_id, request.producer_epoch),
    )


def _find_or_create_group(
    shard: GroupShard, group_id: str, *, epoch: int, knows_not_found: bool
) -> Group:
    """The group; for clients without a membership also a new, empty one, which the first record
    creates."""
    group = shard.groups.get(group_id)
    if group is not None:
        return group
    if epoch < 0:
        return shard.new_simple_group(group_id)
    code = ErrorCode.GROUP_ID_NOT_FOUND if knows_not_found else ErrorCode.ILLEGAL_GENERATION
    raise Rejected(code, f"Group {group_id} not found.")


def _check_partition(
    shard: GroupShard,
    check: PartitionCheck | None,
    topic: str,
    partition: int,
    metadata: str | None,
) -> ErrorCode:
    if check is not None:
        check(topic, partition)
    if metadata and len(metadata) > shard.context.config().offset_metadata_max_bytes:
        return ErrorCode.OFFSET_METADATA_TOO_LARGE
    return ErrorCode.NONE


def delete_offsets(
    shard: GroupShard, request: OffsetDeleteRequest, ticket: Ticket
) -> CoordinatorResult:
    """Deletes offsets of topics to which no member subscribes."""
    group = shard.group(request.group_id)
    group.check_offset_delete()
    records: list[Record] = []
    topics = []
    for topic in request.topics:
        code = ErrorCode.NONE
        if group.is_subscribed_to(topic.name):
            code = ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC
        else:
            records += (
                offset_tombstone(request.group_id, topic.name, requested.partition_index)
                for requested in topic.partitions
                if shard.offsets.contains(request.group_id, topic.name, requested.partition_index)
            )
        topics.append(
            OffsetDeleteResponseTopic(
                name=topic.name,
                partitions=[
                    OffsetDeleteResponsePartition(
                        partition_index=requested.partition_index, error_code=code
                    )
                    for requested in topic.partitions
                ],
            )
        )
    return CoordinatorResult(
        records=records, replies=[(ticket, OffsetDeleteResponse(topics=topics))]
    )
