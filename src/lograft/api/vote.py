"""Vote, versions 0-2, controller listener: a candidate for leader of the metadata quorum requests
this node's vote. v1: the voter's directory id (KIP-853). v2: pre-votes (KIP-996).
"""

from typing import Final

from lograft.api.context import Api, Context
from lograft.api.quorum import has_foreign_cluster_id, leader_of
from lograft.api.types import whole_request
from lograft.broker.quorum.incoming_rpcs import vote_from_wire, vote_to_wire
from lograft.consensus import messages as core
from lograft.model.errors import ErrorCode
from lograft.security.authorization import CLUSTER_ACTION
from lograft.wire.messages.vote import VoteRequest, VoteResponse

API: Final = Api(key=52, versions=range(3), needs=whole_request(CLUSTER_ACTION))


async def handle(context: Context, request: VoteRequest) -> VoteResponse:
    if has_foreign_cluster_id(context, request.cluster_id):
        return VoteResponse(error_code=ErrorCode.INCONSISTENT_CLUSTER_ID)
    quorum = context.shared.quorum
    response = await quorum.ask(vote_from_wire(request, quorum.me))
    assert isinstance(response, core.VoteResponse)
    return vote_to_wire(response, leader_of(context))
