from uuid import UUID

import pytest

from lograft.consensus import messages as core
from lograft.model.errors import ErrorCode
from lograft.model.seams import Address
from lograft.model.types import Epoch, NodeId
from lograft.wire.messages.update_raft_voter import (
    KRaftVersionFeature,
    Listener,
    UpdateRaftVoterRequest,
    UpdateRaftVoterResponse,
)
from tests.support.scenarios import scenario
from tests.unit.broker.bench import CLUSTER_ID, Bench, run


def request(epoch: int) -> UpdateRaftVoterRequest:
    return UpdateRaftVoterRequest(
        cluster_id=CLUSTER_ID,
        current_leader_epoch=epoch,
        voter_id=4,
        voter_directory_id=UUID(int=4),
        listeners=[Listener(name="CONTROLLER", host="h", port=9093)],
        kraft_version_feature=KRaftVersionFeature(min_supported_version=0, max_supported_version=1),
    )


@scenario(run)
async def test_voter_updates_its_endpoints(bench: Bench, /) -> None:
    bench.quorum.endpoint = Address("leader", 9093)
    bench.quorum.answer = core.VoterChangeResponse(sender=NodeId(1), epoch=Epoch(3))
    response = await bench.ask(request(3), 0, UpdateRaftVoterResponse, role="controller")
    assert response.error_code == 0
    leader = response.current_leader
    assert leader is not None
    assert (leader.leader_id, leader.leader_epoch, leader.host) == (1, 3, "leader")
    assert bench.quorum.asked is not None
    assert isinstance(bench.quorum.asked[0], core.UpdateVoterRequest)
    assert bench.quorum.asked[0].voter.endpoints[0].host == "h"


@pytest.mark.parametrize(
    ("epoch", "code"),
    [(2, ErrorCode.FENCED_LEADER_EPOCH), (4, ErrorCode.UNKNOWN_LEADER_EPOCH)],
)
@scenario(run)
async def test_request_needs_the_leader_and_its_epoch(
    bench: Bench, /, epoch: int, code: ErrorCode
) -> None:
    response = await bench.ask(request(epoch), 0, UpdateRaftVoterResponse, role="controller")
    assert response.error_code == code
    assert bench.quorum.asked is None
