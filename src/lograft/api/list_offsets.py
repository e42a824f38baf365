"""ListOffsets, versions 1-11: finds offsets by timestamp, or special offsets of the log.

Negative timestamps are special offsets: -1 latest (the last stable offset for read_committed), -2
earliest, -3 the record with the largest timestamp (v7), -4 earliest local (v8), -5 latest tiered
(v9) and -6 earliest not yet tiered (v11); Lograft has no tiered storage. For a timestamp later than
every record the offset is -1, without an error. v4: leader epochs. v5: a newly elected leader may
not know the latest offset for a moment, and returns OFFSET_NOT_AVAILABLE (KIP-207), because the
latest offset must not go back. v10: a timeout, which this handler never needs.
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
#: The first version that supports a special timestamp.
SPECIAL_SINCE: Final = {
    MAX_TIMESTAMP: 7,
    EARLIEST_LOCAL: 8,
    LATEST_TIERED: 9,
    EARLIEST_PENDING_UPLOAD: 11,
}
READ_COMMITTED: Final = 1
#: Before this version KIP-207 has another error code.
OFFSET_NOT_AVAILABLE_SINCE: Final = 5
#: replica_id of a consumer; -2 is a debugging consumer, which sees the whole log.
CONSUMER: Final = -1


def handle(context: Context, request: ListOffsetsRequest) -> ListOffsetsResponse:
    broker: Broker = context.broker
    seen: set[tuple[str, int]] = set()
    repeated: set[tuple[str, int]] = set()
    for topic in request.topics:
        for requested in topic.partitions:
            key = (topic.name, requested.partition_index)
            (repeated if key in seen else seen).add(key)
    denied = find_denied(context, TOPIC_DESCRIBE, (topic.name for topic in request.topics))
    topics = []
    for topic in request.topics:
        results = []
        for requested in topic.partitions:
            result = ListOffsetsPartitionResponse(partition_index=requested.partition_index)
            results.append(result)
            if topic.name in denied:
                result.error_code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
            elif (topic.name, requested.partition_index) in repeated:
                result.error_code = ErrorCode.INVALID_REQUEST
            elif context.api_version < SPECIAL_SINCE.get(requested.timestamp, 0):
                result.error_code = ErrorCode.UNSUPPORTED_VERSION
            else:
                try:
                    _find(broker, topic.name, request, requested, result)
                except OffsetNotAvailable as error:
                    result.error_code = code_of(error)
                    if context.api_version < OFFSET_NOT_AVAILABLE_SINCE:
                        result.error_code = ErrorCode.LEADER_NOT_AVAILABLE
                except LograftError as error:
                    result.error_code = code_of(error)
            if context.api_version < 4:
                result.leader_epoch = NO_EPOCH
        topics.append(ListOffsetsTopicResponse(name=topic.name, partitions=results))
    return ListOffsetsResponse(topics=topics)


def _find(
    broker: Broker,
    topic: str,
    request: ListOffsetsRequest,
    requested: ListOffsetsPartition,
    result: ListOffsetsPartitionResponse,
) -> None:
    partition = broker.partitions.get(topic, requested.partition_index)
    if partition is None:
        raise broker.missing_error(topic, requested.partition_index)
    partition.check_epoch(requested.current_leader_epoch)
    log = partition.leader_log()
    bound = _visible_end(partition, log, request)
    match requested.timestamp:
        case -1:
            _check_high_watermark_known(partition, request)
            result.offset = bound
            result.leader_epoch = partition.leader_epoch
        case -2 | -4:
            result.offset = log.log_start_offset
            epoch = log.epoch_for_offset(log.log_start_offset)
            result.leader_epoch = NO_EPOCH if epoch is None else epoch
        case -5 | -6:
            result.offset = NO_OFFSET
        case _:
            record = _look_up(partition, log, requested.timestamp)
            # Records that are not visible yet are not found, or a consumer would seek past its end.
            if record is not None and record.offset < bound:
                result.timestamp = record.timestamp
                result.offset = record.offset
                result.leader_epoch = record.leader_epoch
            else:
                _check_high_watermark_known(partition, request)
                result.timestamp, result.offset = NO_TIMESTAMP, NO_OFFSET


def _check_high_watermark_known(partition: Partition, request: ListOffsetsRequest) -> None:
    leader = partition.leader
    if request.replica_id == CONSUMER and leader is not None and not leader.can_report_latest:
        raise OffsetNotAvailable(
            f"The new leader of {partition.topic_partition} does not know the high watermark yet."
        )


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
