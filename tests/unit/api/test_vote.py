from uuid import UUID

import pytest

from lograft.consensus import messages as core
from lograft.consensus.types import LogEnd, ReplicaKey
from lograft.model.errors import ErrorCode
from lograft.model.seams import Address
from lograft.model.types import Epoch, NodeId, Offset
from lograft.wire.messages.vote import (
    VoteRequest,
    VoteRequestPartitionData,
    VoteRequestTopicData,
    VoteResponse,
)
from tests.support.scenarios import scenario
from tests.unit.broker.bench import CLUSTER_ID, Bench, run


def request(topic: str = "__cluster_metadata", cluster_id: str | None = CLUSTER_ID) -> VoteRequest:
    asked = VoteRequestPartitionData(
        replica_epoch=7,
        replica_id=2,
        replica_directory_id=UUID(int=5),
        voter_directory_id=UUID(int=77),
        last_offset_epoch=6,
        last_offset=40,
        pre_vote=True,
    )
    topics = [VoteRequestTopicData(topic_name=topic, partitions=[asked])]
    return VoteRequest(cluster_id=cluster_id, voter_id=1, topics=topics)


@scenario(run)
async def test_vote_of_the_core_is_returned(bench: Bench, /) -> None:
    bench.quorum.endpoint = Address("host", 9093)
    bench.quorum.answer = core.VoteResponse(
        sender=NodeId(1), epoch=Epoch(7), leader=NodeId(1), granted=True
    )
    response = await bench.ask(request(), 2, VoteResponse, role="controller")
    assert bench.quorum.asked is not None
    assert bench.quorum.asked[0] == core.VoteRequest(
        sender=ReplicaKey(NodeId(2), UUID(int=5)),
        to=ReplicaKey(NodeId(1), UUID(int=77)),
        epoch=Epoch(7),
        log_end=LogEnd(Epoch(6), Offset(40)),
        pre_vote=True,
    )
    (voted,) = response.topics[0].partitions
    assert (voted.error_code, voted.leader_epoch, voted.vote_granted) == (0, 7, True)
    (end,) = response.node_endpoints
    assert (end.node_id, end.host, end.port) == (1, "host", 9093)


@pytest.mark.parametrize(
    ("invalid", "code"),
    [
        (request(cluster_id="other"), ErrorCode.INCONSISTENT_CLUSTER_ID),
        (request(topic="another"), ErrorCode.INVALID_REQUEST),
        (VoteRequest(voter_id=1), ErrorCode.INVALID_REQUEST),
    ],
)
@scenario(run)
async def test_requests_for_other_quorums_are_rejected(
    bench: Bench, /, invalid: VoteRequest, code: ErrorCode
) -> None:
    response = await bench.ask(invalid, 2, VoteResponse, role="controller")
    assert response.error_code == code
    assert bench.quorum.asked is None
