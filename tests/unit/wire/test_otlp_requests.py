"""Compared with the classes that protobuf generates from OpenTelemetry's own files."""

from typing import Any

import pytest
from opentelemetry.proto.collector.metrics.v1 import metrics_service_pb2 as metrics_service
from opentelemetry.proto.collector.trace.v1 import trace_service_pb2 as trace_service
from opentelemetry.proto.metrics.v1 import metrics_pb2
from opentelemetry.proto.trace.v1 import trace_pb2

from lograft.model.metrics import Counter, Gauge, Histogram, Label, Value
from lograft.model.trace_context import TraceContext
from lograft.wire.otlp import MalformedTelemetry
from lograft.wire.otlp_requests import (
    Scope,
    Span,
    SpanKind,
    decode_rejected,
    encode_metric,
    encode_request,
    encode_span,
)
from tests.support.otlp_collector import attributes_of

TOPIC = Label("topic", 10)
SENT = Counter("lograft_test_sent_bytes_total", "Bytes that were sent.", TOPIC)
DEPTH = Gauge("lograft_test_depth", "The depth.")
TOOK = Histogram("lograft_test_seconds", "The time that it took.", TOPIC, bounds=(0.1, 1.0))
SCOPE = Scope("lograft", "1.2", (("service.name", "lograft"), ("number", -7)))
CONTEXT = TraceContext(bytes(range(16)), bytes(range(8)), 1, "a=b")


def metric_of(encoded: bytes) -> Any:
    return metrics_pb2.Metric.FromString(encoded)


def test_a_counter_is_a_cumulative_monotonic_sum() -> None:
    series: dict[tuple[str, ...], Value] = {("a",): 3.0, ("b\n",): 4}
    metric = metric_of(encode_metric(SENT, series, start_ns=5, now_ns=9))
    assert (metric.name, metric.description, metric.unit) == (SENT.name, SENT.help, "By")
    assert metric.sum.is_monotonic
    assert metric.sum.aggregation_temporality == metrics_pb2.AGGREGATION_TEMPORALITY_CUMULATIVE
    assert [
        (point.as_double, attributes_of(point), point.start_time_unix_nano, point.time_unix_nano)
        for point in metric.sum.data_points
    ] == [(3, {"topic": "a"}, 5, 9), (4, {"topic": "b\n"}, 5, 9)]


def test_a_gauge() -> None:
    metric = metric_of(encode_metric(DEPTH, {(): -1.5}, start_ns=5, now_ns=9))
    (point,) = metric.gauge.data_points
    assert (point.as_double, point.time_unix_nano, metric.unit) == (-1.5, 9, "1")


def test_a_histogram() -> None:
    recorder = TOOK.make_recorder()
    for value in (0.05, 0.1, 0.5, 9.0):
        recorder.observe(value)
    buckets = TOOK.sample(recorder, "t").value
    metric = metric_of(encode_metric(TOOK, {("t",): buckets}, start_ns=5, now_ns=9))
    (point,) = metric.histogram.data_points
    assert metric.unit == "s"
    assert (point.count, point.sum) == (4, pytest.approx(9.65))
    assert list(point.bucket_counts) == [2, 1, 1]
    assert list(point.explicit_bounds) == [0.1, 1.0]
    assert attributes_of(point) == {"topic": "t"}
    assert (point.start_time_unix_nano, point.time_unix_nano) == (5, 9)
    assert metric.histogram.aggregation_temporality == 2


def span_of(span: Span) -> Any:
    return trace_pb2.Span.FromString(encode_span(span))


def test_a_span() -> None:
    span = span_of(Span(CONTEXT, b"12345678", "produce t", SpanKind.SERVER, 5, 9, (("n", 2**40),)))
    assert (span.trace_id, span.parent_span_id) == (CONTEXT.trace_id, CONTEXT.span_id)
    assert (span.span_id, span.name, span.trace_state) == (b"12345678", "produce t", "a=b")
    assert span.kind == trace_pb2.Span.SPAN_KIND_SERVER
    assert (span.start_time_unix_nano, span.end_time_unix_nano) == (5, 9)
    assert attributes_of(span) == {"n": 2**40}
    assert span.flags == 0x301
    assert not span.HasField("status")


def test_a_span_that_failed_within_this_process() -> None:
    span = span_of(
        Span(CONTEXT, b"1" * 8, "x", SpanKind.INTERNAL, 5, 9, (), False, error="no replicas")
    )
    assert span.status.code == trace_pb2.Status.STATUS_CODE_ERROR
    assert span.status.message == "no replicas"
    assert span.flags == 0x101


def test_requests_name_the_node() -> None:
    encoded = encode_metric(DEPTH, {(): 1}, start_ns=5, now_ns=9)
    request = metrics_service.ExportMetricsServiceRequest.FromString(
        encode_request(SCOPE, [encoded, encoded])
    )
    (resource,) = request.resource_metrics
    assert attributes_of(resource.resource) == {"service.name": "lograft", "number": -7}
    (scope,) = resource.scope_metrics
    assert (scope.scope.name, scope.scope.version) == ("lograft", "1.2")
    assert [metric.name for metric in scope.metrics] == [DEPTH.name] * 2
    spans = [encode_span(Span(CONTEXT, b"1" * 8, "x", SpanKind.SERVER, 5, 9, ()))]
    traces = trace_service.ExportTraceServiceRequest.FromString(encode_request(SCOPE, spans))
    assert traces.resource_spans[0].scope_spans[0].spans[0].name == "x"


def test_what_the_collector_rejected() -> None:
    metrics = metrics_service.ExportMetricsServiceResponse()
    assert decode_rejected(metrics.SerializeToString()) == 0
    metrics.partial_success.rejected_data_points = 300
    metrics.partial_success.error_message = "too old"
    assert decode_rejected(metrics.SerializeToString()) == 300


@pytest.mark.parametrize("response", [b"<html>", b"\x0a\x7f", b"\x0a\x02\x0a\x00"])
def test_responses_that_are_malformed(response: bytes) -> None:
    with pytest.raises(MalformedTelemetry):
        decode_rejected(response)
