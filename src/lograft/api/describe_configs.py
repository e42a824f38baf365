"""DescribeConfigs, versions 1-4: configurations with their values and the source of each value.

Topics, brokers (this one, or "" for the defaults of the whole cluster), the broker's loggers,
groups and client metrics. Passwords are never returned. v1: sources and synonyms. v3: types, and
documentation on request. v4, Lograft only: dynamic values that the broker cannot apply.
"""

import logging
from collections.abc import Callable, Iterable
from typing import Final

from lograft.api.context import Api, Context
from lograft.api.own_resources import check_is_own, check_may_describe
from lograft.api.types import each_item
from lograft.broker.shared_services import SharedServices
from lograft.metadata.resource_configs import (
    client_metrics_documentation,
    describe_client_metrics,
    describe_group,
    group_documentation,
)
from lograft.metadata.topic_names import check_topic_name
from lograft.metadata.types import ResourceType
from lograft.model.errors import ErrorCode, Rejected
from lograft.model.settings.keys import ConfigSource
from lograft.model.settings.resolution import (
    ConfigEntry,
    broker_documentation,
    describe_broker,
    describe_cluster_default,
    describe_loggers,
    describe_topic,
    topic_documentation,
)
from lograft.security.authorization import (
    CLUSTER_DESCRIBE_CONFIGS,
    GROUP_DESCRIBE_CONFIGS,
    TOPIC_DESCRIBE_CONFIGS,
)
from lograft.wire.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
    DescribeConfigsSynonym,
)

API: Final = Api(
    key=32,
    versions=range(1, 5),
    needs=each_item(TOPIC_DESCRIBE_CONFIGS, CLUSTER_DESCRIBE_CONFIGS, GROUP_DESCRIBE_CONFIGS),
)
_LEVELS: Final = {
    ConfigSource.DYNAMIC_BROKER: "of this broker",
    ConfigSource.DYNAMIC_DEFAULT_BROKER: "of all brokers",
}

DOCUMENTATION: Final[dict[ResourceType, Callable[[str], str | None]]] = {
    ResourceType.TOPIC: topic_documentation,
    ResourceType.BROKER: broker_documentation,
    ResourceType.BROKER_LOGGER: lambda name: None,
    ResourceType.CLIENT_METRICS: client_metrics_documentation,
    ResourceType.GROUP: group_documentation,
}


def handle(context: Context, request: DescribeConfigsRequest) -> DescribeConfigsResponse:
    results = []
    # Each resource once: a small request that repeats the broker could produce megabytes.
    resources = {
        (resource.resource_type, resource.resource_name): resource for resource in request.resources
    }
    for resource in resources.values():
        result = DescribeConfigsResult(
            resource_type=resource.resource_type,
            resource_name=resource.resource_name,
            error_message=None,
        )
        try:
            check_may_describe(context, resource.resource_type, resource.resource_name)
            check_is_own(context, resource.resource_type, resource.resource_name)
            entries = _describe(context.shared, resource)
            result.configs = [_build_result(entry, resource, request) for entry in entries]
            if resource.resource_type == ResourceType.BROKER and resource.resource_name:
                result.skipped_values = [
                    f"{value.name} ({_LEVELS[value.source]}): {value.reason}"
                    for value in context.shared.metadata.skipped_values
                ]
                for find_failures in context.shared.metadata.apply_failures:
                    result.skipped_values += find_failures()
        except Rejected as error:
            result.error_code = error.code
            result.error_message = error.message
        results.append(result)
    return DescribeConfigsResponse(results=results)


def error_response(
    request: DescribeConfigsRequest, code: ErrorCode, message: str
) -> DescribeConfigsResponse:
    return DescribeConfigsResponse(
        results=[
            DescribeConfigsResult(
                error_code=code,
                error_message=message,
                resource_type=resource.resource_type,
                resource_name=resource.resource_name,
            )
            for resource in request.resources
        ]
    )


def _describe(shared: SharedServices, resource: DescribeConfigsResource) -> Iterable[ConfigEntry]:
    # As in Kafka, no list and an empty list both select all settings.
    names = frozenset(resource.configuration_keys or ()) or None
    name = resource.resource_name
    match resource.resource_type:
        case ResourceType.TOPIC:
            check_topic_name(name)
            if name not in shared.image.topic_ids:
                raise Rejected(
                    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"Topic '{name}' does not exist."
                )
            overrides = shared.image.config_of(ResourceType.TOPIC, name)
            return describe_topic(overrides, shared.config, names=names)
        case ResourceType.BROKER if not name:
            default = shared.image.config_of(ResourceType.BROKER, "")
            return describe_cluster_default(default, names=names)
        case ResourceType.BROKER:
            return describe_broker(shared.config, names=names)
        case ResourceType.BROKER_LOGGER:
            return describe_loggers(_logger_levels(), names=names)
        case ResourceType.CLIENT_METRICS if name:
            overrides = shared.image.config_of(ResourceType.CLIENT_METRICS, name)
            return describe_client_metrics(overrides, names=names)
        case ResourceType.GROUP if name:
            overrides = shared.image.config_of(ResourceType.GROUP, name)
            return describe_group(overrides, shared.config, names=names)
        case _:
            raise Rejected(
                ErrorCode.INVALID_REQUEST,
                f"No settings exist for resource type {resource.resource_type}, name '{name}'.",
            )


def _logger_levels() -> dict[str, str]:
    root = logging.getLogger()
    levels = {"root": logging.getLevelName(root.getEffectiveLevel())}
    for name, logger in list(logging.root.manager.loggerDict.items()):
        if name.startswith("lograft") and isinstance(logger, logging.Logger):
            levels[name] = logging.getLevelName(logger.getEffectiveLevel())
    return levels


def _build_result(
    entry: ConfigEntry, resource: DescribeConfigsResource, request: DescribeConfigsRequest
) -> DescribeConfigsResourceResult:
    result = DescribeConfigsResourceResult(
        name=entry.name,
        value=entry.value,
        read_only=entry.read_only,
        config_source=entry.source,
        is_sensitive=entry.is_sensitive,
        config_type=entry.type,
        documentation=None,
    )
    if request.include_synonyms:
        result.synonyms = [
            DescribeConfigsSynonym(name=synonym.name, value=synonym.value, source=synonym.source)
            for synonym in entry.synonyms
        ]
    if request.include_documentation:
        result.documentation = DOCUMENTATION[ResourceType(resource.resource_type)](entry.name)
    return result
