"""AddRaftVoter, versions 0-1: a controller becomes a voter of the metadata quorum (KIP-853).

The leader waits until the new voter has caught up. It responds when the new voter set is committed,
even where v1 would accept an earlier response (ack_when_committed=false).
"""

from typing import Final

from lograft.api.context import Api, Context
from lograft.api.quorum import error_of, has_foreign_cluster_id, voter_endpoints
from lograft.api.types import whole_request
from lograft.consensus.messages import AddVoterRequest
from lograft.consensus.types import ReplicaKey, Voter
from lograft.model.errors import ErrorCode, InvalidInput
from lograft.model.types import ZERO_UUID, NodeId
from lograft.security.authorization import CLUSTER_ALTER
from lograft.wire.messages.add_raft_voter import AddRaftVoterRequest, AddRaftVoterResponse

API: Final = Api(key=80, versions=range(2), needs=whole_request(CLUSTER_ALTER))


async def handle(context: Context, request: AddRaftVoterRequest) -> AddRaftVoterResponse:
    if has_foreign_cluster_id(context, request.cluster_id):
        return AddRaftVoterResponse(error_code=ErrorCode.INCONSISTENT_CLUSTER_ID)
    if request.voter_id < 0 or request.voter_directory_id == ZERO_UUID:
        raise InvalidInput("A voter needs an id and a directory id.")
    voter = Voter(
        ReplicaKey(NodeId(request.voter_id), request.voter_directory_id),
        voter_endpoints(context, request.listeners),
    )
    code, message = error_of(await context.shared.quorum.ask(AddVoterRequest(voter=voter)))
    return AddRaftVoterResponse(error_code=code, error_message=message)
