"""GetTelemetrySubscriptions, version 0: which metrics the client should push (KIP-714).

The broker generates an id for a client that sends none. The client may send the request again after
its push interval, after a change of the subscriptions, or after a push was rejected because of its
subscription id or compression type; earlier it gets THROTTLING_QUOTA_EXCEEDED. Only advertised if
there are subscriptions, or with `lograft.client.telemetry=true`.
"""

from collections.abc import Mapping
from typing import Final
from uuid import UUID

from lograft.api.context import Api, Context
from lograft.api.types import NOTHING
from lograft.broker.broker import Broker
from lograft.model.types import ZERO_UUID
from lograft.model.uuids import uuid_to_text
from lograft.wire.messages.get_telemetry_subscriptions import (
    GetTelemetrySubscriptionsRequest,
    GetTelemetrySubscriptionsResponse,
)

API: Final = Api(key=71, versions=range(1), needs=NOTHING)

#: zstd, lz4, gzip, snappy, in the order of preference.
COMPRESSION_TYPES: Final = (4, 3, 1, 2)


def handle(
    context: Context, request: GetTelemetrySubscriptionsRequest
) -> GetTelemetrySubscriptionsResponse:
    broker: Broker = context.broker
    instance_id = request.client_instance_id
    if instance_id == ZERO_UUID:
        instance_id = broker.runtime.randomness.uuid()
    error, client = broker.telemetry.ask(
        instance_id, client_attributes(context, instance_id), broker.clock.mono_ms()
    )
    if error:
        return GetTelemetrySubscriptionsResponse(error_code=error)
    return GetTelemetrySubscriptionsResponse(
        client_instance_id=instance_id,
        subscription_id=client.subscription_id,
        accepted_compression_types=list(COMPRESSION_TYPES),
        push_interval_ms=client.selection.interval_ms,
        telemetry_max_bytes=broker.config.telemetry_max_bytes,
        delta_temporality=False,
        requested_metrics=list(client.selection.metrics),
    )


def client_attributes(context: Context, instance_id: UUID) -> Mapping[str, str]:
    """Returns the client's attributes, which subscriptions match."""
    attributes = {
        "client_instance_id": uuid_to_text(instance_id),
        "client_software_name": context.software.name,
        "client_software_version": context.software.version,
        "client_source_address": context.peer.host,
        "client_source_port": str(context.peer.port),
    }
    if context.client_id is not None:
        attributes["client_id"] = context.client_id
    return attributes
