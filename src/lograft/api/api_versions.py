"""ApiVersions, versions 0-4: the APIs that this listener serves. Most clients send it first.

Advertises exactly the APIs that have a module in this package, in Kafka 4.3's versions; those of
client telemetry only while there are subscriptions or `lograft.client.telemetry` is set, and
forwarded ones only in versions that the active controller also supports. The response header is
always version 0. For an unknown version the router responds in version 0 with UNSUPPORTED_VERSION
and the range of supported versions (KIP-511). v3: the client's name and version, supported and
finalized features. v4: includes features whose minimum level is 0.

A request with Lograft's tag comes from a Lograft node: the response has the tag too, and on the
inter-broker listener it lists the APIs that only Lograft brokers send to each other.
"""

import re
from typing import Final

from lograft.api.context import Api, Context
from lograft.api.forwarding import served_with_controller
from lograft.api.types import NOTHING
from lograft.broker.broker import Broker
from lograft.metadata.features import SUPPORTED, effective_levels
from lograft.model.errors import ErrorCode
from lograft.wire.apis import API_VERSIONS, ApiSpec
from lograft.wire.messages.api_versions import (
    ApiVersion,
    ApiVersionsRequest,
    ApiVersionsResponse,
    FinalizedFeatureKey,
    SupportedFeatureKey,
)

API: Final = Api(key=18, versions=range(5), needs=NOTHING)

PRODUCE_KEY: Final = 0
#: GetTelemetrySubscriptions and PushTelemetry.
TELEMETRY_KEYS: Final = frozenset({71, 72})
CLIENT_SOFTWARE_SINCE: Final = 3
LEVEL_ZERO_SINCE: Final = 4
_SOFTWARE: Final = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?")


def handle(context: Context, request: ApiVersionsRequest) -> ApiVersionsResponse:
    if context.api_version >= CLIENT_SOFTWARE_SINCE:
        if not (
            _SOFTWARE.fullmatch(request.client_software_name)
            and _SOFTWARE.fullmatch(request.client_software_version)
        ):
            return error_response(request, ErrorCode.INVALID_REQUEST, "")
        context.software.name = request.client_software_name
        context.software.version = request.client_software_version
    shared = context.shared
    accepts_metrics = context.role == "broker" and _accepts_metrics(context.broker)
    hidden = frozenset() if accepts_metrics else TELEMETRY_KEYS
    served = [_range_of(spec) for spec in served_with_controller(context) if spec.key not in hidden]
    if request.is_lograft and context.router is not None:
        served += [_range_of(spec) for spec in context.router.between_brokers]
    finalized = effective_levels(shared.image, kraft_version=shared.kraft_version)
    return ApiVersionsResponse(
        api_keys=served,
        is_lograft=request.is_lograft,
        supported_features=[
            SupportedFeatureKey(
                name=name, min_version=levels.min_version, max_version=levels.max_version
            )
            for name, levels in sorted(SUPPORTED.items())
            if levels.min_version > 0 or context.api_version >= LEVEL_ZERO_SINCE
        ],
        finalized_features_epoch=shared.image.offset,
        finalized_features=[
            FinalizedFeatureKey(name=name, max_version_level=level, min_version_level=level)
            for name, level in sorted(finalized.items())
        ],
    )


def _accepts_metrics(broker: Broker) -> bool:
    """Clients check only once per connection whether a broker accepts metrics, and some never check
    again. The setting is for clients that must see subscriptions that are created later."""
    return broker.config.lograft_client_telemetry or broker.telemetry.has_subscriptions


def error_response(
    request: ApiVersionsRequest | None, code: ErrorCode, message: str
) -> ApiVersionsResponse:
    """With UNSUPPORTED_VERSION the client learns which versions of ApiVersions it may send."""
    supported = [_range_of(API_VERSIONS[API.key])] if code == ErrorCode.UNSUPPORTED_VERSION else []
    return ApiVersionsResponse(error_code=code, api_keys=supported)


def _range_of(spec: ApiSpec) -> ApiVersion:
    """Like Kafka, advertises Produce from version 0 on although versions 0-2 are rejected:
    librdkafka before 2.8 otherwise assumes that compression is unsupported (KAFKA-18659)."""
    first = 0 if spec.key == PRODUCE_KEY else spec.min_version
    return ApiVersion(api_key=spec.key, min_version=first, max_version=spec.max_version)
