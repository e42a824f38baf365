from uuid import UUID

import pytest

from lograft.model.errors import ErrorCode
from lograft.wire.messages.push_telemetry import PushTelemetryRequest, PushTelemetryResponse
from tests.unit.broker.bench import Bench, run


@pytest.mark.parametrize(
    ("request_", "code"),
    [
        (PushTelemetryRequest(client_instance_id=UUID(int=5), metrics=b"x" * 1000), 0),
        (PushTelemetryRequest(metrics=b"x"), ErrorCode.invalid_request),
        (
            PushTelemetryRequest(client_instance_id=UUID(int=5), subscription_id=9),
            ErrorCode.unknown_subscription_id,
        ),
        (
            PushTelemetryRequest(client_instance_id=UUID(int=5), compression_type=9),
            ErrorCode.unsupported_compression_type,
        ),
        (
            PushTelemetryRequest(client_instance_id=UUID(int=5), metrics=b"x" * 1001),
            ErrorCode.telemetry_too_large,
        ),
        # A bomb is as good as any other push: nobody opens it.
        (
            PushTelemetryRequest(
                client_instance_id=UUID(int=5), compression_type=4, metrics=b"(\xb5/\xfd" * 100
            ),
            0,
        ),
    ],
)
def test_takes_bounds_and_drops(request_: PushTelemetryRequest, code: int) -> None:
    async def scenario(bench: Bench) -> None:
        response = await bench.ask(request_, 0, PushTelemetryResponse)
        assert response.error_code == code

    run(scenario, telemetry_max_bytes="1000")
