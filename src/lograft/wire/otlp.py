"""OpenTelemetry's metrics as clients push them (KIP-714): the protobuf message MetricsData.

Only what such pushes need: numbers with attributes, as gauges and sums. A few dozen lines replace
protobuf's runtime and generated classes, which every client would otherwise have to install.
Messages, with their field numbers:

    MetricsData      1 resource_metrics
    ResourceMetrics  1 resource (1 attributes), 2 scope_metrics (2 metrics)
    Metric           1 name, 5 gauge, 7 sum (2 temporality, 3 is_monotonic), each with 1 data_points
    NumberDataPoint  7 attributes, 2 start time, 3 time, 4 as_double, 6 as_int
    KeyValue         1 key, 2 value (1 string, 2 bool, 3 int, 4 double)

Decoding is bounded: lengths lie within the payload, nesting is that of the messages above, and at
most `points_max` points are kept. Histograms and summaries are checked, but not kept.
"""

from collections.abc import Iterable, Iterator
from enum import IntEnum
from itertools import groupby
from struct import Struct
from sys import intern
from typing import Final, NamedTuple

from lograft.wire.errors import WireError
from lograft.wire.varints import uvarint

_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
_DOUBLE: Final = Struct("<d")
_FIXED: Final = Struct("<Q")
_SIGNED: Final = Struct("<q")
_VARINT_BYTES_MAX: Final = 10
#: Maximum number of attributes of a point; further attributes are dropped.
ATTRIBUTES_MAX: Final = 16
#: In characters; a longer name is malformed, the text of an attribute is cut.
NAME_LENGTH_MAX: Final = 255
TEXT_LENGTH_MAX: Final = 255


class MalformedTelemetry(WireError):
    """The payload is not OpenTelemetry's MetricsData."""


class Temporality(IntEnum):
    UNSPECIFIED = 0
    DELTA = 1
    CUMULATIVE = 2


class Point(NamedTuple):
    """One number of one metric."""

    name: str
    #: Names and values.
    attributes: tuple[tuple[str, str], ...]
    value: float
    #: A sum that only increases; otherwise a gauge.
    is_counter: bool = False
    temporality: Temporality = Temporality.CUMULATIVE


class Decoded(NamedTuple):
    points: list[Point]
    #: Points that were not kept: histograms, summaries, and those beyond the limit.
    dropped: int


# ── encoding ─────────────────────────────────────────────────────────────────────────────────


def encode_metrics(
    resource: Iterable[tuple[str, str]],
    points: Iterable[Point],
    *,
    start_ns: int,
    now_ns: int,
) -> bytes:
    """Returns MetricsData. Points of one metric must follow each other. `start_ns`: since when
    sums count."""
    metrics = b"".join(
        encode_field(2, _metric(name, list(group), start_ns, now_ns))
        for name, group in groupby(points, key=lambda point: point.name)
    )
    attributes = b"".join(encode_field(1, encode_attribute(*each)) for each in resource)
    return encode_field(1, encode_field(1, attributes) + encode_field(2, metrics))


def _metric(name: str, points: list[Point], start_ns: int, now_ns: int) -> bytes:
    first = points[0]
    numbers = b"".join(encode_field(1, _number(point, start_ns, now_ns)) for point in points)
    if first.is_counter:
        kind = encode_field(7, numbers + bytes((0x10, first.temporality, 0x18, 1)))
    else:
        kind = encode_field(5, numbers)
    return encode_field(1, name.encode()) + kind


def _number(point: Point, start_ns: int, now_ns: int) -> bytes:
    attributes = b"".join(encode_field(7, encode_attribute(*each)) for each in point.attributes)
    start = b"\x11" + _FIXED.pack(start_ns) if point.is_counter else b""
    return start + b"\x19" + _FIXED.pack(now_ns) + b"\x21" + _DOUBLE.pack(point.value) + attributes


def encode_attribute(key: str, value: str | int) -> bytes:
    if isinstance(value, int):
        encoded = b"\x18" + uvarint(value & 0xFFFF_FFFF_FFFF_FFFF)
    else:
        encoded = encode_field(1, value.encode())
    return encode_field(1, key.encode()) + encode_field(2, encoded)


def encode_field(number: int, content: bytes) -> bytes:
    """Returns a field of bytes, text or a message. The number is below 16."""
    return bytes((number << 3 | _BYTES,)) + uvarint(len(content)) + content


# ── decoding ─────────────────────────────────────────────────────────────────────────────────


def decode_metrics(data: bytes, *, points_max: int) -> Decoded:
    """Raises MalformedTelemetry."""
    points: list[Point] = []
    dropped = 0
    for metric in _metrics(memoryview(data)):
        for point in _points(metric):
            if point is None or len(points) >= points_max:
                dropped += 1
            else:
                points.append(point)
    return Decoded(points, dropped)


def _metrics(data: memoryview) -> Iterator[memoryview]:
    for resource_metrics in iterate_messages(data, 1):
        for scope_metrics in iterate_messages(resource_metrics, 2):
            yield from iterate_messages(scope_metrics, 2)


def _points(metric: memoryview) -> Iterator[Point | None]:
    """Yields None for a point that is no number."""
    name = ""
    kinds: list[tuple[int, memoryview]] = []
    for number, content in iterate_fields(metric):
        if number == 1:
            name = _text(_as_bytes(content), "the name of a metric", NAME_LENGTH_MAX)
        elif number in (5, 7, 9, 10, 11):
            kinds.append((number, _as_bytes(content)))
    if not name:
        raise MalformedTelemetry("a metric has no name")
    for number, content in kinds:
        if number in (5, 7):
            yield from _numbers(intern(name), content, is_sum=number == 7)
        else:
            for point in iterate_messages(content, 1):
                _check(point)
                yield None


def _numbers(name: str, data: memoryview, *, is_sum: bool) -> Iterator[Point | None]:
    points: list[memoryview] = []
    temporality, is_monotonic = Temporality.CUMULATIVE, False
    for number, content in iterate_fields(data):
        if number == 1:
            points.append(_as_bytes(content))
        elif is_sum and number == 2:
            temporality = _temporality(content)
        elif is_sum and number == 3:
            is_monotonic = bool(content)
    for point in points:
        yield _point(name, point, is_monotonic, temporality)


def _temporality(content: int | memoryview) -> Temporality:
    if content not in tuple(Temporality):
        raise MalformedTelemetry(f"a sum has the temporality {content!r}")
    assert isinstance(content, int)
    return Temporality(content)


def _point(name: str, data: memoryview, is_counter: bool, temporality: Temporality) -> Point | None:
    value: float | None = None
    attributes: list[tuple[str, str]] = []
    for number, content in iterate_fields(data):
        if number == 4:
            value = _DOUBLE.unpack(_as_fixed64(content))[0]
        elif number == 6:
            value = float(_SIGNED.unpack(_as_fixed64(content))[0])
        elif number == 7:
            attribute = _attribute(_as_bytes(content))
            if attribute is not None and len(attributes) < ATTRIBUTES_MAX:
                attributes.append(attribute)
    if value is None:
        return None
    return Point(name, tuple(attributes), value, is_counter, temporality)


def _attribute(data: memoryview) -> tuple[str, str] | None:
    """Returns None for an attribute that is a list or map."""
    key, text = "", None
    for number, content in iterate_fields(data):
        if number == 1:
            key = _text(_as_bytes(content), "the key of an attribute", NAME_LENGTH_MAX)
        elif number == 2:
            text = _any_value(_as_bytes(content))
    return None if not key or text is None else (intern(key), intern(text))


def _any_value(data: memoryview) -> str | None:
    text = None
    for number, content in iterate_fields(data):
        if number == 1:
            text = _text(_as_bytes(content), "an attribute", None)[:TEXT_LENGTH_MAX]
        elif number == 2:
            text = "true" if content else "false"
        elif number == 3:
            if not isinstance(content, int):
                raise MalformedTelemetry("an integer is not a varint")
            text = str(content - (1 << 64) if content >> 63 else content)
        elif number == 4:
            text = repr(_DOUBLE.unpack(_as_fixed64(content))[0])
    return text


def iterate_messages(data: memoryview, number: int) -> Iterator[memoryview]:
    """Yields the messages in one field."""
    for each, content in iterate_fields(data):
        if each == number:
            yield _as_bytes(content)


def _check(data: memoryview) -> None:
    for _ in iterate_fields(data):
        pass


def iterate_fields(data: memoryview) -> Iterator[tuple[int, int | memoryview]]:
    """Yields the number and content of each field: an int for a varint, otherwise bytes."""
    position, end = 0, len(data)
    content: int | memoryview
    while position < end:
        key, position = _varint(data, position)
        kind = key & 7
        if kind == _VARINT:
            content, position = _varint(data, position)
        elif kind == _BYTES:
            size, start = _varint(data, position)
            position = start + size
            content = data[start:position]
        elif kind in (_FIXED64, _FIXED32):
            start, position = position, position + (8 if kind == _FIXED64 else 4)
            content = data[start:position]
        else:
            raise MalformedTelemetry(f"a field has the wire type {kind}")
        if position > end:
            raise MalformedTelemetry("a field is longer than its message")
        if not key >> 3:
            raise MalformedTelemetry("a field has the number 0")
        yield key >> 3, content


def _varint(data: memoryview, position: int) -> tuple[int, int]:
    value = 0
    for index, byte in enumerate(data[position : position + _VARINT_BYTES_MAX]):
        value |= (byte & 127) << (7 * index)
        if byte < 128:
            if value >> 64:
                raise MalformedTelemetry("a varint has more than 64 bits")
            return value, position + index + 1
    raise MalformedTelemetry("a varint does not end")


def _as_bytes(content: int | memoryview) -> memoryview:
    if isinstance(content, int):
        raise MalformedTelemetry("a message is a varint")
    return content


def _as_fixed64(content: int | memoryview) -> memoryview:
    if isinstance(content, int) or len(content) != 8:
        raise MalformedTelemetry("a number does not have 8 bytes")
    return content


def _text(data: memoryview, what: str, length_max: int | None) -> str:
    try:
        text = str(data, "utf-8")
    except UnicodeDecodeError:
        raise MalformedTelemetry(f"{what} is not UTF-8") from None
    if length_max is not None and len(text) > length_max:
        raise MalformedTelemetry(f"{what} has more than {length_max} characters")
    return text


def is_cumulative(point: Point) -> bool:
    """Whether the last value of the point is complete: a gauge, or a sum since its start."""
    return not point.is_counter or point.temporality is not Temporality.DELTA
