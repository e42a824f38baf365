"""Rejected records in Produce responses."""

from lograft.api.produce_rejections import RECORD_ERRORS_MAX, RecordErrorBudget, set_error
from lograft.model.errors import ErrorCode
from lograft.storage.errors import InvalidRecord, RecordError
from lograft.storage.validation import PARSED_RECORDS_MAX
from lograft.wire.messages.produce import PartitionProduceResponse


def test_list_of_rejected_records_is_complete_or_empty() -> None:
    """A producer fails all records of a batch without a list."""
    budget = RecordErrorBudget(5)
    named = []
    for count in (3, 3, 2, 1):
        response = PartitionProduceResponse(index=0)
        errors = tuple(RecordError(index, None) for index in range(count))
        set_error(response, InvalidRecord("no keys", errors), budget=budget)
        assert response.error_code == ErrorCode.INVALID_RECORD
        named.append(len(response.record_errors))
    assert named == [3, 0, 2, 0]


def test_records_of_a_single_batch_can_always_be_listed() -> None:
    assert RECORD_ERRORS_MAX >= PARSED_RECORDS_MAX
