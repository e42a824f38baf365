"""Reassignments in requests; the rules are tested with the decision."""

import pytest

from lograft.model.errors import ErrorCode
from lograft.wire.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ReassignablePartition,
    ReassignableTopic,
)
from tests.support.scenarios import scenario
from tests.unit.broker.bench import Bench, run


@pytest.mark.parametrize("version", range(2))
@scenario(run)
async def test_each_partition_has_its_own_error(bench: Bench, /, version: int) -> None:
    await bench.create_topic("t")
    ones = [
        ReassignablePartition(partition_index=0, replicas=[1]),
        ReassignablePartition(partition_index=1, replicas=[1]),
    ]
    request = AlterPartitionReassignmentsRequest(
        topics=[ReassignableTopic(name="t", partitions=ones)]
    )
    response = await bench.ask(request, version, AlterPartitionReassignmentsResponse)
    codes = [partition.error_code for partition in response.responses[0].partitions]
    assert codes == [0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
    bench.controller.down = True
    response = await bench.ask(request, version, AlterPartitionReassignmentsResponse)
    assert response.error_code == ErrorCode.REQUEST_TIMED_OUT
