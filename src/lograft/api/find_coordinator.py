"""FindCoordinator, versions 0-6: COORDINATOR_NOT_AVAILABLE until there are coordinators.

v1: transactions (key type 1). v4: several keys in one request. v6: share groups (key type 2).
"""

from typing import Final

from lograft.api.context import Api, Context
from lograft.model.errors import ErrorCode
from lograft.model.types import NO_NODE
from lograft.wire.messages.find_coordinator import (
    Coordinator,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)

API: Final = Api(key=10, versions=range(7))

GROUP: Final = 0
TRANSACTION: Final = 1
SHARE: Final = 2
SHARE_SINCE: Final = 6
BATCHES_SINCE: Final = 4


def handle(context: Context, request: FindCoordinatorRequest) -> FindCoordinatorResponse:
    known = (
        (GROUP, TRANSACTION, SHARE) if context.api_version >= SHARE_SINCE else (GROUP, TRANSACTION)
    )
    if request.key_type in known:
        code = ErrorCode.coordinator_not_available
        message = "This broker has no coordinators yet."
    else:
        code = ErrorCode.invalid_request
        message = f"There is no coordinator of type {request.key_type}."
    if context.api_version < BATCHES_SINCE:
        return FindCoordinatorResponse(
            error_code=code, error_message=message, node_id=NO_NODE, host="", port=-1
        )
    return FindCoordinatorResponse(
        coordinators=[
            Coordinator(
                key=key, node_id=NO_NODE, host="", port=-1, error_code=code, error_message=message
            )
            for key in request.coordinator_keys
        ]
    )
