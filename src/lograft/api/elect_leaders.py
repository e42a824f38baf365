"""ElectLeaders, versions 0-2: leaders back to the preferred replicas, or leaders at any price.

v1: unclean elections. No topics in the request means all of them.
"""

from typing import Final

from lograft.api.context import Api, Context
from lograft.api.decisions import decide
from lograft.api.errors import code_of
from lograft.metadata.elect_leaders import elect_leaders
from lograft.model.errors import ErrorCode, LograftError
from lograft.wire.messages.elect_leaders import (
    ElectLeadersRequest,
    ElectLeadersResponse,
    PartitionResult,
    ReplicaElectionResult,
)

API: Final = Api(key=43, versions=range(3))


async def handle(context: Context, request: ElectLeadersRequest) -> ElectLeadersResponse:
    config = context.broker.config
    try:
        return await decide(
            context,
            lambda image: elect_leaders(image, request, config=config),
            timeout_ms=request.timeout_ms,
        )
    except LograftError as error:
        return error_response(request, code_of(error), str(error))


def error_response(
    request: ElectLeadersRequest, code: ErrorCode, message: str
) -> ElectLeadersResponse:
    """Version 0 has no code for the whole, so the partitions carry it if any are named."""
    return ElectLeadersResponse(
        error_code=ErrorCode.none if request.topic_partitions else code,
        replica_election_results=[
            ReplicaElectionResult(
                topic=asked.topic,
                partition_result=[
                    PartitionResult(partition_id=index, error_code=code, error_message=message)
                    for index in asked.partitions
                ],
            )
            for asked in request.topic_partitions or ()
        ],
    )
