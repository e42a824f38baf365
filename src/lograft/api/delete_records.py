"""DeleteRecords, versions 0-2: deletes the records below an offset; -1 means the high watermark.

Only committed records can be deleted, and not those of a topic that is only compacted
(POLICY_VIOLATION), where a record is the latest value of its key. Responds when all live replicas
have deleted them, or with REQUEST_TIMED_OUT; the low watermark is the lowest log start offset.
"""

from collections.abc import Coroutine
from typing import Any, Final, NamedTuple

from lograft.api.authorization import find_denied, permission_error
from lograft.api.context import Api, Context
from lograft.api.errors import code_of
from lograft.api.types import each_item
from lograft.broker.broker import Broker
from lograft.broker.errors import InvalidTopic, RecordsNotDeletable
from lograft.broker.partitions.partition import Partition
from lograft.model.errors import ErrorCode, LograftError
from lograft.model.types import INTERNAL_TOPICS, NO_OFFSET, Offset
from lograft.security.authorization import TOPIC_DELETE
from lograft.storage.errors import OffsetOutOfRange
from lograft.wire.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsPartitionResult,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopicResult,
)

API: Final = Api(key=21, versions=range(3), needs=each_item(TOPIC_DELETE))

HIGH_WATERMARK: Final = -1


class Pending(NamedTuple):
    """Deleted by the leader, but not yet by the followers."""

    result: DeleteRecordsPartitionResult
    partition: Partition
    offset: Offset


def handle(
    context: Context, request: DeleteRecordsRequest
) -> DeleteRecordsResponse | Coroutine[Any, Any, DeleteRecordsResponse]:
    denied_topics = find_denied(context, TOPIC_DELETE, (topic.name for topic in request.topics))
    pending: list[Pending] = []
    response = DeleteRecordsResponse(
        topics=[
            DeleteRecordsTopicResult(
                name=topic.name,
                partitions=[
                    _error_result(partition, permission_error(TOPIC_DELETE, topic.name))
                    if topic.name in denied_topics
                    else _delete(context.broker, topic.name, partition, pending)
                    for partition in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )
    return _finish(context, request, response, pending) if pending else response


def error_response(
    request: DeleteRecordsRequest, code: ErrorCode, message: str
) -> DeleteRecordsResponse:
    return DeleteRecordsResponse(
        topics=[
            DeleteRecordsTopicResult(
                name=topic.name,
                partitions=[
                    DeleteRecordsPartitionResult(
                        partition_index=partition.partition_index,
                        low_watermark=NO_OFFSET,
                        error_code=code,
                    )
                    for partition in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )


def _error_result(
    partition: DeleteRecordsPartition, error: LograftError
) -> DeleteRecordsPartitionResult:
    return DeleteRecordsPartitionResult(
        partition_index=partition.partition_index,
        low_watermark=NO_OFFSET,
        error_code=code_of(error),
    )


def _delete(
    broker: Broker, topic: str, requested: DeleteRecordsPartition, pending: list[Pending]
) -> DeleteRecordsPartitionResult:
    result = DeleteRecordsPartitionResult(
        partition_index=requested.partition_index, low_watermark=NO_OFFSET
    )
    try:
        if topic in INTERNAL_TOPICS:
            raise InvalidTopic(f"Records of the internal topic {topic} cannot be deleted.")
        partition = broker.partitions.get(topic, requested.partition_index)
        if partition is None:
            raise broker.missing_error(topic, requested.partition_index)
        log = partition.leader_log()
        if not partition.config.cleanup_delete:
            raise RecordsNotDeletable(f"cleanup.policy of topic {topic} does not include delete.")
        high_watermark = partition.high_watermark
        offset = Offset(high_watermark if requested.offset == HIGH_WATERMARK else requested.offset)
        if not 0 <= offset <= high_watermark:
            raise OffsetOutOfRange(offset, log_start=log.log_start_offset, end=high_watermark)
        partition.advance_log_start(offset)
        result.low_watermark = partition.low_watermark
        if result.low_watermark < offset:
            pending.append(Pending(result, partition, offset))
    except LograftError as error:
        result.error_code = code_of(error)
    return result


async def _finish(
    context: Context,
    request: DeleteRecordsRequest,
    response: DeleteRecordsResponse,
    pending: list[Pending],
) -> DeleteRecordsResponse:
    clock = context.broker.clock
    deadline_ms = clock.mono_ms() + max(0, request.timeout_ms)
    for result, partition, offset in pending:
        try:
            await partition.wait_low_watermark(
                offset, timeout_ms=max(0, deadline_ms - clock.mono_ms())
            )
        except LograftError as error:
            result.error_code = code_of(error)
        result.low_watermark = partition.low_watermark
    return response
