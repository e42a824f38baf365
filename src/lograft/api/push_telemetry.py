"""PushTelemetry, version 0: takes client metrics and drops them.

The size is bounded by `telemetry.max.bytes`, and nothing is decompressed, so that a small push can
never become a large one in memory.
"""

from typing import Final

from lograft.api.context import Api, Context
from lograft.api.get_telemetry_subscriptions import SUBSCRIPTION_ID
from lograft.broker.broker import Broker
from lograft.model.errors import ErrorCode
from lograft.model.types import ZERO_UUID
from lograft.wire.messages.push_telemetry import PushTelemetryRequest, PushTelemetryResponse

API: Final = Api(key=72, versions=range(1))

#: none, gzip, snappy, lz4, zstd.
COMPRESSION_TYPES: Final = range(5)


def handle(context: Context, request: PushTelemetryRequest) -> PushTelemetryResponse:
    broker: Broker = context.broker
    if request.client_instance_id == ZERO_UUID:
        code = ErrorCode.invalid_request
    elif request.subscription_id != SUBSCRIPTION_ID:
        code = ErrorCode.unknown_subscription_id
    elif request.compression_type not in COMPRESSION_TYPES:
        code = ErrorCode.unsupported_compression_type
    elif len(request.metrics) > broker.config.telemetry_max_bytes:
        code = ErrorCode.telemetry_too_large
    else:
        code = ErrorCode.none
    return PushTelemetryResponse(error_code=code)
