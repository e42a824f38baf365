"""ElectLeaders in all versions; the rules are tested with the decision."""

import pytest

from lograft.model.errors import ErrorCode
from lograft.wire.messages.elect_leaders import (
    ElectLeadersRequest,
    ElectLeadersResponse,
    TopicPartitions,
)
from tests.support.scenarios import scenario
from tests.unit.broker.bench import Bench, run


@pytest.mark.parametrize("version", range(3))
@scenario(run)
async def test_partition_with_its_preferred_leader_needs_no_election(
    bench: Bench, /, version: int
) -> None:
    await bench.create_topic("t")
    request = ElectLeadersRequest(topic_partitions=[TopicPartitions(topic="t", partitions=[0])])
    response = await bench.ask(request, version, ElectLeadersResponse)
    (result,) = response.replica_election_results
    (partition_result,) = result.partition_result
    assert (partition_result.partition_id, partition_result.error_code) == (
        0,
        ErrorCode.ELECTION_NOT_NEEDED,
    )
    bench.controller.down = True
    response = await bench.ask(request, version, ElectLeadersResponse)
    (partition_result,) = response.replica_election_results[0].partition_result
    assert partition_result.error_code == ErrorCode.REQUEST_TIMED_OUT
