from uuid import UUID

import pytest

from lograft.consensus import messages as core
from lograft.consensus.types import ReplicaKey
from lograft.model.errors import ErrorCode
from lograft.model.types import Epoch, NodeId
from lograft.wire.messages.remove_raft_voter import RemoveRaftVoterRequest, RemoveRaftVoterResponse
from tests.support.scenarios import scenario
from tests.unit.broker.bench import CLUSTER_ID, Bench, run


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (core.Error.NONE, ErrorCode.NONE),
        (core.Error.VOTER_NOT_FOUND, ErrorCode.VOTER_NOT_FOUND),
        (core.Error.LAST_VOTER, ErrorCode.INVALID_REQUEST),
        (core.Error.TIMED_OUT, ErrorCode.REQUEST_TIMED_OUT),
    ],
)
@scenario(run)
async def test_errors_of_the_core_become_error_codes(
    bench: Bench, /, error: core.Error, code: ErrorCode
) -> None:
    bench.quorum.answer = core.VoterChangeResponse(sender=NodeId(1), epoch=Epoch(3), error=error)
    request = RemoveRaftVoterRequest(
        cluster_id=CLUSTER_ID, voter_id=4, voter_directory_id=UUID(int=4)
    )
    response = await bench.ask(request, 0, RemoveRaftVoterResponse, role="controller")
    assert response.error_code == code
    key = ReplicaKey(NodeId(4), UUID(int=4))
    assert bench.quorum.asked == (core.RemoveVoterRequest(key=key), 0)
    request.cluster_id = "other"
    response = await bench.ask(request, 0, RemoveRaftVoterResponse, role="controller")
    assert response.error_code == ErrorCode.INCONSISTENT_CLUSTER_ID
