"""The exporter against an HTTP collector over real sockets."""

import asyncio
import logging
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager

import pytest
from opentelemetry.proto.collector.trace.v1 import trace_service_pb2 as trace_service

from lograft.model.metrics import Counter, Gauge, Label, Sample, value_of
from lograft.model.seams import Address
from lograft.model.settings.otlp import OtlpSettings
from lograft.model.trace_context import TraceContext
from lograft.net.sockets import SocketTransport
from lograft.runtime.system import system_runtime
from lograft.runtime.workers import ThreadWorkers
from lograft.telemetry import exporter as exporter_module
from lograft.telemetry.exporter import (
    EXPORT_FAILURES,
    EXPORTS,
    REJECTED,
    REQUEST_SPANS_MAX,
    SPANS,
    OtlpExporter,
)
from lograft.wire.otlp_requests import Scope, Span, SpanKind
from tests.support.otlp_collector import Collector, attributes_of
from tests.support.scenarios import scenario
from tests.support.waiting import wait_until_async

SERIES = Gauge("lograft_test_series", "A gauge of many series.", Label("number", 100_000))
EVENTS = Counter("lograft_test_events_total", "A counter.")
CONTEXT = TraceContext(b"t" * 16, b"p" * 8, 1)
DROPPED = Counter("lograft_test_dropped_total", "Spans that were dropped.")


class FakeSpans:
    def __init__(self) -> None:
        self.has_waiting = asyncio.Event()
        self.batches: list[list[Span]] = []
        self.dropped = 0

    def add(self, count: int) -> None:
        self.batches.append(
            [
                Span(CONTEXT, b"%08d" % number, "x", SpanKind.SERVER, 1, 2, ())
                for number in range(count)
            ]
        )
        self.has_waiting.set()

    async def take_spans(self) -> list[Span]:
        taken = self.batches.pop(0)
        if not self.batches:
            self.has_waiting.clear()
        return taken

    def count_dropped(self, spans: int) -> None:
        self.dropped += spans

    def collect_samples(self) -> Iterator[Sample]:
        yield DROPPED.sample(self.dropped)


class World:
    def __init__(self, exporter: OtlpExporter, spans: FakeSpans) -> None:
        self.exporter = exporter
        self.spans = spans
        self.series = 1
        self.failure: Exception | None = None

    def collect_samples(self) -> Iterator[Sample]:
        if self.failure is not None:
            raise self.failure
        yield EVENTS.sample(5)
        for number in range(self.series):
            yield SERIES.sample(number, str(number))


@asynccontextmanager
async def running(port: int, path: str = "") -> AsyncIterator[World]:
    workers = ThreadWorkers()
    spans = FakeSpans()
    settings = OtlpSettings(
        address=Address("127.0.0.1", port),
        uses_tls=False,
        path=path,
        headers=(("x-tenant", "c"),),
        metrics_interval_ms=10,
        exports_traces=True,
        traces_ratio=1.0,
        opens_compressed=False,
    )
    try:
        async with asyncio.TaskGroup() as group:
            runtime = system_runtime(transport=SocketTransport(), workers=workers, task_group=group)
            worlds: list[World] = []
            exporter = OtlpExporter(
                runtime,
                settings,
                Scope("lograft", "1", (("service.name", "lograft"),)),
                collect_samples=lambda: worlds[0].collect_samples(),
                spans=spans,
            )
            worlds.append(World(exporter, spans))
            yield worlds[0]
    finally:
        workers.close()


@asynccontextmanager
async def task_of(work: object) -> AsyncIterator[None]:
    task = asyncio.ensure_future(work)  # type: ignore[call-overload]
    try:
        yield
    finally:
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task


@pytest.fixture(autouse=True)
def short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exporter_module, "SPANS_DELAY_MS", 1)
    monkeypatch.setattr(exporter_module, "BACKOFF_MS", 2)


@scenario()
async def test_metrics_are_sent_in_each_interval_and_in_requests_of_limited_size() -> None:
    with Collector() as collector:
        async with running(collector.port, "/base") as world:
            world.series = 250
            collector.statuses = []
            monkey = pytest.MonkeyPatch()
            monkey.setattr(exporter_module, "REQUEST_SERIES_MAX", 150)
            from tests.support import otlp_collector

            monkey.setitem(
                otlp_collector.REQUESTS,
                "/base/v1/metrics",
                otlp_collector.REQUESTS["/v1/metrics"],
            )
            async with task_of(world.exporter.export_metrics()):
                await asyncio.to_thread(collector.wait_for, requests=4)
            monkey.undo()
            accepted = value_of(world.exporter, EXPORTS, "metrics")
    assert accepted >= 3
    path, headers = collector.requests[0]
    assert path == "/base/v1/metrics"
    assert headers["content-type" if "content-type" in headers else "Content-Type"] == (
        "application/x-protobuf"
    )
    assert headers["x-tenant"] == "c"
    assert collector.resources[0] == {"service.name": "lograft"}
    events = [metric for metric in collector.metrics if metric.name == EVENTS.name]
    assert events[0].sum.data_points[0].as_double == 5
    # The first collection: 101 points in the first request that is full, then the rest.
    first = [metric for metric in collector.metrics if metric.name == SERIES.name][:3]
    assert [len(metric.gauge.data_points) for metric in first] == [100, 100, 50]
    numbers = [
        int(attributes_of(point)["number"])
        for metric in first
        for point in metric.gauge.data_points
    ]
    assert numbers == list(range(250))


@scenario()
async def test_an_error_of_a_collection_does_not_end_the_export(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with Collector() as collector:
        async with running(collector.port) as world:
            world.failure = RuntimeError("a metric is broken")
            async with task_of(world.exporter.export_metrics()):
                await wait_until_async(lambda: "a metric is broken" in caplog.text)
                world.failure = None
                await asyncio.to_thread(collector.wait_for, metrics=1)


@scenario()
async def test_spans_are_sent_in_requests_of_limited_size() -> None:
    with Collector() as collector:
        async with running(collector.port) as world:
            world.spans.add(3)
            world.spans.add(REQUEST_SPANS_MAX)
            async with task_of(world.exporter.export_spans()):
                await asyncio.to_thread(collector.wait_for, spans=REQUEST_SPANS_MAX + 3)
                await wait_until_async(
                    lambda: value_of(world.exporter, SPANS) == REQUEST_SPANS_MAX + 3
                )
    assert [path for path, _ in collector.requests] == ["/v1/traces"] * 2
    assert collector.spans[0].span_id == b"00000000"


@scenario()
async def test_a_collector_that_is_busy_gets_the_spans_later(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO, "lograft.telemetry.exporter")
    with Collector() as collector:
        collector.statuses = [503, 429, 502]
        async with running(collector.port) as world:
            world.spans.add(2)
            async with task_of(world.exporter.export_spans()):
                await asyncio.to_thread(collector.wait_for, spans=2)
                await wait_until_async(lambda: value_of(world.exporter, SPANS) == 2)
            assert value_of(world.exporter, EXPORT_FAILURES, "traces") == 3
            assert value_of(world.exporter, EXPORTS, "traces") == 1
            assert value_of(world.exporter, DROPPED) == 0
    # One line for all failures.
    failed, recovered = caplog.messages
    assert failed.startswith(
        "cannot send traces to the OpenTelemetry collector at http://127.0.0.1"
    )
    assert "status of the response is 503" in failed
    assert recovered.endswith("accepts data again")
    assert "sorry" not in caplog.text


@scenario()
async def test_spans_that_the_collector_does_not_accept_are_dropped() -> None:
    with Collector() as collector:
        collector.statuses = [400]
        async with running(collector.port) as world:
            world.spans.add(2)
            async with task_of(world.exporter.export_spans()):
                await wait_until_async(lambda: value_of(world.exporter, DROPPED) == 2)
                world.spans.add(1)
                await asyncio.to_thread(collector.wait_for, spans=1)
    assert len(collector.spans) == 1


@scenario()
async def test_spans_that_the_collector_rejects_are_counted() -> None:
    answer = trace_service.ExportTraceServiceResponse()
    answer.partial_success.rejected_spans = 2
    with Collector() as collector:
        collector.response = answer.SerializeToString()
        async with running(collector.port) as world:
            world.spans.add(3)
            async with task_of(world.exporter.export_spans()):
                await wait_until_async(lambda: value_of(world.exporter, REJECTED, "traces") == 2)


@scenario()
async def test_a_collector_that_is_away_is_asked_less_and_less_often(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with Collector() as collector:
        port = collector.port
    async with running(port) as world:
        pauses: list[float] = []

        async def wait_backoff() -> None:
            pauses.append(world.exporter._retry_at_ms - world.exporter._runtime.clock.mono_ms())

        world.exporter._wait_backoff = wait_backoff  # type: ignore[method-assign]
        async with task_of(world.exporter.export_metrics()):
            await wait_until_async(
                lambda: value_of(world.exporter, EXPORT_FAILURES, "metrics") >= 20
            )
    # The twelfth pause has the length of the longest; on a slow machine part of it has passed.
    assert max(pauses) > 2 << 9
    assert max(pauses) <= 2 * 1024 * 1.2
    assert len(caplog.records) == 1
