"""What a response says about rejected batches."""

from lograft.api.produce_rejections import RECORD_ERRORS_MAX, RecordErrorBudget, set_error
from lograft.model.errors import ErrorCode
from lograft.storage.errors import InvalidRecord, RecordError
from lograft.storage.validation import PARSED_RECORDS_MAX
from lograft.wire.messages.produce import PartitionProduceResponse


def test_a_list_of_rejected_records_is_complete_or_empty() -> None:
    """Of a batch without a list the producer fails all records."""
    budget = RecordErrorBudget(5)
    named = []
    for count in (3, 3, 2, 1):
        answer = PartitionProduceResponse(index=0)
        errors = tuple(RecordError(index, None) for index in range(count))
        set_error(answer, InvalidRecord("no keys", errors), budget=budget)
        assert answer.error_code == ErrorCode.INVALID_RECORD
        named.append(len(answer.record_errors))
    assert named == [3, 0, 2, 0]


def test_one_batch_can_always_name_its_records() -> None:
    assert RECORD_ERRORS_MAX >= PARSED_RECORDS_MAX
