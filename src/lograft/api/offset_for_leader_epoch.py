"""OffsetForLeaderEpoch, versions 2-4: the end offset of a leader epoch.

A consumer whose position is beyond that end has read records that a later leader does not have, and
must reset its position. Epochs newer than the log's latest, or older than its earliest, have no
end offset: (-1, -1).
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
    is_node = is_allowed(context, CLUSTER_ACTION, is_probe=True)
    names = (topic.topic for topic in request.topics)
    denied = NO_NAMES if is_node else find_denied(context, TOPIC_DESCRIBE, names)
    return OffsetForLeaderEpochResponse(
        topics=[
            OffsetForLeaderTopicResult(
                topic=topic.topic,
                partitions=[
                    EpochEndOffset(
                        partition=requested.partition,
                        error_code=ErrorCode.TOPIC_AUTHORIZATION_FAILED,
                    )
                    if topic.topic in denied or (requested.leaving_epoch >= 0 and not is_node)
                    else _find(context.broker, topic.topic, requested)
                    if requested.leaving_epoch < 0
                    else _tail(context.broker, topic.topic_id, requested)
                    for requested in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )


def _tail(broker: Broker, topic_id: UUID, requested: OffsetForLeaderPartition) -> EpochEndOffset:
    """Returns the log end of this replica, which the controller requests when a partition leaves
    Raft mode. The epoch in the response shows a replica with a later epoch; a replica that is not
    ready is queried again."""
    response = EpochEndOffset(partition=requested.partition)
    port = broker.replicas.raft.find(TopicIdPartition(topic_id, requested.partition))
    tail = None if port is None else port.modes.find_tail(Epoch(requested.leaving_epoch))
    if tail is None:
        response.error_code = ErrorCode.UNKNOWN_LEADER_EPOCH
    elif isinstance(tail, LogEnd):
        response.leader_epoch, response.end_offset = tail
    else:
        response.error_code = ErrorCode.FENCED_LEADER_EPOCH
        response.leader_epoch = tail
    return response


def _find(broker: Broker, topic: str, requested: OffsetForLeaderPartition) -> EpochEndOffset:
    response = EpochEndOffset(partition=requested.partition)
    try:
        partition = broker.partitions.get(topic, requested.partition)
        if partition is None:
            raise broker.missing_error(topic, requested.partition)
        partition.check_epoch(requested.current_leader_epoch)
        log = partition.leader_log()
        response.leader_epoch, response.end_offset = log.epoch_end(Epoch(requested.leader_epoch))
    except LograftError as error:
        response.error_code = code_of(error)
    return response
