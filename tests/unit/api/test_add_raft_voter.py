from uuid import UUID

import pytest

from lograft.consensus import messages as core
from lograft.consensus.types import ReplicaKey, Voter, VoterEndpoint
from lograft.model.errors import ErrorCode
from lograft.model.types import Epoch, NodeId
from lograft.wire.messages.add_raft_voter import AddRaftVoterRequest, AddRaftVoterResponse, Listener
from tests.support.scenarios import scenario
from tests.unit.broker.bench import CLUSTER_ID, Bench, run


def request(**fields: object) -> AddRaftVoterRequest:
    fields_used = AddRaftVoterRequest(
        cluster_id=CLUSTER_ID,
        voter_id=4,
        voter_directory_id=UUID(int=4),
        listeners=[Listener(name="CONTROLLER", host="h", port=9093)],
    )
    for name, value in fields.items():
        setattr(fields_used, name, value)
    return fields_used


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (core.Error.NONE, ErrorCode.NONE),
        (core.Error.DUPLICATE_VOTER, ErrorCode.DUPLICATE_VOTER),
        (core.Error.NOT_LEADER, ErrorCode.NOT_LEADER_OR_FOLLOWER),
        (core.Error.STATIC_VOTERS, ErrorCode.UNSUPPORTED_VERSION),
        (core.Error.CHANGE_IN_PROGRESS, ErrorCode.REQUEST_TIMED_OUT),
    ],
)
@scenario(run)
async def test_errors_of_the_core_become_error_codes(
    bench: Bench, /, error: core.Error, code: ErrorCode
) -> None:
    bench.quorum.answer = core.VoterChangeResponse(sender=NodeId(1), epoch=Epoch(3), error=error)
    response = await bench.ask(request(), 1, AddRaftVoterResponse, role="controller")
    assert response.error_code == code
    assert (response.error_message is None) == (code == ErrorCode.NONE)
    voter = Voter(ReplicaKey(NodeId(4), UUID(int=4)), (VoterEndpoint("CONTROLLER", "h", 9093),))
    assert bench.quorum.asked == (core.AddVoterRequest(voter=voter), 0)


@pytest.mark.parametrize(
    ("invalid", "code"),
    [
        (request(cluster_id="other"), ErrorCode.INCONSISTENT_CLUSTER_ID),
        (request(voter_directory_id=UUID(int=0)), ErrorCode.INVALID_REQUEST),
        (request(voter_id=-1), ErrorCode.INVALID_REQUEST),
        (request(listeners=[]), ErrorCode.INVALID_REQUEST),
        (request(listeners=[Listener(name="A", host="h", port=1)]), ErrorCode.INVALID_REQUEST),
    ],
)
@scenario(run)
async def test_voter_without_the_quorum_listener_is_rejected(
    bench: Bench, /, invalid: AddRaftVoterRequest, code: ErrorCode
) -> None:
    response = await bench.ask(invalid, 0, AddRaftVoterResponse, role="controller")
    assert response.error_code == code
    assert bench.quorum.asked is None
