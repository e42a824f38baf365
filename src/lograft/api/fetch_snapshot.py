"""FetchSnapshot, versions 0-1, controller listener: a chunk of a snapshot of the metadata log, for
a replica that is behind the log start offset (KIP-630). v1: the replica's directory id.
"""

from typing import Final

from lograft.api.context import Api, Context
from lograft.api.quorum import has_foreign_cluster_id, leader_of
from lograft.api.types import whole_request
from lograft.broker.quorum.incoming_rpcs import fetch_snapshot_from_wire, fetch_snapshot_to_wire
from lograft.consensus import messages as core
from lograft.model.errors import ErrorCode
from lograft.security.authorization import CLUSTER_ACTION
from lograft.wire.messages.fetch_snapshot import FetchSnapshotRequest, FetchSnapshotResponse

API: Final = Api(key=59, versions=range(2), needs=whole_request(CLUSTER_ACTION))


async def handle(context: Context, request: FetchSnapshotRequest) -> FetchSnapshotResponse:
    if has_foreign_cluster_id(context, request.cluster_id):
        return FetchSnapshotResponse(error_code=ErrorCode.INCONSISTENT_CLUSTER_ID)
    shared = context.shared
    bytes_max = min(request.max_bytes, shared.config.controller_quorum_fetch_snapshot_max_bytes)
    response = await shared.quorum.ask(
        fetch_snapshot_from_wire(request), bytes_max=max(bytes_max, 1)
    )
    assert isinstance(response, core.FetchSnapshotResponse)
    return fetch_snapshot_to_wire(response, leader_of(context))
