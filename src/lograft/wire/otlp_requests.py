"""OTLP: the requests that a node sends to an OpenTelemetry collector, and its responses.

The messages of `otlp`, and those below, with their field numbers:

    Export…Request    1 resource_metrics or resource_spans
    ResourceMetrics   1 resource, 2 scope_metrics (1 scope, 2 metrics); ResourceSpans alike
    Metric            1 name, 2 description, 3 unit, 5 gauge, 7 sum, 9 histogram
    Histogram         1 data_points, 2 temporality
    HistogramPoint    2 start, 3 time, 4 count, 5 sum, 6 bucket_counts, 7 bounds, 9 attributes
    Span              1 trace, 2 span, 3 state, 4 parent, 5 name, 6 kind, 7 start, 8 end,
                      9 attributes, 15 status (2 message, 3 code), 16 flags
    Export…Response   1 partial_success (1 rejected)
"""

from collections.abc import Iterable, Mapping
from enum import IntEnum
from struct import Struct
from typing import Final, NamedTuple

from lograft.model.metrics import Buckets, Counter, Histogram, Metric, Value
from lograft.model.trace_context import TraceContext
from lograft.wire.otlp import (
    MalformedTelemetry,
    Temporality,
    encode_attribute,
    encode_field,
    iterate_fields,
    iterate_messages,
)

_DOUBLE: Final = Struct("<d")
_FIXED: Final = Struct("<Q")
#: Of OpenTelemetry: UCUM.
_UNITS: Final = {"seconds": "s", "bytes": "By", "ratio": "1"}
#: Whether the parent is in another process is known, and it is.
_PARENT_IS_REMOTE: Final = 0x300
_PARENT_IS_LOCAL: Final = 0x100
_STATUS_ERROR: Final = 2

AttributeValue = str | int


class Scope(NamedTuple):
    """Who measured: the same for everything that a node sends."""

    name: str
    version: str
    #: Attributes of the resource.
    resource: tuple[tuple[str, AttributeValue], ...]


class SpanKind(IntEnum):
    INTERNAL = 1
    SERVER = 2


class Span(NamedTuple):
    #: The trace and the parent.
    context: TraceContext
    span_id: bytes
    name: str
    kind: SpanKind
    start_ns: int
    end_ns: int
    attributes: tuple[tuple[str, AttributeValue], ...]
    is_parent_remote: bool = True
    #: Empty: it succeeded.
    error: str = ""


def encode_metric(
    metric: Metric, series: Mapping[tuple[str, ...], Value], *, start_ns: int, now_ns: int
) -> bytes:
    """Returns a Metric with these series. `start_ns`: since when counters count."""
    times = b"\x11" + _FIXED.pack(start_ns) + b"\x19" + _FIXED.pack(now_ns)
    names = [label.name for label in metric.labels]
    points = bytearray()
    for labels, value in series.items():
        attributes = list(zip(names, labels, strict=True))
        if isinstance(value, Buckets):
            assert isinstance(metric, Histogram)
            point = _histogram_point(times, metric.bounds, value) + _attributes(9, attributes)
        else:
            point = times + b"\x21" + _DOUBLE.pack(value) + _attributes(7, attributes)
        points += encode_field(1, point)
    cumulative = bytes((0x10, Temporality.CUMULATIVE))
    if isinstance(metric, Histogram):
        data = encode_field(9, bytes(points) + cumulative)
    elif isinstance(metric, Counter):
        data = encode_field(7, bytes(points) + cumulative + b"\x18\x01")
    else:
        data = encode_field(5, bytes(points))
    unit = _UNITS.get(metric.unit, "1")
    return (
        encode_field(1, metric.name.encode())
        + encode_field(2, metric.help.encode())
        + encode_field(3, unit.encode())
        + data
    )


def _histogram_point(times: bytes, bounds: tuple[float, ...], buckets: Buckets) -> bytes:
    counts = Struct(f"<{len(buckets.counts)}Q").pack(*buckets.counts)
    return (
        times
        + b"\x21"
        + _FIXED.pack(sum(buckets.counts))
        + b"\x29"
        + _DOUBLE.pack(buckets.sum)
        + encode_field(6, counts)
        + encode_field(7, Struct(f"<{len(bounds)}d").pack(*bounds))
    )


def encode_span(span: Span) -> bytes:
    context = span.context
    status = b""
    if span.error:
        message = encode_field(2, span.error.encode())
        status = encode_field(15, message + bytes((0x18, _STATUS_ERROR)))
    flags = context.flags | (_PARENT_IS_REMOTE if span.is_parent_remote else _PARENT_IS_LOCAL)
    return b"".join(
        (
            encode_field(1, context.trace_id),
            encode_field(2, span.span_id),
            encode_field(3, context.state.encode()) if context.state else b"",
            encode_field(4, context.span_id),
            encode_field(5, span.name.encode()),
            bytes((0x30, span.kind)),
            b"\x39" + _FIXED.pack(span.start_ns),
            b"\x41" + _FIXED.pack(span.end_ns),
            _attributes(9, span.attributes),
            status,
            # Field 16: its key has two bytes.
            b"\x85\x01" + flags.to_bytes(4, "little"),
        )
    )


def encode_request(scope: Scope, encoded: Iterable[bytes]) -> bytes:
    """Returns the request to export these metrics, or these spans."""
    resource = encode_field(1, _attributes(1, scope.resource))
    who = encode_field(1, scope.name.encode()) + encode_field(2, scope.version.encode())
    items = b"".join(encode_field(2, each) for each in encoded)
    return encode_field(1, resource + encode_field(2, encode_field(1, who) + items))


def _attributes(number: int, attributes: Iterable[tuple[str, AttributeValue]]) -> bytes:
    return b"".join(encode_field(number, encode_attribute(*each)) for each in attributes)


def decode_rejected(response: bytes) -> int:
    """Returns how many points or spans the collector rejected. Raises MalformedTelemetry."""
    rejected = 0
    for partial in iterate_messages(memoryview(response), 1):
        for number, content in iterate_fields(partial):
            if number == 1:
                if not isinstance(content, int) or content >> 63:
                    raise MalformedTelemetry("the number of rejected items is not a count")
                rejected = content
    return rejected
