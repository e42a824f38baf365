"""UpdateRaftVoter, version 0, controller listener: a voter of the metadata quorum reports its
endpoints and its supported versions of kraft.version (KIP-853).
"""

from typing import Final

from lograft.api.context import Api, Context
from lograft.api.quorum import error_of, has_foreign_cluster_id, voter_endpoints
from lograft.api.types import whole_request
from lograft.consensus.messages import UpdateVoterRequest
from lograft.consensus.types import ReplicaKey, Voter
from lograft.model.errors import ErrorCode
from lograft.model.types import NodeId
from lograft.security.authorization import CLUSTER_ACTION
from lograft.wire.messages.update_raft_voter import (
    CurrentLeader,
    UpdateRaftVoterRequest,
    UpdateRaftVoterResponse,
)

API: Final = Api(key=82, versions=range(1), needs=whole_request(CLUSTER_ACTION))


async def handle(context: Context, request: UpdateRaftVoterRequest) -> UpdateRaftVoterResponse:
    quorum = context.shared.quorum
    if has_foreign_cluster_id(context, request.cluster_id):
        return UpdateRaftVoterResponse(error_code=ErrorCode.INCONSISTENT_CLUSTER_ID)
    epoch = request.current_leader_epoch
    if epoch != quorum.epoch:
        is_old = epoch < quorum.epoch
        code = ErrorCode.FENCED_LEADER_EPOCH if is_old else ErrorCode.UNKNOWN_LEADER_EPOCH
    else:
        versions = request.kraft_version_feature
        voter = Voter(
            ReplicaKey(NodeId(request.voter_id), request.voter_directory_id),
            voter_endpoints(context, request.listeners),
            versions.min_supported_version,
            versions.max_supported_version,
        )
        code, _ = error_of(await quorum.ask(UpdateVoterRequest(voter=voter)))
    leader = CurrentLeader(leader_id=quorum.leader, leader_epoch=quorum.epoch)
    address = quorum.leader_endpoint()
    if address is not None:
        leader.host, leader.port = address.host, address.port
    return UpdateRaftVoterResponse(error_code=code, current_leader=leader)
