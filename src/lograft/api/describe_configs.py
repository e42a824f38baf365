"""DescribeConfigs, versions 1-4: settings with their values and where each comes from.

Topics, brokers (this one, or "" for the defaults of the whole cluster) and the broker's loggers;
client metrics and groups hold only what was set for them. Passwords are never shown. v1: sources
and synonyms. v3: types, and documentation on request.
"""

import logging
from collections.abc import Collection, Iterable
from typing import Final

from lograft.api.context import Api, Context
from lograft.broker.broker import Broker
from lograft.metadata.errors import Refused
from lograft.metadata.names import check_topic_name
from lograft.metadata.types import ResourceType
from lograft.model.config_keys import ConfigSource
from lograft.model.config_resolution import (
    ConfigEntry,
    describe_broker,
    describe_cluster_default,
    describe_loggers,
    describe_topic,
    documentation,
)
from lograft.model.errors import ErrorCode
from lograft.wire.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
    DescribeConfigsSynonym,
)

API: Final = Api(key=32, versions=range(1, 5))

CLIENT_METRICS_CONFIG: Final = 7
GROUP_CONFIG: Final = 8


def handle(context: Context, request: DescribeConfigsRequest) -> DescribeConfigsResponse:
    results = []
    # Each once: a few bytes that name the broker a thousand times would ask for megabytes.
    wanted = {(one.resource_type, one.resource_name): one for one in request.resources}
    for resource in wanted.values():
        result = DescribeConfigsResult(
            resource_type=resource.resource_type,
            resource_name=resource.resource_name,
            error_message=None,
        )
        try:
            entries = _describe(context.broker, resource)
            result.configs = [_shown(entry, resource, request) for entry in entries]
        except Refused as refusal:
            result.error_code = refusal.code
            result.error_message = refusal.message
        results.append(result)
    return DescribeConfigsResponse(results=results)


def _describe(broker: Broker, resource: DescribeConfigsResource) -> Iterable[ConfigEntry]:
    keys = resource.configuration_keys
    names = None if keys is None else frozenset(keys)
    name = resource.resource_name
    match resource.resource_type:
        case ResourceType.topic:
            check_topic_name(name)
            if name not in broker.image.topic_ids:
                raise Refused(ErrorCode.unknown_topic_or_partition, f"There is no topic '{name}'.")
            overrides = broker.image.config_of(ResourceType.topic, name)
            return describe_topic(overrides, broker.config, names=names)
        case ResourceType.broker if not name:
            default = broker.image.config_of(ResourceType.broker, "")
            return describe_cluster_default(default, names=names)
        case ResourceType.broker:
            _check_is_me(broker, name)
            return describe_broker(broker.config, names=names)
        case ResourceType.broker_logger:
            _check_is_me(broker, name)
            return describe_loggers(_logger_levels(), names=names)
        case ResourceType.client_metrics if name:
            return _explicit(broker, resource.resource_type, name, names)
        case ResourceType.group if name:
            return _explicit(broker, resource.resource_type, name, names)
        case _:
            raise Refused(
                ErrorCode.invalid_request,
                f"There are no settings of resource type {resource.resource_type}, name '{name}'.",
            )


def _check_is_me(broker: Broker, name: str) -> None:
    if name != str(broker.node_id):
        raise Refused(
            ErrorCode.invalid_request,
            f"Broker {broker.node_id} knows its own settings only, not those of '{name}'.",
        )


def _logger_levels() -> dict[str, str]:
    root = logging.getLogger()
    levels = {"root": logging.getLevelName(root.getEffectiveLevel())}
    for name, logger in list(logging.root.manager.loggerDict.items()):
        if name.startswith("lograft") and isinstance(logger, logging.Logger):
            levels[name] = logging.getLevelName(logger.getEffectiveLevel())
    return levels


def _explicit(
    broker: Broker, resource_type: int, name: str, names: Collection[str] | None
) -> list[ConfigEntry]:
    return [
        ConfigEntry(name=key, value=value, source=ConfigSource.UNKNOWN)
        for key, value in sorted(broker.image.config_of(resource_type, name).items())
        if names is None or key in names
    ]


def _shown(
    entry: ConfigEntry, resource: DescribeConfigsResource, request: DescribeConfigsRequest
) -> DescribeConfigsResourceResult:
    source: int = entry.source
    if resource.resource_type == ResourceType.client_metrics:
        source = CLIENT_METRICS_CONFIG
    elif resource.resource_type == ResourceType.group:
        source = GROUP_CONFIG
    result = DescribeConfigsResourceResult(
        name=entry.name,
        value=entry.value,
        read_only=entry.read_only,
        config_source=source,
        is_sensitive=entry.is_sensitive,
        config_type=entry.type,
        documentation=None,
    )
    if request.include_synonyms:
        result.synonyms = [
            DescribeConfigsSynonym(name=one.name, value=one.value, source=one.source)
            for one in entry.synonyms
        ]
    if request.include_documentation:
        of_topic = resource.resource_type == ResourceType.topic
        result.documentation = documentation(entry.name, of_topic=of_topic)
    return result
