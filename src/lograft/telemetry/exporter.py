"""Sends the metrics of a node, and the spans of its records, to an OpenTelemetry collector."""

import asyncio
import logging
from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from typing import Final, Protocol

from lograft.model.errors import LograftError
from lograft.model.metrics import Counter, Families, Metric, Sample, Value, enum_label
from lograft.model.seams import Runtime, Transport
from lograft.model.settings.otlp import OtlpSettings
from lograft.net.http_requests import HttpFailed, HttpRequest, fetch
from lograft.wire.errors import WireError
from lograft.wire.otlp_requests import (
    Scope,
    Span,
    decode_rejected,
    encode_metric,
    encode_request,
    encode_span,
)

METRICS: Final = "metrics"
TRACES: Final = "traces"
#: Series in one request to the collector, and series that are encoded between two turns of the
#: event loop.
REQUEST_SERIES_MAX: Final = 4_000
SLICE_SERIES: Final = 100
REQUEST_SPANS_MAX: Final = 512
REQUEST_TIMEOUT_MS: Final = 10_000
RESPONSE_BYTES_MAX: Final = 64 << 10
#: Spans are collected for so long before they are sent.
SPANS_DELAY_MS: Final = 1_000
BACKOFF_MS: Final = 1_000
BACKOFF_MS_MAX: Final = 60_000
#: The collector may accept the same request later.
RETRIED_STATUSES: Final = frozenset({429, 502, 503, 504})

_SIGNAL: Final = enum_label("signal", (METRICS, TRACES))
EXPORTS: Final = Counter(
    "lograft_otlp_exports_total", "Requests that the OpenTelemetry collector accepted.", _SIGNAL
)
EXPORT_FAILURES: Final = Counter(
    "lograft_otlp_export_failures_total",
    "Requests that the OpenTelemetry collector did not answer or did not accept.",
    _SIGNAL,
)
REJECTED: Final = Counter(
    "lograft_otlp_rejected_total",
    "Points of metrics, or spans, that the OpenTelemetry collector rejected in requests that it"
    " accepted.",
    _SIGNAL,
)
SPANS: Final = Counter(
    "lograft_otlp_spans_total", "Spans that were sent to the OpenTelemetry collector."
)

LOGGER: Final = logging.getLogger(__name__)


class SpanSource(Protocol):
    """Where the spans come from (`broker/record_traces.py`)."""

    has_waiting: asyncio.Event

    async def take_spans(self) -> list[Span]: ...

    def count_dropped(self, spans: int) -> None: ...

    def collect_samples(self) -> Iterator[Sample]: ...


class OtlpExporter:
    """The node runs `export_metrics` and `export_spans` as tasks."""

    def __init__(
        self,
        runtime: Runtime,
        settings: OtlpSettings,
        scope: Scope,
        *,
        collect_samples: Callable[[], Iterator[Sample]],
        spans: SpanSource | None,
    ) -> None:
        self._runtime = runtime
        self._settings = settings
        self._scope = scope
        self._collect_samples = collect_samples
        self._spans = spans
        self._start_ns = runtime.clock.wall_ms() * 1_000_000
        self._transport: Transport | None = None
        self._accepted = {METRICS: 0, TRACES: 0}
        self._failed = {METRICS: 0, TRACES: 0}
        self._rejected = {METRICS: 0, TRACES: 0}
        self._spans_sent = 0
        #: Failures since the collector accepted a request.
        self._failures = 0
        self._retry_at_ms = 0
        #: Whether the request that failed last may be repeated.
        self._is_retried = False

    def collect_samples(self) -> Iterator[Sample]:
        for signal in (METRICS, TRACES):
            yield EXPORTS.sample(self._accepted[signal], signal)
            yield EXPORT_FAILURES.sample(self._failed[signal], signal)
            yield REJECTED.sample(self._rejected[signal], signal)
        yield SPANS.sample(self._spans_sent)
        if self._spans is not None:
            yield from self._spans.collect_samples()

    # ── metrics ──────────────────────────────────────────────────────────────────────────────

    async def export_metrics(self) -> None:
        """Sends all metrics in each interval. What could not be sent is not repeated: the next
        values replace them."""
        interval_ms = self._settings.metrics_interval_ms
        while True:
            await asyncio.sleep(interval_ms / 1000)
            await self._wait_backoff()
            try:
                await self._send_metrics()
            except Exception:
                LOGGER.exception("could not collect metrics for the OpenTelemetry collector")

    async def _send_metrics(self) -> None:
        families = Families()
        for _ in families.gather(self._collect_samples()):
            await asyncio.sleep(0)
        now_ns = self._runtime.clock.wall_ms() * 1_000_000
        encoded: list[bytes] = []
        count = 0
        for metric, series in _slices(families):
            encoded.append(encode_metric(metric, series, start_ns=self._start_ns, now_ns=now_ns))
            count += len(series)
            if count >= REQUEST_SERIES_MAX:
                if not await self._send(METRICS, encoded):
                    return
                encoded, count = [], 0
            await asyncio.sleep(0)
        if encoded:
            await self._send(METRICS, encoded)

    # ── spans ────────────────────────────────────────────────────────────────────────────────

    async def export_spans(self) -> None:
        spans = self._spans
        assert spans is not None
        while True:
            await spans.has_waiting.wait()
            await asyncio.sleep(SPANS_DELAY_MS / 1000)
            await self._wait_backoff()
            try:
                await self._drain(spans)
            except Exception:
                LOGGER.exception("could not make spans for the OpenTelemetry collector")

    async def _drain(self, spans: SpanSource) -> None:
        """Sends spans until no batch waits."""
        taken: list[Span] = []
        while spans.has_waiting.is_set():
            taken += await spans.take_spans()
            if len(taken) >= REQUEST_SPANS_MAX:
                await self._send_spans(spans, taken)
                taken = []
        await self._send_spans(spans, taken)

    async def _send_spans(self, spans: SpanSource, taken: list[Span]) -> None:
        for start in range(0, len(taken), REQUEST_SPANS_MAX):
            batch = taken[start : start + REQUEST_SPANS_MAX]
            encoded = [encode_span(span) for span in batch]
            while not await self._send(TRACES, encoded):
                if not self._is_retried:
                    spans.count_dropped(len(batch))
                    break
                # Further spans wait in the queue, which is bounded.
                await self._wait_backoff()
            else:
                self._spans_sent += len(batch)

    # ── requests ─────────────────────────────────────────────────────────────────────────────

    async def _wait_backoff(self) -> None:
        wait_ms = self._retry_at_ms - self._runtime.clock.mono_ms()
        if wait_ms > 0:
            await asyncio.sleep(wait_ms / 1000)

    async def _send(self, signal: str, encoded: Iterable[bytes]) -> bool:
        """Returns whether the collector accepted the request."""
        settings = self._settings
        request = HttpRequest(
            settings.address,
            f"{settings.path}/v1/{signal}",
            method="POST",
            headers=[("Content-Type", "application/x-protobuf"), *settings.headers],
            body=encode_request(self._scope, encoded),
        )
        try:
            transport = await self._find_transport()
            response = await fetch(
                transport, request, bytes_max=RESPONSE_BYTES_MAX, timeout_ms=REQUEST_TIMEOUT_MS
            )
            rejected = decode_rejected(response)
        except (HttpFailed, LograftError, WireError) as error:
            self._is_retried = not isinstance(error, HttpFailed) or (
                error.status is None or error.status in RETRIED_STATUSES
            )
            self._on_failed(signal, str(error))
            return False
        self._accepted[signal] += 1
        self._rejected[signal] += rejected
        if self._failures:
            LOGGER.info("the OpenTelemetry collector at %s accepts data again", settings.url)
        self._failures = 0
        return True

    def _on_failed(self, signal: str, reason: str) -> None:
        self._failed[signal] += 1
        if not self._failures:
            LOGGER.warning(
                "cannot send %s to the OpenTelemetry collector at %s: %s;"
                " the node tries again, less and less often",
                signal,
                self._settings.url,
                reason,
            )
        backoff_ms = min(BACKOFF_MS << min(self._failures, 10), BACKOFF_MS_MAX)
        self._failures += 1
        self._retry_at_ms = self._runtime.clock.mono_ms() + int(
            backoff_ms * self._runtime.randomness.uniform(0.8, 1.2)
        )

    async def _find_transport(self) -> Transport:
        if self._transport is None:
            if self._settings.uses_tls:
                self._transport = await self._runtime.workers.run(self._make_tls_transport)
            else:
                self._transport = self._runtime.transport
        return self._transport

    def _make_tls_transport(self) -> Transport:
        # Imported here because most nodes need no TLS.
        from lograft.net.tls import TlsTransport
        from lograft.net.tls_contexts import TlsParameters, client_context

        context = client_context(TlsParameters(where="lograft.otlp.endpoint: "))
        return TlsTransport(self._runtime.transport, client=context)


def _slices(families: Families) -> Iterator[tuple[Metric, dict[tuple[str, ...], Value]]]:
    """Yields each metric with a limited number of its series at a time."""
    for metric, series in families.by_metric.items():
        items = iter(series.items())
        while chunk := dict(islice(items, SLICE_SERIES)):
            yield metric, chunk
