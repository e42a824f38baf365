"""Error codes are found in every response."""

import pytest

from lograft.api.response_errors import ERRORS, ErrorCounts, find_error_fields
from lograft.model.errors import ErrorCode
from lograft.model.metrics import gather_all
from lograft.wire.apis import API_VERSIONS, response_class
from lograft.wire.message import Message
from lograft.wire.messages.add_partitions_to_txn import (
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnResult,
    AddPartitionsToTxnTopicResult,
)
from lograft.wire.messages.fetch import FetchableTopicResponse, FetchResponse, PartitionData


def counted(*responses: Message) -> dict[tuple[str, ...], object]:
    counts = ErrorCounts("Api", type(responses[0]))
    for response in responses:
        counts.add_all_of(response)
    return dict(gather_all(counts.collect_samples()).by_metric.get(ERRORS, {}))


def test_errors_of_the_response_and_of_its_items() -> None:
    partitions = [
        PartitionData(partition_index=i, error_code=code) for i, code in enumerate((6, 0, 6))
    ]
    topic = FetchableTopicResponse(topic="t", partitions=partitions)
    assert counted(
        FetchResponse(responses=[topic]), FetchResponse(error_code=70), FetchResponse()
    ) == {
        ("Api", "NOT_LEADER_OR_FOLLOWER"): 2,
        ("Api", "FETCH_SESSION_ID_NOT_FOUND"): 1,
    }


def test_codes_with_longer_names() -> None:
    partition = AddPartitionsToTxnPartitionResult(partition_index=0, partition_error_code=47)
    topic = AddPartitionsToTxnTopicResult(name="t", results_by_partition=[partition])
    result = AddPartitionsToTxnResult(transactional_id="x", topic_results=[topic])
    response = AddPartitionsToTxnResponse(results_by_transaction=[result])
    assert counted(response) == {("Api", "INVALID_PRODUCER_EPOCH"): 1}


def test_codes_of_other_versions_of_the_protocol_are_numbers() -> None:
    assert counted(FetchResponse(error_code=30_000)) == {("Api", "30000"): 1}


@pytest.mark.parametrize("key", sorted(API_VERSIONS))
def test_each_response_can_report_an_error(key: int) -> None:
    fields = find_error_fields(response_class(key))
    assert fields.code or fields.arrays


def test_there_is_a_series_for_each_code() -> None:
    responses = [FetchResponse(error_code=code) for code in ErrorCode]
    assert len(counted(*responses)) == len(ErrorCode) - 1
