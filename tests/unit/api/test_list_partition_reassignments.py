"""Nothing is under way on a cluster of one broker."""

from lograft.model.errors import ErrorCode
from lograft.wire.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
)
from tests.unit.broker.bench import Bench, run


def test_the_list_comes_from_the_controller() -> None:
    async def scenario(bench: Bench) -> None:
        await bench.create_topic("t")
        request = ListPartitionReassignmentsRequest()
        answer = await bench.ask(request, 0, ListPartitionReassignmentsResponse)
        assert (answer.error_code, answer.topics) == (0, [])
        bench.controller.down = True
        answer = await bench.ask(request, 0, ListPartitionReassignmentsResponse)
        assert answer.error_code == ErrorCode.REQUEST_TIMED_OUT

    run(scenario)
