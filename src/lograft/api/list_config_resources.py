"""ListConfigResources, versions 0-1: the resources that have a configuration.

v0 (ListClientMetricsResources in older clients) lists client metrics only. v1 lists the requested
types, or all: topics, brokers, loggers, client metrics and groups.
"""

from collections.abc import Iterable
from typing import Final

from lograft.api.context import Api, Context
from lograft.api.types import whole_request
from lograft.broker.broker import Broker
from lograft.metadata.types import ResourceType
from lograft.model.errors import ErrorCode
from lograft.security.authorization import CLUSTER_DESCRIBE_CONFIGS
from lograft.wire.messages.list_config_resources import (
    ConfigResource,
    ListConfigResourcesRequest,
    ListConfigResourcesResponse,
)

API: Final = Api(key=74, versions=range(2), needs=whole_request(CLUSTER_DESCRIBE_CONFIGS))


def handle(context: Context, request: ListConfigResourcesRequest) -> ListConfigResourcesResponse:
    types: Iterable[int] = (ResourceType.CLIENT_METRICS,)
    if context.api_version >= 1:
        types = dict.fromkeys(request.resource_types) or tuple(ResourceType)
    if any(kind not in tuple(ResourceType) for kind in types):
        return ListConfigResourcesResponse(error_code=ErrorCode.UNSUPPORTED_VERSION)
    return ListConfigResourcesResponse(
        config_resources=[
            ConfigResource(resource_name=name, resource_type=kind)
            for kind in types
            for name in _names(context.broker, kind)
        ]
    )


def _names(broker: Broker, resource_type: int) -> list[str]:
    image = broker.image
    match resource_type:
        case ResourceType.TOPIC:
            return list(image.topic_ids)
        case ResourceType.BROKER | ResourceType.BROKER_LOGGER:
            return [str(broker_id) for broker_id in image.brokers]
        case _:
            return [resource.name for resource in image.configs if resource.type == resource_type]
