"""AlterPartitionReassignments, versions 0-1: starts or cancels reassignments of partitions.

Responds when the reassignment has started; ListPartitionReassignments shows those in progress. v1:
whether the replication factor may change.
"""

from typing import Final

from lograft.api.context import Api, Context
from lograft.api.decisions import decide
from lograft.api.errors import code_of
from lograft.api.types import whole_request
from lograft.metadata.reassignment import alter_reassignments
from lograft.model.errors import LograftError
from lograft.security.authorization import CLUSTER_ALTER
from lograft.wire.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
)

API: Final = Api(key=45, versions=range(2), needs=whole_request(CLUSTER_ALTER))


async def handle(
    context: Context, request: AlterPartitionReassignmentsRequest
) -> AlterPartitionReassignmentsResponse:
    config = context.shared.config
    try:
        return await decide(
            context,
            lambda image: alter_reassignments(image, request, config=config),
            timeout_ms=request.timeout_ms,
        )
    except LograftError as error:
        return AlterPartitionReassignmentsResponse(
            error_code=code_of(error), error_message=str(error)
        )
