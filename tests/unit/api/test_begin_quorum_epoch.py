from lograft.consensus import messages as core
from lograft.model.errors import ErrorCode
from lograft.model.seams import Address
from lograft.model.types import Epoch, NodeId
from lograft.wire.messages.begin_quorum_epoch import (
    BeginQuorumEpochRequest,
    BeginQuorumEpochRequestPartitionData,
    BeginQuorumEpochRequestTopicData,
    BeginQuorumEpochResponse,
    LeaderEndpoint,
)
from tests.support.scenarios import scenario
from tests.unit.broker.bench import CLUSTER_ID, Bench, run


def request(epoch: int, cluster_id: str = CLUSTER_ID) -> BeginQuorumEpochRequest:
    begin = BeginQuorumEpochRequestPartitionData(leader_id=2, leader_epoch=epoch)
    return BeginQuorumEpochRequest(
        cluster_id=cluster_id,
        voter_id=1,
        topics=[
            BeginQuorumEpochRequestTopicData(topic_name="__cluster_metadata", partitions=[begin])
        ],
        leader_endpoints=[
            LeaderEndpoint(name="OTHER", host="x", port=1),
            LeaderEndpoint(name="CONTROLLER", host="leader", port=9093),
        ],
    )


@scenario(run)
async def test_endpoints_of_the_leader_are_stored(bench: Bench, /) -> None:
    bench.quorum.answer = core.BeginQuorumEpochResponse(sender=NodeId(1), epoch=Epoch(4))
    response = await bench.ask(request(4), 1, BeginQuorumEpochResponse, role="controller")
    assert response.topics[0].partitions[0].leader_epoch == 4
    assert bench.quorum.learned == (2, Address("leader", 9093))


@scenario(run)
async def test_endpoints_of_a_former_leader_are_ignored(bench: Bench, /) -> None:
    bench.quorum.answer = core.BeginQuorumEpochResponse(
        sender=NodeId(1), epoch=Epoch(3), error=core.Error.FENCED_EPOCH
    )
    response = await bench.ask(request(2), 1, BeginQuorumEpochResponse, role="controller")
    assert response.topics[0].partitions[0].error_code == ErrorCode.FENCED_LEADER_EPOCH
    assert bench.quorum.learned is None
    response = await bench.ask(request(4, "other"), 1, BeginQuorumEpochResponse, role="controller")
    assert response.error_code == ErrorCode.INCONSISTENT_CLUSTER_ID
