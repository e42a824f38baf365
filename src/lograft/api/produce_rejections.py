"""Rejected batches in the response to a Produce request: the error, and the records that caused it.

A list of rejected records is complete or empty. A producer fails the listed records and may retry
the others, so a truncated list would make it retry invalid records.
"""

from typing import Final

from lograft.api.errors import code_of
from lograft.broker.partitions.partition import Partition
from lograft.model.errors import ErrorCode, LograftError
from lograft.model.types import NO_OFFSET
from lograft.storage.errors import RejectedRecords
from lograft.wire.messages.produce import BatchIndexAndErrorMessage, PartitionProduceResponse

#: Maximum number of rejected records in one response. A batch has fewer (storage/validation.py:
#: PARSED_RECORDS_MAX), but a request may have thousands of small compressed batches.
RECORD_ERRORS_MAX: Final = 250_000
#: As in Kafka, the responses with these errors have no log start offset.
_WITHOUT_LOG_START: Final = frozenset(
    (
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.MESSAGE_TOO_LARGE,
        ErrorCode.RECORD_LIST_TOO_LARGE,
        ErrorCode.CORRUPT_MESSAGE,
        ErrorCode.KAFKA_STORAGE_ERROR,
    )
)


class RecordErrorBudget:
    """How many more rejected records a response may list."""

    __slots__ = ("left",)

    def __init__(self, left: int = RECORD_ERRORS_MAX) -> None:
        self.left = left


def set_error(
    response: PartitionProduceResponse,
    error: LograftError,
    *,
    partition: Partition | None = None,
    budget: RecordErrorBudget | None = None,
) -> None:
    """`partition`: the partition that rejected the batch; None if the error occurred before.
    `budget`: None if the error lists no records."""
    response.error_code = code = code_of(error)
    response.error_message = str(error)
    response.base_offset = NO_OFFSET
    response.log_append_time_ms = -1
    response.log_start_offset = NO_OFFSET
    if partition is not None and partition.log is not None and code not in _WITHOUT_LOG_START:
        response.log_start_offset = partition.log.log_start_offset
    if (
        budget is not None
        and isinstance(error, RejectedRecords)
        and len(error.record_errors) <= budget.left
    ):
        budget.left -= len(error.record_errors)
        response.record_errors = [
            BatchIndexAndErrorMessage(batch_index=index, batch_index_error_message=message)
            for index, message in error.record_errors
        ]
