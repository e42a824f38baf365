"""RemoveRaftVoter, version 0: removes a voter from the metadata quorum (KIP-853).

Responds when the new voter set is committed; a leader that removes itself resigns then.
"""

from typing import Final

from lograft.api.context import Api, Context
from lograft.api.quorum import error_of, has_foreign_cluster_id
from lograft.api.types import whole_request
from lograft.consensus.messages import RemoveVoterRequest
from lograft.consensus.types import ReplicaKey
from lograft.model.errors import ErrorCode
from lograft.model.types import NodeId
from lograft.security.authorization import CLUSTER_ALTER
from lograft.wire.messages.remove_raft_voter import RemoveRaftVoterRequest, RemoveRaftVoterResponse

API: Final = Api(key=81, versions=range(1), needs=whole_request(CLUSTER_ALTER))


async def handle(context: Context, request: RemoveRaftVoterRequest) -> RemoveRaftVoterResponse:
    if has_foreign_cluster_id(context, request.cluster_id):
        return RemoveRaftVoterResponse(error_code=ErrorCode.INCONSISTENT_CLUSTER_ID)
    key = ReplicaKey(NodeId(request.voter_id), request.voter_directory_id)
    code, message = error_of(await context.shared.quorum.ask(RemoveVoterRequest(key=key)))
    return RemoveRaftVoterResponse(error_code=code, error_message=message)
