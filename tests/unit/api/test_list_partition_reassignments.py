"""Nothing is under way on a cluster of one broker."""

from lograft.model.errors import ErrorCode
from lograft.wire.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
)
from tests.support.scenarios import scenario
from tests.unit.broker.bench import Bench, run


@scenario(run)
async def test_the_list_comes_from_the_controller(bench: Bench, /) -> None:
    await bench.create_topic("t")
    request = ListPartitionReassignmentsRequest()
    answer = await bench.ask(request, 0, ListPartitionReassignmentsResponse)
    assert (answer.error_code, answer.topics) == (0, [])
    bench.controller.down = True
    answer = await bench.ask(request, 0, ListPartitionReassignmentsResponse)
    assert answer.error_code == ErrorCode.REQUEST_TIMED_OUT
