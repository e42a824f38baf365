from uuid import UUID

import pytest

from lograft.consensus import messages as core
from lograft.consensus.types import ReplicaKey
from lograft.model.errors import ErrorCode
from lograft.model.types import Epoch, NodeId
from lograft.wire.messages.end_quorum_epoch import (
    EndQuorumEpochRequest,
    EndQuorumEpochRequestPartitionData,
    EndQuorumEpochRequestTopicData,
    EndQuorumEpochResponse,
    ReplicaInfo,
)
from tests.support.scenarios import scenario
from tests.unit.broker.bench import CLUSTER_ID, Bench, run


@pytest.mark.parametrize("version", [0, 1])
@scenario(run)
async def test_successors_are_passed_in_order(bench: Bench, /, version: int) -> None:
    directories = [UUID(int=9), UUID(int=8)] if version else [UUID(int=0)] * 2
    asked = EndQuorumEpochRequestPartitionData(leader_id=2, leader_epoch=3)
    if version:
        asked.preferred_candidates = [
            ReplicaInfo(candidate_id=3, candidate_directory_id=directories[0]),
            ReplicaInfo(candidate_id=1, candidate_directory_id=directories[1]),
        ]
    else:
        asked.preferred_successors = [3, 1]
    topic = EndQuorumEpochRequestTopicData(topic_name="__cluster_metadata", partitions=[asked])
    request = EndQuorumEpochRequest(cluster_id=CLUSTER_ID, topics=[topic])
    bench.quorum.answer = core.EndQuorumEpochResponse(sender=NodeId(1), epoch=Epoch(3))
    response = await bench.ask(request, version, EndQuorumEpochResponse, role="controller")
    assert response.topics[0].partitions[0].error_code == 0
    assert bench.quorum.asked is not None
    assert bench.quorum.asked[0] == core.EndQuorumEpochRequest(
        sender=ReplicaKey(NodeId(2)),
        epoch=Epoch(3),
        successors=(
            ReplicaKey(NodeId(3), directories[0]),
            ReplicaKey(NodeId(1), directories[1]),
        ),
    )
    request.cluster_id = "other"
    response = await bench.ask(request, version, EndQuorumEpochResponse, role="controller")
    assert response.error_code == ErrorCode.INCONSISTENT_CLUSTER_ID
