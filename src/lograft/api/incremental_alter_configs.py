"""IncrementalAlterConfigs, versions 0-1: sets, deletes, appends to or subtracts from settings.

Configurations of topics, brokers ("" for all), client metrics and groups are stored in the metadata
log; a broker checks its own settings, and those of all brokers, before the controller stores them.
Log levels change only in this process, immediately, until its restart (KIP-412). Before the
subscription mode or group of a topic changes, all coordinators are queried for the groups that read
it. Lograft only: a coordinator claims a topic for a group (metadata/topic_claims.py).
"""

import logging
from typing import Final

from lograft.api.context import Api, Context
from lograft.api.decisions import decide
from lograft.api.forwarding import forward, must_forward
from lograft.api.own_resources import check_broker_values, check_may_alter, handle_each
from lograft.api.types import each_item, whole_request
from lograft.metadata.configs import (
    altered_values,
    incremental_alter_configs,
    topics_with_new_subscriptions,
)
from lograft.metadata.topic_claims import claim_topics
from lograft.metadata.types import ResourceType
from lograft.model.errors import ErrorCode, Rejected
from lograft.model.settings.keys import AlterOperation
from lograft.security.authorization import (
    CLUSTER_ACTION,
    CLUSTER_ALTER,
    CLUSTER_ALTER_CONFIGS,
    GROUP_ALTER_CONFIGS,
    TOPIC_ALTER_CONFIGS,
)
from lograft.wire.messages.incremental_alter_configs import (
    AlterConfigsResource,
    AlterConfigsResourceResponse,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)


def is_from_node(request: IncrementalAlterConfigsRequest) -> bool:
    """Returns whether a coordinator claims a topic for a group."""
    return request.claims


def changes_replicas(request: IncrementalAlterConfigsRequest) -> bool:
    """Returns whether the replication mode changes together with the number of replicas, which only
    Lograft has."""
    return request.replication_factor > 0


API: Final = Api(
    key=44,
    versions=range(2),
    needs=whole_request(CLUSTER_ACTION, when=is_from_node)
    + whole_request(CLUSTER_ALTER, when=changes_replicas)
    + each_item(TOPIC_ALTER_CONFIGS, CLUSTER_ALTER_CONFIGS, GROUP_ALTER_CONFIGS),
)

#: Kafka's level names; TRACE and FATAL map to the nearest of Python's.
LEVELS: Final = {
    "TRACE": logging.DEBUG,
    "DEBUG": logging.DEBUG,
    "INFO": logging.INFO,
    "WARN": logging.WARNING,
    "ERROR": logging.ERROR,
    "FATAL": logging.CRITICAL,
}
ROOT_LOGGER: Final = "root"


async def handle(
    context: Context, request: IncrementalAlterConfigsRequest
) -> IncrementalAlterConfigsResponse:
    def handle_here(resource: AlterConfigsResource) -> AlterConfigsResourceResponse | None:
        check_may_alter(context, resource.resource_type, resource.resource_name)
        if resource.resource_type == ResourceType.BROKER_LOGGER:
            return _alter_loggers(resource, request.validate_only)
        if resource.resource_type == ResourceType.BROKER:
            values = altered_values(context.shared.image, resource)
            named = [config.name for config in resource.configs]
            check_broker_values(context, resource.resource_name, values, named=named)
        return None

    async def decide_rest(rest: list[AlterConfigsResource]) -> list[AlterConfigsResourceResponse]:
        rest_request = IncrementalAlterConfigsRequest(
            resources=rest,
            validate_only=request.validate_only,
            replication_factor=request.replication_factor,
            partitions=request.partitions,
        )
        if must_forward(context):
            return (await forward(context, rest_request, IncrementalAlterConfigsResponse)).responses
        if request.claims:
            return (await decide(context, lambda image: claim_topics(image, request))).responses
        shared = context.shared
        users = await shared.topic_users.find(topics_with_new_subscriptions(rest_request))
        reply = await decide(
            context,
            lambda image: incremental_alter_configs(
                image, rest_request, config=shared.config, users=users
            ),
        )
        return reply.responses

    responses = await handle_each(
        request.resources, here=handle_here, decide=decide_rest, build_error=_error_response
    )
    return IncrementalAlterConfigsResponse(responses=responses)


def error_response(
    request: IncrementalAlterConfigsRequest, code: ErrorCode, message: str
) -> IncrementalAlterConfigsResponse:
    return IncrementalAlterConfigsResponse(
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


def _alter_loggers(
    resource: AlterConfigsResource, validate_only: bool
) -> AlterConfigsResourceResponse:
    levels = [
        (name, _level(name, config.config_operation, config.value))
        for config in resource.configs
        for name in [config.name]
    ]
    if not validate_only:
        for name, level in levels:
            logging.getLogger("" if name == ROOT_LOGGER else name).setLevel(level)
    return AlterConfigsResourceResponse(
        error_message=None,
        resource_type=resource.resource_type,
        resource_name=resource.resource_name,
    )


def _level(name: str, operation: int, value: str | None) -> int:
    # Only existing loggers: requests must not create an unlimited number of them.
    if name != ROOT_LOGGER and name not in logging.root.manager.loggerDict:
        raise Rejected(ErrorCode.INVALID_CONFIG, f"Logger {name[:200]!r} does not exist.")
    if operation == AlterOperation.DELETE:
        if name == ROOT_LOGGER:
            raise Rejected(
                ErrorCode.INVALID_REQUEST, "The root logger's level cannot be deleted, only set."
            )
        return logging.NOTSET
    if operation != AlterOperation.SET:
        raise Rejected(ErrorCode.INVALID_REQUEST, "A log level can only be set or deleted.")
    if value not in LEVELS:
        raise Rejected(
            ErrorCode.INVALID_CONFIG,
            f"A log level is one of {', '.join(LEVELS)}, not {str(value)[:50]!r}.",
        )
    return LEVELS[value]
