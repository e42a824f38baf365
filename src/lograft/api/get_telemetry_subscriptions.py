"""GetTelemetrySubscriptions, version 0: no client metric is asked for.

The client gets an id if it has none, an empty subscription, and a push interval; with no metrics
wanted it pushes nothing but asks again after the interval (KIP-714).
"""

from typing import Final

from lograft.api.context import Api, Context
from lograft.broker.broker import Broker
from lograft.model.types import ZERO_UUID
from lograft.wire.messages.get_telemetry_subscriptions import (
    GetTelemetrySubscriptionsRequest,
    GetTelemetrySubscriptionsResponse,
)

API: Final = Api(key=71, versions=range(1))

PUSH_INTERVAL_MS: Final = 300_000
#: Names the empty subscription; any change of subscriptions would change it.
SUBSCRIPTION_ID: Final = 0
#: zstd, lz4, gzip, snappy, in the order of preference. Nothing is ever unpacked here.
COMPRESSION_TYPES: Final = (4, 3, 1, 2)


def handle(
    context: Context, request: GetTelemetrySubscriptionsRequest
) -> GetTelemetrySubscriptionsResponse:
    broker: Broker = context.broker
    client = request.client_instance_id
    return GetTelemetrySubscriptionsResponse(
        client_instance_id=broker.runtime.randomness.uuid() if client == ZERO_UUID else client,
        subscription_id=SUBSCRIPTION_ID,
        accepted_compression_types=list(COMPRESSION_TYPES),
        push_interval_ms=PUSH_INTERVAL_MS,
        telemetry_max_bytes=broker.config.telemetry_max_bytes,
        delta_temporality=True,
        requested_metrics=[],
    )
