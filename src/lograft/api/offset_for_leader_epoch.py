"""OffsetForLeaderEpoch, versions 2-4: where a leader epoch ended in this log.

A consumer whose position is beyond that end has read records that a later leader does not have, and
goes back. An epoch newer than the log's, or older than all it holds, has no end: (-1, -1).
"""

from typing import Final
from uuid import UUID

from lograft.api.authorization import NO_NAMES, find_denied, is_allowed
from lograft.api.context import Api, Context
from lograft.api.errors import code_of
from lograft.api.types import each_item
from lograft.broker.broker import Broker
from lograft.consensus.types import LogEnd
from lograft.model.errors import ErrorCode, LograftError
from lograft.model.types import Epoch, TopicIdPartition
from lograft.security.authorization import CLUSTER_ACTION, TOPIC_DESCRIBE
from lograft.wire.messages.offset_for_leader_epoch import (
    EpochEndOffset,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderPartition,
    OffsetForLeaderTopicResult,
)

API: Final = Api(key=23, versions=range(2, 5), needs=each_item(CLUSTER_ACTION, TOPIC_DESCRIBE))


def handle(context: Context, request: OffsetForLeaderEpochRequest) -> OffsetForLeaderEpochResponse:
    is_node = is_allowed(context, CLUSTER_ACTION)
    names = (topic.topic for topic in request.topics)
    denied = NO_NAMES if is_node else find_denied(context, TOPIC_DESCRIBE, names)
    return OffsetForLeaderEpochResponse(
        topics=[
            OffsetForLeaderTopicResult(
                topic=topic.topic,
                partitions=[
                    EpochEndOffset(
                        partition=asked.partition, error_code=ErrorCode.TOPIC_AUTHORIZATION_FAILED
                    )
                    if topic.topic in denied or (asked.leaving_epoch >= 0 and not is_node)
                    else _find(context.broker, topic.topic, asked)
                    if asked.leaving_epoch < 0
                    else _tail(context.broker, topic.topic_id, asked)
                    for asked in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )


def _tail(broker: Broker, topic_id: UUID, asked: OffsetForLeaderPartition) -> EpochEndOffset:
    """The controller ends a raft life and asks where this replica's log ends. A replica that knows
    an epoch which is not below names it; one that is not ready is asked again."""
    answer = EpochEndOffset(partition=asked.partition)
    port = broker.replicas.raft.find(TopicIdPartition(topic_id, asked.partition))
    tail = None if port is None else port.modes.tail_in(Epoch(asked.leaving_epoch))
    if tail is None:
        answer.error_code = ErrorCode.UNKNOWN_LEADER_EPOCH
    elif isinstance(tail, LogEnd):
        answer.leader_epoch, answer.end_offset = tail
    else:
        answer.error_code = ErrorCode.FENCED_LEADER_EPOCH
        answer.leader_epoch = tail
    return answer


def _find(broker: Broker, topic: str, asked: OffsetForLeaderPartition) -> EpochEndOffset:
    answer = EpochEndOffset(partition=asked.partition)
    try:
        partition = broker.partitions.get(topic, asked.partition)
        if partition is None:
            raise broker.why_missing(topic, asked.partition)
        partition.check_epoch(asked.current_leader_epoch)
        log = partition.leader_log()
        answer.leader_epoch, answer.end_offset = log.epoch_end(Epoch(asked.leader_epoch))
    except LograftError as error:
        answer.error_code = code_of(error)
    return answer
