"""ApiVersions, versions 0-4. Says what this listener serves: the first request of most clients.

Advertises exactly the APIs that have a module here, in Kafka 4.3's versions. The response header is
always version 0, and a version that we do not know is answered in version 0 with
UNSUPPORTED_VERSION and our own range (KIP-511; the router's job). v3: the client's name and
version, supported and finalized features. v4: features whose lowest level is 0 are not left out.
"""

import re
from typing import Final

from lograft.api.context import Api, Context
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

API: Final = Api(key=18, versions=range(5))

PRODUCE_KEY: Final = 0
CLIENT_SOFTWARE_SINCE: Final = 3
LEVEL_ZERO_SINCE: Final = 4
_SOFTWARE: Final = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?")


def handle(context: Context, request: ApiVersionsRequest) -> ApiVersionsResponse:
    if context.api_version >= CLIENT_SOFTWARE_SINCE and not (
        _SOFTWARE.fullmatch(request.client_software_name)
        and _SOFTWARE.fullmatch(request.client_software_version)
    ):
        return error_response(request, ErrorCode.invalid_request, "")
    broker = context.broker
    finalized = effective_levels(broker.image, kraft_version=broker.kraft_version)
    return ApiVersionsResponse(
        api_keys=[_range_of(spec) for spec in context.served],
        supported_features=[
            SupportedFeatureKey(
                name=name, min_version=levels.min_version, max_version=levels.max_version
            )
            for name, levels in sorted(SUPPORTED.items())
            if levels.min_version > 0 or context.api_version >= LEVEL_ZERO_SINCE
        ],
        finalized_features_epoch=broker.image.offset,
        finalized_features=[
            FinalizedFeatureKey(name=name, max_version_level=level, min_version_level=level)
            for name, level in sorted(finalized.items())
        ],
    )


def error_response(
    request: ApiVersionsRequest | None, code: ErrorCode, message: str
) -> ApiVersionsResponse:
    """With UNSUPPORTED_VERSION the client learns in which versions it may ask again."""
    again = [_range_of(API_VERSIONS[API.key])] if code == ErrorCode.unsupported_version else []
    return ApiVersionsResponse(error_code=code, api_keys=again)


def _range_of(spec: ApiSpec) -> ApiVersion:
    """As Kafka does, Produce is advertised from version 0 on although 0-2 are refused: librdkafka
    before 2.8 takes compression for unsupported where it does not see them (KAFKA-18659)."""
    first = 0 if spec.key == PRODUCE_KEY else spec.min_version
    return ApiVersion(api_key=spec.key, min_version=first, max_version=spec.max_version)
