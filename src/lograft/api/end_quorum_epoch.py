"""EndQuorumEpoch, versions 0-1, controller listener: the leader of the metadata quorum resigns and
names its preferred successors. v1: with their directory ids (KIP-853).
"""

from typing import Final

from lograft.api.context import Api, Context
from lograft.api.quorum import has_foreign_cluster_id, leader_of
from lograft.api.types import whole_request
from lograft.broker.quorum.incoming_rpcs import end_from_wire, end_to_wire
from lograft.consensus import messages as core
from lograft.model.errors import ErrorCode
from lograft.security.authorization import CLUSTER_ACTION
from lograft.wire.messages.end_quorum_epoch import EndQuorumEpochRequest, EndQuorumEpochResponse

API: Final = Api(key=54, versions=range(2), needs=whole_request(CLUSTER_ACTION))


async def handle(context: Context, request: EndQuorumEpochRequest) -> EndQuorumEpochResponse:
    if has_foreign_cluster_id(context, request.cluster_id):
        return EndQuorumEpochResponse(error_code=ErrorCode.INCONSISTENT_CLUSTER_ID)
    response = await context.shared.quorum.ask(end_from_wire(request))
    assert isinstance(response, core.EndQuorumEpochResponse)
    return end_to_wire(response, leader_of(context))
