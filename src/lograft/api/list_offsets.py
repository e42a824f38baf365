"""ListOffsets, versions 1-11: the offset of a time, or of one of the log's landmarks.

Timestamps below zero name landmarks: -1 latest (the last stable offset for read_committed), -2
earliest, -3 the record with the largest timestamp (v7), -4 earliest on local disk (v8), -5 latest
in tiered storage (v9) and -6 earliest not yet copied there (v11), of which there is none here. A
time later than every record finds nothing: offset -1 without an error. v4: leader epochs. v5: after
an election a leader may not know the latest offset for a moment, and says so (KIP-207): it must
not tell a lower one than its predecessor did. v10: a timeout, which this handler never needs.
"""

from typing import Final

from lograft.api.authorization import find_denied
from lograft.api.context import Api, Context
from lograft.api.errors import code_of
from lograft.api.types import each_item
from lograft.broker.broker import Broker
from lograft.broker.errors import OffsetNotAvailable
from lograft.broker.partitions.partition import Partition
from lograft.model.errors import DiskFailed, ErrorCode, LograftError
from lograft.model.types import NO_EPOCH, NO_OFFSET, NO_TIMESTAMP
from lograft.security.authorization import TOPIC_DESCRIBE
from lograft.storage.log import Log
from lograft.storage.types import TimestampAndOffset
from lograft.wire.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)

API: Final = Api(key=2, versions=range(1, 12), needs=each_item(TOPIC_DESCRIBE))

LATEST: Final = -1
EARLIEST: Final = -2
MAX_TIMESTAMP: Final = -3
EARLIEST_LOCAL: Final = -4
LATEST_TIERED: Final = -5
EARLIEST_PENDING_UPLOAD: Final = -6
#: The first version that knows a landmark.
LANDMARK_SINCE: Final = {
    MAX_TIMESTAMP: 7,
    EARLIEST_LOCAL: 8,
    LATEST_TIERED: 9,
    EARLIEST_PENDING_UPLOAD: 11,
}
READ_COMMITTED: Final = 1
#: Below it the error of KIP-207 has another name.
OFFSET_NOT_AVAILABLE_SINCE: Final = 5
#: replica_id of a client; -2 is a debugging client, which sees the whole log.
CONSUMER: Final = -1


def handle(context: Context, request: ListOffsetsRequest) -> ListOffsetsResponse:
    broker: Broker = context.broker
    seen: set[tuple[str, int]] = set()
    repeated: set[tuple[str, int]] = set()
    for topic in request.topics:
        for asked in topic.partitions:
            key = (topic.name, asked.partition_index)
            (repeated if key in seen else seen).add(key)
    denied = find_denied(context, TOPIC_DESCRIBE, (topic.name for topic in request.topics))
    topics = []
    for topic in request.topics:
        answers = []
        for asked in topic.partitions:
            answer = ListOffsetsPartitionResponse(partition_index=asked.partition_index)
            answers.append(answer)
            if topic.name in denied:
                answer.error_code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
            elif (topic.name, asked.partition_index) in repeated:
                answer.error_code = ErrorCode.INVALID_REQUEST
            elif context.api_version < LANDMARK_SINCE.get(asked.timestamp, 0):
                answer.error_code = ErrorCode.UNSUPPORTED_VERSION
            else:
                try:
                    _find(broker, topic.name, request, asked, answer)
                except OffsetNotAvailable as error:
                    answer.error_code = code_of(error)
                    if context.api_version < OFFSET_NOT_AVAILABLE_SINCE:
                        answer.error_code = ErrorCode.LEADER_NOT_AVAILABLE
                except LograftError as error:
                    answer.error_code = code_of(error)
            if context.api_version < 4:
                answer.leader_epoch = NO_EPOCH
        topics.append(ListOffsetsTopicResponse(name=topic.name, partitions=answers))
    return ListOffsetsResponse(topics=topics)


def _find(
    broker: Broker,
    topic: str,
    request: ListOffsetsRequest,
    asked: ListOffsetsPartition,
    answer: ListOffsetsPartitionResponse,
) -> None:
    partition = broker.partitions.get(topic, asked.partition_index)
    if partition is None:
        raise broker.why_missing(topic, asked.partition_index)
    partition.check_epoch(asked.current_leader_epoch)
    log = partition.leader_log()
    bound = _visible_end(partition, log, request)
    match asked.timestamp:
        case -1:
            _check_known(partition, request)
            answer.offset = bound
            answer.leader_epoch = partition.leader_epoch
        case -2 | -4:
            answer.offset = log.log_start_offset
            epoch = log.epoch_for_offset(log.log_start_offset)
            answer.leader_epoch = NO_EPOCH if epoch is None else epoch
        case -5 | -6:
            answer.offset = NO_OFFSET
        case _:
            found = _look_up(partition, log, asked.timestamp)
            # What is not visible yet is not found either, or a consumer would seek past its end.
            if found is not None and found.offset < bound:
                answer.timestamp = found.timestamp
                answer.offset = found.offset
                answer.leader_epoch = found.leader_epoch
            else:
                _check_known(partition, request)
                answer.timestamp, answer.offset = NO_TIMESTAMP, NO_OFFSET


def _check_known(partition: Partition, request: ListOffsetsRequest) -> None:
    leader = partition.leader
    if request.replica_id == CONSUMER and leader is not None and not leader.knows_latest:
        raise OffsetNotAvailable(f"{partition.topic_partition}: the leader is new")


def _look_up(partition: Partition, log: Log, timestamp: int) -> TimestampAndOffset | None:
    try:
        if timestamp == MAX_TIMESTAMP:
            return log.max_timestamp_offset()
        return log.offset_for_timestamp(timestamp)
    except DiskFailed as error:
        partition.on_disk_failed(error)
        raise


def _visible_end(partition: Partition, log: Log, request: ListOffsetsRequest) -> int:
    if request.replica_id != CONSUMER:
        return log.end_offset
    if request.isolation_level == READ_COMMITTED:
        return partition.last_stable_offset
    return partition.high_watermark
