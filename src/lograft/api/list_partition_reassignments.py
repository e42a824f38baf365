"""ListPartitionReassignments, version 0: the reassignments in progress.

The controller responds after all its earlier decisions are committed. No topics: all of them.
"""

from typing import Final

from lograft.api.context import Api, Context
from lograft.api.decisions import decide
from lograft.api.errors import code_of
from lograft.api.types import whole_request
from lograft.metadata.reassignment import list_reassignments
from lograft.metadata.types import ControllerResult
from lograft.model.errors import LograftError
from lograft.security.authorization import CLUSTER_DESCRIBE
from lograft.wire.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
)

API: Final = Api(key=46, versions=range(1), needs=whole_request(CLUSTER_DESCRIBE))


async def handle(
    context: Context, request: ListPartitionReassignmentsRequest
) -> ListPartitionReassignmentsResponse:
    try:
        return await decide(
            context,
            lambda image: ControllerResult((), list_reassignments(image, request)),
            timeout_ms=request.timeout_ms,
        )
    except LograftError as error:
        return ListPartitionReassignmentsResponse(
            error_code=code_of(error), error_message=str(error)
        )
