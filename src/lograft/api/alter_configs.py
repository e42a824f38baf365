"""AlterConfigs, versions 0-2: replaces all that was set for a resource. Deprecated in Kafka, since
two administrators can undo each other's changes; IncrementalAlterConfigs is the better way.
"""

from typing import Final

from lograft.api.context import Api, Context
from lograft.api.decisions import decide
from lograft.api.errors import code_of
from lograft.metadata.configs import alter_configs
from lograft.model.errors import LograftError
from lograft.wire.messages.alter_configs import (
    AlterConfigsRequest,
    AlterConfigsResourceResponse,
    AlterConfigsResponse,
)

API: Final = Api(key=33, versions=range(3))


async def handle(context: Context, request: AlterConfigsRequest) -> AlterConfigsResponse:
    try:
        return await decide(
            context, lambda image: alter_configs(image, request, config=context.broker.config)
        )
    except LograftError as error:
        code, message = code_of(error), str(error)
        return AlterConfigsResponse(
            responses=[
                AlterConfigsResourceResponse(
                    error_code=code,
                    error_message=message,
                    resource_type=resource.resource_type,
                    resource_name=resource.resource_name,
                )
                for resource in request.resources
            ]
        )
