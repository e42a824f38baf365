"""AlterConfigs, versions 0-2: replaces the whole configuration of a resource. Deprecated in Kafka
in favor of IncrementalAlterConfigs, because two administrators can undo each other's changes.
"""

from typing import Final

from lograft.api.context import Api, Context
from lograft.api.decisions import decide
from lograft.api.forwarding import forward, must_forward
from lograft.api.own_resources import check_broker_values, check_may_alter, handle_each
from lograft.api.types import each_item
from lograft.metadata.configs import (
    alter_configs,
    replaced_values,
    topics_with_new_subscriptions,
)
from lograft.metadata.types import ResourceType
from lograft.model.errors import ErrorCode
from lograft.security.authorization import (
    CLUSTER_ALTER_CONFIGS,
    GROUP_ALTER_CONFIGS,
    TOPIC_ALTER_CONFIGS,
)
from lograft.wire.messages.alter_configs import (
    AlterConfigsRequest,
    AlterConfigsResource,
    AlterConfigsResourceResponse,
    AlterConfigsResponse,
)

API: Final = Api(
    key=33,
    versions=range(3),
    needs=each_item(TOPIC_ALTER_CONFIGS, CLUSTER_ALTER_CONFIGS, GROUP_ALTER_CONFIGS),
)


async def handle(context: Context, request: AlterConfigsRequest) -> AlterConfigsResponse:
    async def decide_rest(rest: list[AlterConfigsResource]) -> list[AlterConfigsResourceResponse]:
        rest_request = AlterConfigsRequest(resources=rest, validate_only=request.validate_only)
        if must_forward(context):
            return (await forward(context, rest_request, AlterConfigsResponse)).responses
        shared = context.shared
        users = await shared.topic_users.find(topics_with_new_subscriptions(rest_request))
        reply = await decide(
            context,
            lambda image: alter_configs(image, rest_request, config=shared.config, users=users),
        )
        return reply.responses

    def check_here(resource: AlterConfigsResource) -> None:
        check_may_alter(context, resource.resource_type, resource.resource_name)
        if resource.resource_type == ResourceType.BROKER:
            values = replaced_values(resource)
            check_broker_values(context, resource.resource_name, values, named=list(values))

    responses = await handle_each(
        request.resources,
        here=check_here,
        decide=decide_rest,
        build_error=_error_response,
    )
    return AlterConfigsResponse(responses=responses)


def error_response(
    request: AlterConfigsRequest, code: ErrorCode, message: str
) -> AlterConfigsResponse:
    return AlterConfigsResponse(
        responses=[_error_response(resource, code, message) for resource in request.resources]
    )


def _error_response(
    resource: AlterConfigsResource, code: int, message: str
) -> AlterConfigsResourceResponse:
    return AlterConfigsResourceResponse(
        error_code=code,
        error_message=message,
        resource_type=resource.resource_type,
        resource_name=resource.resource_name,
    )
