"""ElectLeaders in all versions; the rules are tested with the decision."""

import pytest

from lograft.model.errors import ErrorCode
from lograft.security.authorization import CLUSTER_ALTER
from lograft.wire.messages.elect_leaders import (
    ElectLeadersRequest,
    ElectLeadersResponse,
    TopicPartitions,
)
from tests.support.scenarios import scenario
from tests.unit.api.stand_in_authorizer import StandInAuthorizer
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


@pytest.mark.parametrize("version", range(3))
@pytest.mark.parametrize("partitions", [[0], []])
@scenario(run)
async def test_denied_election_is_answered_in_every_version(
    bench: Bench, /, version: int, partitions: list[int]
) -> None:
    authorizer = StandInAuthorizer()
    authorizer.denied.add(CLUSTER_ALTER)
    await bench.create_topic("t")
    bench.authorize_with(authorizer)
    topics = [TopicPartitions(topic="t", partitions=partitions)] if partitions else None
    request = ElectLeadersRequest(topic_partitions=topics)
    response = await bench.ask(request, version, ElectLeadersResponse)
    denied = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    # Version 0 has no error code of the whole request.
    assert response.error_code == (denied if version else ErrorCode.NONE)
    codes = [
        each.error_code
        for result in response.replica_election_results
        for each in result.partition_result
    ]
    assert codes == [denied] * len(partitions)
