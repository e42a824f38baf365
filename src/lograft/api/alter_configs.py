"""AlterConfigs, versions 0-2: replaces all that was set for a resource. Deprecated in Kafka, since
two administrators can undo each other's changes; IncrementalAlterConfigs is the better way.
"""

from typing import Final

from lograft.api.context import Api, Context
from lograft.api.decisions import decide
from lograft.api.errors import code_of
from lograft.api.forwarding import forward, must_forward
from lograft.api.own_resources import check_may_alter
from lograft.metadata.configs import alter_configs
from lograft.metadata.errors import Refused
from lograft.model.errors import LograftError
from lograft.wire.messages.alter_configs import (
    AlterConfigsRequest,
    AlterConfigsResource,
    AlterConfigsResourceResponse,
    AlterConfigsResponse,
)

API: Final = Api(key=33, versions=range(3))


async def handle(context: Context, request: AlterConfigsRequest) -> AlterConfigsResponse:
    refused: dict[int, AlterConfigsResourceResponse] = {}
    for number, resource in enumerate(request.resources):
        try:
            check_may_alter(context, resource.resource_type, resource.resource_name)
        except Refused as refusal:
            refused[number] = _refused(resource, refusal.code, refusal.message)
    rest = AlterConfigsRequest(
        resources=[one for n, one in enumerate(request.resources) if n not in refused],
        validate_only=request.validate_only,
    )
    decided = iter(await _decide(context, rest) if rest.resources else [])
    return AlterConfigsResponse(
        responses=[refused.get(n) or next(decided) for n in range(len(request.resources))]
    )


async def _decide(
    context: Context, request: AlterConfigsRequest
) -> list[AlterConfigsResourceResponse]:
    """A response for each resource, in their order."""
    try:
        if must_forward(context):
            return (await forward(context, request, AlterConfigsResponse)).responses
        reply = await decide(
            context, lambda image: alter_configs(image, request, config=context.broker.config)
        )
        return reply.responses
    except LograftError as error:
        code, message = code_of(error), str(error)
        return [_refused(resource, code, message) for resource in request.resources]


def _refused(
    resource: AlterConfigsResource, code: int, message: str
) -> AlterConfigsResourceResponse:
    return AlterConfigsResourceResponse(
        error_code=code,
        error_message=message,
        resource_type=resource.resource_type,
        resource_name=resource.resource_name,
    )
