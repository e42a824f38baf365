"""BeginQuorumEpoch, versions 0-1, controller listener: the new leader of the metadata quorum
announces itself. v1: the voter's directory id and the leader's endpoints (KIP-853).
"""

from typing import Final

from lograft.api.context import Api, Context
from lograft.api.quorum import has_foreign_cluster_id, leader_of, learn_leader
from lograft.api.types import whole_request
from lograft.broker.quorum.incoming_rpcs import begin_from_wire, begin_to_wire
from lograft.consensus import messages as core
from lograft.model.errors import ErrorCode
from lograft.security.authorization import CLUSTER_ACTION
from lograft.wire.messages.begin_quorum_epoch import (
    BeginQuorumEpochRequest,
    BeginQuorumEpochResponse,
)

API: Final = Api(key=53, versions=range(2), needs=whole_request(CLUSTER_ACTION))


async def handle(context: Context, request: BeginQuorumEpochRequest) -> BeginQuorumEpochResponse:
    if has_foreign_cluster_id(context, request.cluster_id):
        return BeginQuorumEpochResponse(error_code=ErrorCode.INCONSISTENT_CLUSTER_ID)
    quorum = context.shared.quorum
    begin = begin_from_wire(request, quorum.me)
    if begin.epoch >= quorum.epoch:
        endpoints = [
            (endpoint.name, endpoint.host, endpoint.port) for endpoint in request.leader_endpoints
        ]
        learn_leader(context, begin.sender.node_id, endpoints)
    response = await quorum.ask(begin)
    assert isinstance(response, core.BeginQuorumEpochResponse)
    return begin_to_wire(response, leader_of(context))
