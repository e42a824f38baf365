from uuid import UUID

from lograft.model.types import ZERO_UUID
from lograft.wire.messages.get_telemetry_subscriptions import (
    GetTelemetrySubscriptionsRequest,
    GetTelemetrySubscriptionsResponse,
)
from tests.unit.broker.bench import Bench, run


def test_nothing_is_asked_of_clients() -> None:
    async def scenario(bench: Bench) -> None:
        async def ask(client: UUID) -> GetTelemetrySubscriptionsResponse:
            request = GetTelemetrySubscriptionsRequest(client_instance_id=client)
            return await bench.ask(request, 0, GetTelemetrySubscriptionsResponse)

        first = await ask(ZERO_UUID)
        assert first.error_code == 0
        assert first.client_instance_id != ZERO_UUID
        assert first.requested_metrics == []
        assert first.push_interval_ms > 0
        again = await ask(first.client_instance_id)
        assert again.client_instance_id == first.client_instance_id
        assert again.subscription_id == first.subscription_id

    run(scenario)
