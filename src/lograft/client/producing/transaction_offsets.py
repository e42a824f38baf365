"""Offsets of a group that are committed with a transaction."""

from typing import Final, Protocol

from lograft.client.coordinators import Coordinator
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

#: The newest version that means the first protocol; the next adds the group to the transaction.
_V1_MAX: Final = 4
#: Since then the member is named, and a group that has gone on without it refuses.
_MEMBER_SINCE: Final = 3


class Owner(Protocol):
    transactional_id: str
    sequences: Sequences


async def commit_offsets(
    coordinator: Coordinator,
    owner: Owner,
    left: dict[TopicPartition, OffsetAndMetadata],
    group: GroupMetadata,
    *,
    uses_v2: bool,
) -> None:
    """Asks once for all that are left, and takes out those that are done. Raises the worst of the
    errors of the others."""
    topics: dict[str, TxnOffsetCommitRequestTopic] = {}
    for (topic, partition), offset in left.items():
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
    answer = await coordinator.request(
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
    passing: BrokerError | None = None
    for topic_told in answer.topics:
        for told in topic_told.partitions:
            what = f"the offset of {topic_told.name}-{told.partition_index}"
            code = told.error_code
            if code == ErrorCode.INVALID_PRODUCER_EPOCH:
                code = ErrorCode.PRODUCER_FENCED
            try:
                coordinator.raise_for(code, what)
            except BrokerError as error:
                if not error.is_retriable:
                    raise
                passing = error
            else:
                left.pop(TopicPartition(topic_told.name, told.partition_index), None)
    if passing is not None:
        raise passing
