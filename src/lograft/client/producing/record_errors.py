"""Errors of individual records in a batch that the broker rejected (KIP-467)."""

from collections.abc import Mapping

from lograft.client.errors import BatchRejected, BrokerError, broker_error
from lograft.model.errors import ErrorCode
from lograft.wire.messages.produce import PartitionProduceResponse


class RecordErrors:
    """The records of a batch that the broker rejected. The others were not appended either, but can
    be sent again."""

    __slots__ = ("_by_index", "_others")

    def __init__(self, by_index: Mapping[int, BrokerError], others: BrokerError) -> None:
        self._by_index = by_index
        self._others = others

    def of(self, index: int) -> BrokerError:
        return self._by_index.get(index, self._others)


def record_errors_of(response: PartitionProduceResponse, what: str) -> RecordErrors | None:
    """Returns the record errors in a response, or None. As in Kafka's own producer, a record gets
    the error code of the batch only if it is the only rejected record."""
    rejected = response.record_errors
    if not rejected:
        return None
    code = response.error_code if len(rejected) == 1 else ErrorCode.INVALID_RECORD
    return RecordErrors(
        {
            error.batch_index: broker_error(
                code,
                f"{what}, record {error.batch_index} of its batch",
                error.batch_index_error_message or response.error_message,
            )
            for error in rejected
        },
        BatchRejected(
            ErrorCode.INVALID_RECORD,
            f"{what}: the broker rejected the batch because of {len(rejected)} other records in it"
            " (INVALID_RECORD); this record can be sent again",
        ),
    )
