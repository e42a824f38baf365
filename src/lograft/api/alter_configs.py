"""AlterConfigs, versions 0-2: replaces all that was set for a resource. Deprecated in Kafka, since
two administrators can undo each other's changes; IncrementalAlterConfigs is the better way.
"""

from typing import Final

from lograft.api.context import Api, Context
from lograft.api.decisions import decide
from lograft.api.forwarding import forward, must_forward
from lograft.api.own_resources import answer_each, check_may_alter
from lograft.metadata.configs import alter_configs, topics_with_new_subscriptions
from lograft.wire.messages.alter_configs import (
    AlterConfigsRequest,
    AlterConfigsResource,
    AlterConfigsResourceResponse,
    AlterConfigsResponse,
)

API: Final = Api(key=33, versions=range(3))


async def handle(context: Context, request: AlterConfigsRequest) -> AlterConfigsResponse:
    async def decide_rest(rest: list[AlterConfigsResource]) -> list[AlterConfigsResourceResponse]:
        asked = AlterConfigsRequest(resources=rest, validate_only=request.validate_only)
        if must_forward(context):
            return (await forward(context, asked, AlterConfigsResponse)).responses
        broker = context.broker
        users = await broker.claims.users(topics_with_new_subscriptions(asked))
        reply = await decide(
            context,
            lambda image: alter_configs(image, asked, config=broker.config, users=users),
        )
        return reply.responses

    responses = await answer_each(
        request.resources,
        here=lambda one: check_may_alter(context, one.resource_type, one.resource_name),
        decide=decide_rest,
        refused=_refused,
    )
    return AlterConfigsResponse(responses=responses)


def _refused(
    resource: AlterConfigsResource, code: int, message: str
) -> AlterConfigsResourceResponse:
    return AlterConfigsResourceResponse(
        error_code=code,
        error_message=message,
        resource_type=resource.resource_type,
        resource_name=resource.resource_name,
    )
