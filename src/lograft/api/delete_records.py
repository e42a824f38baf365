"""DeleteRecords, versions 0-2: everything below an offset goes; -1 stands for the high watermark.

Only what is committed can be deleted. A topic that is only compacted refuses (POLICY_VIOLATION):
its records stand for the last value of their keys. Answered when all replicas that are up have
deleted them, or with REQUEST_TIMED_OUT; the low watermark is the lowest start of their logs.
"""

from collections.abc import Coroutine
from typing import Any, Final, NamedTuple

from lograft.api.authorization import denied, find_denied
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
    """Deleted here; the followers have not heard of it yet."""

    answer: DeleteRecordsPartitionResult
    partition: Partition
    offset: Offset


def handle(
    context: Context, request: DeleteRecordsRequest
) -> DeleteRecordsResponse | Coroutine[Any, Any, DeleteRecordsResponse]:
    kept = find_denied(context, TOPIC_DELETE, (topic.name for topic in request.topics))
    pending: list[Pending] = []
    response = DeleteRecordsResponse(
        topics=[
            DeleteRecordsTopicResult(
                name=topic.name,
                partitions=[
                    _refused(asked, denied(TOPIC_DELETE, topic.name))
                    if topic.name in kept
                    else _delete(context.broker, topic.name, asked, pending)
                    for asked in topic.partitions
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
                        partition_index=asked.partition_index,
                        low_watermark=NO_OFFSET,
                        error_code=code,
                    )
                    for asked in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )


def _refused(asked: DeleteRecordsPartition, error: LograftError) -> DeleteRecordsPartitionResult:
    return DeleteRecordsPartitionResult(
        partition_index=asked.partition_index,
        low_watermark=NO_OFFSET,
        error_code=code_of(error),
    )


def _delete(
    broker: Broker, topic: str, asked: DeleteRecordsPartition, pending: list[Pending]
) -> DeleteRecordsPartitionResult:
    answer = DeleteRecordsPartitionResult(
        partition_index=asked.partition_index, low_watermark=NO_OFFSET
    )
    try:
        if topic in INTERNAL_TOPICS:
            raise InvalidTopic(f"records of the internal topic {topic} cannot be deleted")
        partition = broker.partitions.get(topic, asked.partition_index)
        if partition is None:
            raise broker.why_missing(topic, asked.partition_index)
        log = partition.leader_log()
        if not partition.config.cleanup_delete:
            raise RecordsNotDeletable(f"cleanup.policy of {topic} does not have delete")
        high_watermark = partition.high_watermark
        offset = Offset(high_watermark if asked.offset == HIGH_WATERMARK else asked.offset)
        if not 0 <= offset <= high_watermark:
            raise OffsetOutOfRange(offset, log_start=log.log_start_offset, end=high_watermark)
        partition.advance_log_start(offset)
        answer.low_watermark = partition.low_watermark
        if answer.low_watermark < offset:
            pending.append(Pending(answer, partition, offset))
    except LograftError as error:
        answer.error_code = code_of(error)
    return answer


async def _finish(
    context: Context,
    request: DeleteRecordsRequest,
    response: DeleteRecordsResponse,
    pending: list[Pending],
) -> DeleteRecordsResponse:
    clock = context.broker.clock
    deadline_ms = clock.mono_ms() + max(0, request.timeout_ms)
    for answer, partition, offset in pending:
        try:
            await partition.wait_low_watermark(
                offset, timeout_ms=max(0, deadline_ms - clock.mono_ms())
            )
        except LograftError as error:
            answer.error_code = code_of(error)
        answer.low_watermark = partition.low_watermark
    return response
