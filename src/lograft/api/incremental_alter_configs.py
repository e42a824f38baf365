"""IncrementalAlterConfigs, versions 0-1: sets, deletes, extends or shortens single settings.

Topics, brokers ("" for all), client metrics and groups change in the metadata log. Loggers change
in this process only, at once, and forget at the next start (KIP-412).
"""

import logging
from typing import Final

from lograft.api.context import Api, Context
from lograft.api.decisions import decide
from lograft.api.errors import code_of
from lograft.api.forwarding import forward, must_forward
from lograft.api.own_resources import check_may_alter
from lograft.metadata.configs import incremental_alter_configs
from lograft.metadata.errors import Refused
from lograft.metadata.types import ResourceType
from lograft.model.config_keys import AlterOperation
from lograft.model.errors import ErrorCode, LograftError
from lograft.wire.messages.incremental_alter_configs import (
    AlterConfigsResource,
    AlterConfigsResourceResponse,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)

API: Final = Api(key=44, versions=range(2))

#: Kafka's names of levels; TRACE and FATAL have the nearest of Python's.
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
    answered: dict[int, AlterConfigsResourceResponse] = {}
    for number, resource in enumerate(request.resources):
        try:
            check_may_alter(context, resource.resource_type, resource.resource_name)
            if resource.resource_type == ResourceType.broker_logger:
                answered[number] = _alter_loggers(resource, request.validate_only)
        except Refused as refusal:
            answered[number] = _refused(resource, refusal.code, refusal.message)
    rest = IncrementalAlterConfigsRequest(
        resources=[one for n, one in enumerate(request.resources) if n not in answered],
        validate_only=request.validate_only,
    )
    decided = iter(await _decide(context, rest) if rest.resources else [])
    return IncrementalAlterConfigsResponse(
        responses=[answered.get(n) or next(decided) for n in range(len(request.resources))]
    )


async def _decide(
    context: Context, request: IncrementalAlterConfigsRequest
) -> list[AlterConfigsResourceResponse]:
    """A response for each resource, in their order."""
    try:
        if must_forward(context):
            return (await forward(context, request, IncrementalAlterConfigsResponse)).responses
        reply = await decide(
            context,
            lambda image: incremental_alter_configs(image, request, config=context.broker.config),
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


def _alter_loggers(
    resource: AlterConfigsResource, validate_only: bool
) -> AlterConfigsResourceResponse:
    wanted = [
        (name, _level(name, config.config_operation, config.value))
        for config in resource.configs
        for name in [config.name]
    ]
    if not validate_only:
        for name, level in wanted:
            logging.getLogger("" if name == ROOT_LOGGER else name).setLevel(level)
    return AlterConfigsResourceResponse(
        error_message=None,
        resource_type=resource.resource_type,
        resource_name=resource.resource_name,
    )


def _level(name: str, operation: int, value: str | None) -> int:
    # Only loggers that exist: names from outside must not make new ones without end.
    if name != ROOT_LOGGER and name not in logging.root.manager.loggerDict:
        raise Refused(ErrorCode.invalid_config, f"There is no logger {name[:200]!r}.")
    if operation == AlterOperation.DELETE:
        if name == ROOT_LOGGER:
            raise Refused(
                ErrorCode.invalid_request, "The root logger's level cannot be deleted, only set."
            )
        return logging.NOTSET
    if operation != AlterOperation.SET:
        raise Refused(ErrorCode.invalid_request, "A logger's level can be set or deleted only.")
    if value not in LEVELS:
        raise Refused(
            ErrorCode.invalid_config,
            f"A level is one of {', '.join(LEVELS)}, not {str(value)[:50]!r}.",
        )
    return LEVELS[value]
