from uuid import UUID

import pytest

from lograft.broker.client_telemetry import DROPPED_POINTS, PUSHED_BYTES, PUSHES
from lograft.model.errors import ErrorCode
from lograft.model.metrics import value_of
from lograft.wire.compression import Codec, compress
from lograft.wire.messages.push_telemetry import PushTelemetryRequest, PushTelemetryResponse
from lograft.wire.otlp import Point, Temporality, encode_metrics
from tests.support.scenarios import scenario
from tests.unit.api.test_get_telemetry_subscriptions import send_request, subscribe
from tests.unit.broker.bench import Bench, run

CLIENT = UUID(int=5)
POINTS = [
    Point("org.apache.kafka.consumer.fetch.total", (("topic", f"t{number}"),), number, True)
    for number in range(10)
]
METRICS = encode_metrics([], POINTS, start_ns=1, now_ns=2)
MAX_BYTES = 1000


async def push(bench: Bench, metrics: bytes, codec: int = Codec.NONE, client: UUID = CLIENT) -> int:
    subscription = await send_request(bench, client)
    request = PushTelemetryRequest(
        client_instance_id=client,
        subscription_id=subscription.subscription_id,
        compression_type=codec,
        metrics=metrics,
    )
    return (await bench.ask(request, 0, PushTelemetryResponse)).error_code


@pytest.mark.parametrize("codec", Codec)
@scenario(run, telemetry_max_bytes=str(MAX_BYTES))
async def test_the_last_push_is_kept(bench: Bench, /, codec: Codec) -> None:
    subscribe(bench, "all", metrics="*")
    assert await push(bench, compress(codec, METRICS), codec) == 0
    (kept,) = bench.broker.telemetry.pushes(bench.broker.clock.mono_ms())
    assert kept.points == tuple(POINTS)
    assert kept.size_bytes == len(METRICS)
    assert kept.client_instance_id == CLIENT
    assert kept.client["client_id"] == "test"


@pytest.mark.parametrize(
    ("metrics", "codec", "code"),
    [
        (b"", 0, ErrorCode.NONE),
        (METRICS.ljust(MAX_BYTES), 0, ErrorCode.INVALID_RECORD),
        (METRICS[:-1], 0, ErrorCode.INVALID_RECORD),
        (compress(Codec.GZIP, b"no metrics"), 1, ErrorCode.INVALID_RECORD),
        (METRICS, 0, ErrorCode.NONE),
        (b"x" * (MAX_BYTES + 1), 0, ErrorCode.TELEMETRY_TOO_LARGE),
        (compress(Codec.ZSTD, bytes(1 << 20)), 4, ErrorCode.TELEMETRY_TOO_LARGE),
        (compress(Codec.GZIP, bytes(500_000)), 1, ErrorCode.TELEMETRY_TOO_LARGE),
        (b"no zstd at all", 4, ErrorCode.INVALID_RECORD),
        (b"x", 9, ErrorCode.UNSUPPORTED_COMPRESSION_TYPE),
    ],
)
@scenario(run, telemetry_max_bytes=str(MAX_BYTES))
async def test_pushes_are_limited_before_and_after_decompression(
    bench: Bench, /, metrics: bytes, codec: int, code: ErrorCode
) -> None:
    assert await push(bench, metrics, codec) == code
    kept = list(bench.broker.telemetry.pushes(bench.broker.clock.mono_ms()))
    assert len(kept) == (code == ErrorCode.NONE and bool(metrics))


@pytest.mark.parametrize("client", [UUID(int=0), UUID(int=1)])
@scenario(run)
async def test_reserved_ids_are_rejected(bench: Bench, /, client: UUID) -> None:
    request = PushTelemetryRequest(client_instance_id=client, metrics=b"x")
    response = await bench.ask(request, 0, PushTelemetryResponse)
    assert response.error_code == ErrorCode.INVALID_REQUEST


@scenario(run)
async def test_unknown_subscription_id_allows_an_immediate_request(bench: Bench, /) -> None:
    first = await send_request(bench, CLIENT)
    request = PushTelemetryRequest(
        client_instance_id=CLIENT, subscription_id=first.subscription_id + 1, metrics=METRICS
    )
    response = await bench.ask(request, 0, PushTelemetryResponse)
    assert response.error_code == ErrorCode.UNKNOWN_SUBSCRIPTION_ID
    again = await send_request(bench, CLIENT)
    assert again.error_code == 0
    assert again.subscription_id == first.subscription_id
    # It has pushed in this interval.
    request.subscription_id = first.subscription_id
    response = await bench.ask(request, 0, PushTelemetryResponse)
    assert response.error_code == ErrorCode.THROTTLING_QUOTA_EXCEEDED
    request.terminating = True
    for code in (ErrorCode.NONE, ErrorCode.INVALID_REQUEST):
        response = await bench.ask(request, 0, PushTelemetryResponse)
        assert response.error_code == code


@scenario(run)
async def test_deltas_and_unusable_points_are_counted_but_not_kept(bench: Bench, /) -> None:
    subscribe(bench, "all", metrics="*")
    points = [Point("a", (), 1, True, Temporality.DELTA), Point("b", (), 2)]
    assert await push(bench, encode_metrics([], points, start_ns=1, now_ns=2)) == 0
    telemetry = bench.broker.telemetry
    (kept,) = telemetry.pushes(bench.broker.clock.mono_ms())
    assert [point.name for point in kept.points] == ["b"]
    assert value_of(telemetry, DROPPED_POINTS) == 1
    assert value_of(telemetry, PUSHES) == 1
    assert value_of(telemetry, PUSHED_BYTES) == kept.size_bytes
