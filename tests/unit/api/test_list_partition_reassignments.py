"""A cluster of one broker has no reassignments."""

from lograft.model.errors import ErrorCode
from lograft.wire.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
)
from tests.support.scenarios import scenario
from tests.unit.broker.bench import Bench, run


@scenario(run)
async def test_controller_returns_the_list(bench: Bench, /) -> None:
    await bench.create_topic("t")
    request = ListPartitionReassignmentsRequest()
    response = await bench.ask(request, 0, ListPartitionReassignmentsResponse)
    assert (response.error_code, response.topics) == (0, [])
    bench.controller.down = True
    response = await bench.ask(request, 0, ListPartitionReassignmentsResponse)
    assert response.error_code == ErrorCode.REQUEST_TIMED_OUT
