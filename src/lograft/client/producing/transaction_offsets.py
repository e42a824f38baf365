"""Commits offsets of a group in a transaction."""

from typing import Final, Protocol

from lograft.client.coordinators import ERROR_REASONS, Coordinator
from lograft.client.errors import BrokerError
from lograft.client.producing.sequences import Sequences
from lograft.client.types import GroupMetadata, OffsetAndMetadata, TopicPartition
from lograft.model.errors import ErrorCode
from lograft.wire.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
    TxnOffsetCommitResponse,
)

#: The newest version for transactions v1; from the next version on, the broker adds the group to
#: the transaction.
_V1_MAX: Final = 4
#: From this version on, the request contains the member, and it is rejected if the member has been
#: removed from the group.
_MEMBER_SINCE: Final = 3


class TransactionOwner(Protocol):
    transactional_id: str
    sequences: Sequences


async def commit_offsets(
    coordinator: Coordinator,
    owner: TransactionOwner,
    pending: dict[TopicPartition, OffsetAndMetadata],
    group: GroupMetadata,
    *,
    uses_v2: bool,
) -> None:
    """Sends one request with all pending offsets, and removes those that were accepted. If
    others failed, raises a non-retriable error if there is one, else a retriable one."""
    topics: dict[str, TxnOffsetCommitRequestTopic] = {}
    for (topic, partition), offset in pending.items():
        entry = topics.setdefault(topic, TxnOffsetCommitRequestTopic(name=topic))
        entry.partitions.append(
            TxnOffsetCommitRequestPartition(
                partition_index=partition,
                committed_offset=offset.offset,
                committed_leader_epoch=offset.leader_epoch,
                committed_metadata=offset.metadata,
            )
        )
    is_member = bool(group.member_id) or group.generation >= 0
    response = await coordinator.request(
        TxnOffsetCommitRequest(
            transactional_id=owner.transactional_id,
            group_id=group.group_id,
            producer_id=owner.sequences.producer_id,
            producer_epoch=owner.sequences.producer_epoch,
            generation_id=group.generation,
            member_id=group.member_id,
            group_instance_id=group.instance_id,
            topics=list(topics.values()),
        ),
        TxnOffsetCommitResponse,
        at_least=_MEMBER_SINCE if is_member else 0,
        at_most=None if uses_v2 else _V1_MAX,
    )
    retriable: BrokerError | None = None
    for topic_result in response.topics:
        for result in topic_result.partitions:
            what = (
                f"committing the offset of {topic_result.name}-{result.partition_index} for group"
                f" {group.group_id!r}"
            )
            code = result.error_code
            if code == ErrorCode.INVALID_PRODUCER_EPOCH:
                code = ErrorCode.PRODUCER_FENCED
            try:
                coordinator.raise_for(code, what, ERROR_REASONS.get(code))
            except BrokerError as error:
                if not error.is_retriable:
                    raise
                retriable = error
            else:
                pending.pop(TopicPartition(topic_result.name, result.partition_index), None)
    if retriable is not None:
        raise retriable
