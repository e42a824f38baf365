"""AlterPartition, versions 2-3, controller listener: a leader proposes a new ISR.

v3: with the broker epoch (registration) of every member.
"""

from typing import Final

from lograft.api.context import Api, Context
from lograft.api.decisions import decide
from lograft.api.errors import code_of
from lograft.api.types import whole_request
from lograft.metadata.alter_partition import alter_partition
from lograft.model.errors import LograftError
from lograft.security.authorization import CLUSTER_ACTION
from lograft.wire.messages.alter_partition import AlterPartitionRequest, AlterPartitionResponse

API: Final = Api(key=56, versions=range(2, 4), needs=whole_request(CLUSTER_ACTION))


async def handle(context: Context, request: AlterPartitionRequest) -> AlterPartitionResponse:
    config, version = context.shared.config, context.api_version
    try:
        return await decide(
            context, lambda image: alter_partition(image, request, version, config=config)
        )
    except LograftError as error:
        return AlterPartitionResponse(error_code=code_of(error))
