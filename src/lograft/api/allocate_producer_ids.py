"""AllocateProducerIds, version 0, controller listener: gives a broker a block of producer ids."""

from typing import Final

from lograft.api.context import Api, Context
from lograft.api.decisions import decide
from lograft.api.errors import code_of
from lograft.api.types import whole_request
from lograft.metadata.producer_ids import allocate_producer_ids
from lograft.model.errors import LograftError
from lograft.security.authorization import CLUSTER_ACTION
from lograft.wire.messages.allocate_producer_ids import (
    AllocateProducerIdsRequest,
    AllocateProducerIdsResponse,
)

API: Final = Api(key=67, versions=range(1), needs=whole_request(CLUSTER_ACTION))


async def handle(
    context: Context, request: AllocateProducerIdsRequest
) -> AllocateProducerIdsResponse:
    try:
        return await decide(context, lambda image: allocate_producer_ids(image, request))
    except LograftError as error:
        return AllocateProducerIdsResponse(error_code=code_of(error))
