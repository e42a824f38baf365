"""PushTelemetry, version 0: receives the metrics of a client (KIP-714).

The last push of every client is kept (`broker/client_telemetry.py`). `telemetry.max.bytes` limits
it before and after decompression, so that a small push cannot occupy much memory. A larger one gets
TELEMETRY_TOO_LARGE, one that cannot be decompressed INVALID_RECORD.
"""

from collections.abc import Coroutine
from typing import Any, Final

from lograft.api.context import Api, Context
from lograft.api.get_telemetry_subscriptions import client_attributes
from lograft.api.types import NOTHING
from lograft.broker.broker import Broker
from lograft.broker.client_telemetry import Client, Push
from lograft.model.errors import ErrorCode
from lograft.wire.compression import Codec, DecompressedTooLarge, DecompressionFailed, decompress
from lograft.wire.messages.push_telemetry import PushTelemetryRequest, PushTelemetryResponse

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
    if request.compression_type == Codec.NONE:
        _keep(broker, client, request)
        return PushTelemetryResponse()
    return _check_and_keep(broker, client, request)


async def _check_and_keep(
    broker: Broker, client: Client, request: PushTelemetryRequest
) -> PushTelemetryResponse:
    bytes_max = broker.config.telemetry_max_bytes

    def check() -> None:
        decompress(request.compression_type, request.metrics, bytes_max)

    try:
        await broker.runtime.workers.run(check)
    except DecompressedTooLarge:
        client.last_error = ErrorCode.TELEMETRY_TOO_LARGE
    except DecompressionFailed:
        client.last_error = ErrorCode.INVALID_RECORD
    else:
        _keep(broker, client, request)
    return PushTelemetryResponse(error_code=client.last_error)


def _keep(broker: Broker, client: Client, request: PushTelemetryRequest) -> None:
    broker.telemetry.keep(
        Push(
            client_instance_id=request.client_instance_id,
            client=client.attributes,
            received_ms=broker.clock.mono_ms(),
            is_terminating=request.terminating,
            compression_type=request.compression_type,
            compressed=bytes(request.metrics),
            bytes_max=broker.config.telemetry_max_bytes,
        )
    )
