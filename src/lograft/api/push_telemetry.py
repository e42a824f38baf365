"""PushTelemetry, version 0: receives the metrics of a client (KIP-714).

The numbers of the last push of every client are kept (`broker/client_telemetry.py`).
`telemetry.max.bytes` limits it before and after decompression, so that a small push cannot occupy
much memory. A larger one gets TELEMETRY_TOO_LARGE, one that cannot be decompressed or that is not
in OpenTelemetry's format INVALID_RECORD. A worker thread decompresses and decodes it.
"""

from collections.abc import Coroutine
from typing import Any, Final

from lograft.api.context import Api, Context
from lograft.api.get_telemetry_subscriptions import client_attributes
from lograft.api.types import NOTHING
from lograft.broker.broker import Broker
from lograft.broker.client_telemetry import CLIENT_POINTS_MAX, Client, Push
from lograft.model.errors import ErrorCode
from lograft.wire.compression import DecompressedTooLarge, DecompressionFailed, decompress
from lograft.wire.messages.push_telemetry import PushTelemetryRequest, PushTelemetryResponse
from lograft.wire.otlp import MalformedTelemetry, decode_metrics, is_cumulative

API: Final = Api(key=72, versions=range(1), needs=NOTHING)

#: none, gzip, snappy, lz4, zstd.
COMPRESSION_TYPES: Final = range(5)
#: Ids that Kafka reserves: zero, and the topic of the metadata log.
RESERVED_UUIDS: Final = (0, 1)


def handle(
    context: Context, request: PushTelemetryRequest
) -> PushTelemetryResponse | Coroutine[Any, Any, PushTelemetryResponse]:
    broker: Broker = context.broker
    instance_id = request.client_instance_id
    if instance_id.int in RESERVED_UUIDS:
        return PushTelemetryResponse(error_code=ErrorCode.INVALID_REQUEST)
    error, client = broker.telemetry.check_push(
        instance_id,
        client_attributes(context, instance_id),
        broker.clock.mono_ms(),
        subscription_id=request.subscription_id,
        is_terminating=request.terminating,
    )
    if not error and request.compression_type not in COMPRESSION_TYPES:
        error = client.last_error = ErrorCode.UNSUPPORTED_COMPRESSION_TYPE
    if not error and len(request.metrics) > broker.config.telemetry_max_bytes:
        error = client.last_error = ErrorCode.TELEMETRY_TOO_LARGE
    if error or not request.metrics:
        return PushTelemetryResponse(error_code=error)
    return _decode_and_keep(broker, client, request)


async def _decode_and_keep(
    broker: Broker, client: Client, request: PushTelemetryRequest
) -> PushTelemetryResponse:
    bytes_max = broker.config.telemetry_max_bytes
    received_ms = broker.clock.mono_ms()

    def decode() -> Push:
        data = bytes(decompress(request.compression_type, request.metrics, bytes_max))
        points, dropped = decode_metrics(data, points_max=CLIENT_POINTS_MAX)
        kept = tuple(point for point in points if is_cumulative(point))
        return Push(
            client_instance_id=request.client_instance_id,
            client=client.attributes,
            received_ms=received_ms,
            is_terminating=request.terminating,
            size_bytes=len(data),
            points=kept,
            dropped_points=dropped + len(points) - len(kept),
        )

    try:
        push = await broker.runtime.workers.run(decode)
    except DecompressedTooLarge:
        client.last_error = ErrorCode.TELEMETRY_TOO_LARGE
    except (DecompressionFailed, MalformedTelemetry):
        client.last_error = ErrorCode.INVALID_RECORD
    else:
        broker.telemetry.keep(push)
    return PushTelemetryResponse(error_code=client.last_error)
