from uuid import UUID

from lograft.metadata.types import ResourceType
from lograft.model.errors import ErrorCode
from lograft.model.types import ZERO_UUID
from lograft.wire.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from lograft.wire.messages.get_telemetry_subscriptions import (
    GetTelemetrySubscriptionsRequest,
    GetTelemetrySubscriptionsResponse,
)
from lograft.wire.records.config_record import ConfigRecord
from tests.support.scenarios import scenario
from tests.unit.broker.bench import Bench, run


def subscribe(bench: Bench, name: str, **settings: str) -> None:
    bench.controller.append(
        tuple(
            ConfigRecord(
                resource_type=ResourceType.CLIENT_METRICS,
                resource_name=name,
                name=setting.replace("_", "."),
                value=value,
            )
            for setting, value in settings.items()
        )
    )


async def send_request(
    bench: Bench, client: UUID, client_id: str = "test"
) -> GetTelemetrySubscriptionsResponse:
    request = GetTelemetrySubscriptionsRequest(client_instance_id=client)
    return await bench.ask(request, 0, GetTelemetrySubscriptionsResponse, client_id=client_id)


@scenario(run)
async def test_no_metrics_are_requested_without_subscriptions(bench: Bench, /) -> None:
    first = await send_request(bench, ZERO_UUID)
    assert first.error_code == 0
    assert first.client_instance_id != ZERO_UUID
    assert first.requested_metrics == []
    assert first.push_interval_ms == 300_000
    again = await send_request(bench, first.client_instance_id)
    assert again.error_code == ErrorCode.THROTTLING_QUOTA_EXCEEDED


@scenario(run)
async def test_clients_get_matching_subscriptions(bench: Bench, /) -> None:
    subscribe(bench, "mine", metrics="a.,b.", interval_ms="1000", match="client_id=billing.*")
    subscribe(bench, "java", metrics="*", match="client_software_name=apache-kafka-java")
    subscribe(bench, "here", metrics="c.", match="client_source_address=10\\.0\\.0\\.1")
    mine = await send_request(bench, UUID(int=5), "billing-1")
    assert mine.requested_metrics == ["a.", "b.", "c."]
    assert mine.push_interval_ms == 1000
    assert mine.client_instance_id == UUID(int=5)
    assert mine.accepted_compression_types == [4, 3, 1, 2]
    assert mine.telemetry_max_bytes == bench.config.telemetry_max_bytes
    assert not mine.delta_temporality
    other = await send_request(bench, UUID(int=6), "other")
    assert other.requested_metrics == ["c."]
    assert other.push_interval_ms == 300_000
    versions = ApiVersionsRequest(
        client_software_name="apache-kafka-java", client_software_version="4.3.1"
    )
    await bench.ask(versions, 4, ApiVersionsResponse)
    java = await send_request(bench, UUID(int=7), "other")
    assert java.requested_metrics == ["*"]
