"""AddRaftVoter, versions 0-1: a controller becomes a voter of the metadata quorum (KIP-853).

It must have caught up first: the leader waits for that. Answered when the new set is committed,
also where v1 would be content with less (ack_when_committed=false).
"""

from typing import Final

from lograft.api.context import Api, Context
from lograft.api.quorum import is_of_other_cluster, refusal, voter_endpoints
from lograft.api.types import whole_request
from lograft.consensus.messages import AddVoterRequest
from lograft.consensus.types import ReplicaKey, Voter
from lograft.model.errors import ErrorCode, InvalidInput
from lograft.model.types import ZERO_UUID, NodeId
from lograft.security.authorization import CLUSTER_ALTER
from lograft.wire.messages.add_raft_voter import AddRaftVoterRequest, AddRaftVoterResponse

API: Final = Api(key=80, versions=range(2), needs=whole_request(CLUSTER_ALTER))


async def handle(context: Context, request: AddRaftVoterRequest) -> AddRaftVoterResponse:
    if is_of_other_cluster(context, request.cluster_id):
        return AddRaftVoterResponse(error_code=ErrorCode.INCONSISTENT_CLUSTER_ID)
    if request.voter_id < 0 or request.voter_directory_id == ZERO_UUID:
        raise InvalidInput("a voter has an id and a directory id")
    voter = Voter(
        ReplicaKey(NodeId(request.voter_id), request.voter_directory_id),
        voter_endpoints(context, request.listeners),
    )
    code, sentence = refusal(await context.shared.quorum.ask(AddVoterRequest(voter=voter)))
    return AddRaftVoterResponse(error_code=code, error_message=sentence)
