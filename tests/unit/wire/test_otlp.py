"""Compared with the classes that protobuf generates from OpenTelemetry's own files."""

from math import isnan
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, ArrayValue, KeyValue
from opentelemetry.proto.metrics.v1 import metrics_pb2 as theirs

from lograft.wire.otlp import (
    ATTRIBUTES_MAX,
    TEXT_LENGTH_MAX,
    Decoded,
    MalformedTelemetry,
    Point,
    Temporality,
    decode_metrics,
    encode_metrics,
)

TEXTS = st.text(max_size=20)
KEYS = st.text(min_size=1, max_size=20)
POINTS = st.builds(
    Point,
    name=KEYS,
    attributes=st.lists(st.tuples(KEYS, TEXTS), max_size=3).map(tuple),
    value=st.floats(allow_nan=False),
    is_counter=st.booleans(),
    temporality=st.just(Temporality.CUMULATIVE),
)
ANY = 1_000


def encode(*points: Point) -> bytes:
    return encode_metrics([("group_id", "g")], points, start_ns=5, now_ns=9)


def metrics_of(data: bytes) -> list[theirs.Metric]:
    parsed = theirs.MetricsData.FromString(data)
    return [
        metric
        for resource in parsed.resource_metrics
        for scope in resource.scope_metrics
        for metric in scope.metrics
    ]


def data_of(*metrics: theirs.Metric) -> bytes:
    scope = theirs.ScopeMetrics(metrics=metrics)
    resource = theirs.ResourceMetrics(scope_metrics=[scope])
    return bytes(theirs.MetricsData(resource_metrics=[resource]).SerializeToString())


def attribute(key: str, **value: Any) -> KeyValue:
    return KeyValue(key=key, value=AnyValue(**value))


def test_protobuf_reads_what_we_write() -> None:
    data = encode(
        Point("m", (("topic", "t"),), 1.5),
        Point("m", (), -2),
        Point("n", (), 7, True, Temporality.DELTA),
    )
    gauge, sum_ = metrics_of(data)
    assert gauge.name == "m"
    first, second = gauge.gauge.data_points
    assert (first.as_double, first.time_unix_nano) == (1.5, 9)
    assert [(each.key, each.value.string_value) for each in first.attributes] == [("topic", "t")]
    assert second.as_double == -2
    assert sum_.sum.is_monotonic
    assert sum_.sum.aggregation_temporality == theirs.AGGREGATION_TEMPORALITY_DELTA
    assert sum_.sum.data_points[0].start_time_unix_nano == 5
    (resource,) = theirs.MetricsData.FromString(data).resource_metrics
    assert resource.resource.attributes[0].value.string_value == "g"


def test_we_read_what_protobuf_writes() -> None:
    attributes = [
        attribute("s", string_value="x" * (TEXT_LENGTH_MAX + 5)),
        attribute("b", bool_value=True),
        attribute("i", int_value=-3),
        attribute("d", double_value=0.5),
        attribute("list", array_value=ArrayValue(values=[AnyValue(string_value="v")])),
    ]
    point = theirs.NumberDataPoint(as_int=-4, attributes=attributes)
    many = [attribute(f"k{number}", string_value="v") for number in range(ATTRIBUTES_MAX + 3)]
    data = data_of(
        theirs.Metric(name="g", unit="By", gauge=theirs.Gauge(data_points=[point])),
        theirs.Metric(
            name="s",
            sum=theirs.Sum(
                data_points=[theirs.NumberDataPoint(as_double=2.5, attributes=many)],
                aggregation_temporality=theirs.AGGREGATION_TEMPORALITY_DELTA,
                is_monotonic=True,
            ),
        ),
        theirs.Metric(
            name="h",
            histogram=theirs.Histogram(data_points=[theirs.HistogramDataPoint(count=3)]),
        ),
        theirs.Metric(name="none", gauge=theirs.Gauge(data_points=[theirs.NumberDataPoint()])),
    )
    (first, second), dropped = decode_metrics(data, points_max=ANY)
    text = "x" * TEXT_LENGTH_MAX
    expected = (("s", text), ("b", "true"), ("i", "-3"), ("d", "0.5"))
    assert first == Point("g", expected, -4)
    assert (second.value, second.is_counter, second.temporality) == (2.5, True, Temporality.DELTA)
    assert len(second.attributes) == ATTRIBUTES_MAX
    assert dropped == 2


@given(st.lists(POINTS, max_size=10))
def test_points_survive_both_ways(points: list[Point]) -> None:
    # The points of a metric have one kind.
    kinds = {point.name: point.is_counter for point in points}
    ordered = sorted(
        (point._replace(is_counter=kinds[point.name]) for point in points),
        key=lambda point: point.name,
    )
    assert decode_metrics(encode(*ordered), points_max=ANY) == Decoded(ordered, 0)


def test_points_beyond_the_limit_are_dropped() -> None:
    points = [Point(f"m{number}", (), number) for number in range(10)]
    assert decode_metrics(encode(*points), points_max=4) == Decoded(points[:4], 6)


@pytest.mark.parametrize(
    "data",
    [
        b"metrics",
        b"\x0a\x05ab",
        b"\x0b",
        b"\x0a\xff\xff\xff\xff\xff\xff\xff\xff\xff\x7f",
        b"\x00\x00",
        b"\xff" * 12,
        encode(Point("m", (), 1))[:-1],
        data_of(theirs.Metric(gauge=theirs.Gauge())),
        data_of(theirs.Metric(name="x" * 256)),
        data_of(theirs.Metric(name="s", sum=theirs.Sum(aggregation_temporality=9))),  # type: ignore[arg-type]
        data_of(theirs.Metric(name="abc")).replace(b"abc", b"a\xff\xff"),
    ],
)
def test_malformed_payloads_are_rejected(data: bytes) -> None:
    with pytest.raises(MalformedTelemetry):
        decode_metrics(data, points_max=ANY)


@given(st.binary(max_size=200))
def test_any_bytes_are_decoded_or_rejected(data: bytes) -> None:
    check(data)


@given(st.lists(POINTS, min_size=1, max_size=3), st.data())
def test_damaged_payloads_are_decoded_or_rejected(points: list[Point], data: st.DataObject) -> None:
    damaged = bytearray(encode(*points))
    for _ in range(data.draw(st.integers(1, 4))):
        damaged[data.draw(st.integers(0, len(damaged) - 1))] = data.draw(st.integers(0, 255))
    check(bytes(damaged))


def check(data: bytes) -> None:
    try:
        points, _ = decode_metrics(data, points_max=ANY)
    except MalformedTelemetry:
        return
    for point in points:
        assert point.name
        assert isnan(point.value) or isinstance(point.value, float)
