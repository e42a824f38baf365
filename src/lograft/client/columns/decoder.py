"""Record batches as Arrow columns, without a Python object per record.

First, `record_starts.py` finds where the records start. All else is arithmetic on whole columns:
varints by take and mask, keys and values as Arrow arrays over the fetched bytes, from which `take`
gathers the bytes of each.

Every length in a record is checked against the record's end before it is used, and the parts of a
record must fill it.
"""

from collections.abc import Sequence
from typing import Any, Final, NamedTuple, TypeAlias

import numpy as np
import pyarrow as pa

from lograft.client.columns.record_starts import Bytes, Ints, find_record_starts
from lograft.client.consuming.completed_fetches import BATCH_BYTES_MAX
from lograft.client.consuming.slices import Slice, visible_batches
from lograft.model.seams import Buffer
from lograft.wire.batches import CODEC_MASK, HEADER_SIZE, BatchHeader, MalformedBatch
from lograft.wire.compression import decompress

Mask: TypeAlias = np.ndarray[Any, np.dtype[np.bool_]]

#: Records that are decoded at once: their columns fit into the CPU caches.
_BLOCK: Final = 16_384
#: The limit of Arrow's 32-bit offsets.
_POSITIONS_MAX: Final = (1 << 31) - 1
#: The largest timestamp that fits into 64 bits in microseconds.
_TIME_MS_MAX: Final = ((1 << 63) - 1) // 1000
#: The values of varints with one byte.
_ZIGZAG: Final = np.array([(byte >> 1) ^ -(byte & 1) for byte in range(128)], np.int64)

HEADER_TYPE: Final = pa.list_(
    pa.struct([pa.field("key", pa.string(), nullable=False), pa.field("value", pa.binary())])
)
SCHEMA: Final = pa.schema(
    [
        pa.field("key", pa.binary()),
        pa.field("value", pa.binary()),
        pa.field("topic", pa.string(), nullable=False),
        pa.field("partition", pa.int32(), nullable=False),
        pa.field("offset", pa.int64(), nullable=False),
        pa.field("timestamp", pa.timestamp("us", tz="UTC"), nullable=False),
        pa.field("timestampType", pa.int32(), nullable=False),
    ]
)
SCHEMA_WITH_HEADERS: Final = SCHEMA.append(pa.field("headers", HEADER_TYPE))


class Records(NamedTuple):
    """The records of several batches, one row each."""

    #: The bytes into which all positions point.
    data: Bytes
    offsets: Ints
    timestamps_ms: Ints
    is_log_append: Mask
    #: Starts and ends; a length of -1 (end before start) is null.
    keys: tuple[Ints, Ints]
    values: tuple[Ints, Ints]
    header_counts: Ints
    #: Starts of the headers, and ends of the records.
    headers: tuple[Ints, Ints]


class _Part(NamedTuple):
    """The records of one batch: where they end, their number, and the header of the batch."""

    end: int
    records: int
    header: BatchHeader


class _Layout(NamedTuple):
    """Uncompressed records in one buffer."""

    data: Bytes
    #: The start of each record.
    begins: Ints
    parts: Sequence[_Part]


def decode(
    fetched: Slice,
    *,
    with_headers: bool = False,
    checks_crcs: bool = True,
    batch_bytes_max: int = BATCH_BYTES_MAX,
) -> pa.RecordBatch:
    """Returns the visible records of a slice. Raises BatchCorrupt or MalformedBatch."""
    records = _records_of(_lay_out(fetched, checks_crcs, batch_bytes_max))
    if len(records.offsets) and records.offsets[0] < fetched.first_offset:
        records = _from_offset(records, fetched.first_offset)
    return to_arrow(records, fetched.topic, fetched.partition, with_headers=with_headers)


def _lay_out(fetched: Slice, checks_crcs: bool, bytes_max: int) -> _Layout:
    """Uncompressed batches are read in place; if any batch is compressed, all are copied into one
    buffer. Each batch is completed before the next: computing its CRC brings it into the CPU cache,
    where its record starts are found several times faster than in memory."""
    data = fetched.data
    if len(data) > _POSITIONS_MAX:
        raise MalformedBatch(f"{len(data)} fetched bytes are more than can be decoded at once")
    batches = visible_batches(fetched, checks_crcs=checks_crcs)
    starts: list[Ints] = []
    parts: list[_Part] = []
    if not any(batch.header.attributes & CODEC_MASK for batch in fetched.batches):
        whole = np.frombuffer(data, np.uint8)
        for position, header in batches:
            end = position + header.size_bytes
            count = header.record_count
            starts += find_record_starts(data, whole, position + HEADER_SIZE, end, count)
            parts.append(_Part(end, count, header))
        return _Layout(whole, _concatenate(starts), parts)
    view = memoryview(data)
    pieces: list[Buffer] = []
    size = 0
    for position, header in batches:
        packed = view[position + HEADER_SIZE : position + header.size_bytes]
        piece = decompress(header.attributes & CODEC_MASK, packed, bytes_max)
        pieces.append(piece)
        found = find_record_starts(
            piece, np.frombuffer(piece, np.uint8), 0, len(piece), header.record_count
        )
        starts += [piece_starts + np.int32(size) for piece_starts in found]
        size += len(piece)
        if size > _POSITIONS_MAX:
            raise MalformedBatch("a fetch has more decompressed bytes than can be decoded at once")
        parts.append(_Part(size, header.record_count, header))
    return _Layout(np.frombuffer(b"".join(pieces), np.uint8), _concatenate(starts), parts)


def _concatenate(starts: Sequence[Ints]) -> Ints:
    return np.concatenate(starts) if starts else np.zeros(0, np.int32)


def _records_of(layout: _Layout) -> Records:
    rows = _rows_of(layout)
    blocks = [
        _read_block(layout.data, rows.part(at, at + _BLOCK))
        for at in range(0, len(layout.begins), _BLOCK)
    ]
    if len(blocks) == 1:
        return blocks[0]
    return _concatenate_blocks(layout.data, blocks)


class _Rows(NamedTuple):
    """What is known of each record before it is read: its position, and fields of its batch."""

    begins: Ints
    ends: Ints
    base_offsets: Ints
    base_timestamps: Ints
    max_timestamps: Ints
    is_log_append: Mask

    def part(self, begin: int, end: int) -> "_Rows":
        return _Rows(*(column[begin:end] for column in self))  # type: ignore[arg-type]


def _rows_of(layout: _Layout) -> _Rows:
    begins, parts = layout.begins, [part for part in layout.parts if part.records]
    counts = np.array([part.records for part in parts], np.int64)
    headers = [part.header for part in parts]

    def repeat(fields: list[int], kind: Any = np.int64) -> Any:
        return np.repeat(np.array(fields, kind), counts)

    # The last record of a batch ends with it, every other where the next one starts.
    ends = np.empty_like(begins)
    ends[:-1] = begins[1:]
    ends[np.cumsum(counts) - 1] = [part.end for part in parts]
    return _Rows(
        begins,
        ends,
        repeat([header.base_offset for header in headers]),
        repeat([header.base_timestamp for header in headers]),
        repeat([header.max_timestamp for header in headers]),
        repeat([header.timestamp_type_log_append for header in headers], np.bool_),
    )


def _read_block(data: Bytes, rows: _Rows) -> Records:
    """Decodes at least one record. Positions only grow, so checking the last position of a record
    covers the ones before it."""
    ends = rows.ends
    lengths, bodies = _varints(data, rows.begins)
    # Validates the chain that `find_record_starts` followed.
    _require(lengths == ends - bodies, "the length of a record does not match its content")

    deltas, position = _varints(data, bodies + 1)
    offset_deltas, position = _varints(data, position)
    key_lengths, key_begins = _varints(data, position)
    key_ends = _after(key_lengths, key_begins, ends, "key")
    value_lengths, value_begins = _varints(data, np.maximum(key_ends, key_begins))
    value_ends = _after(value_lengths, value_begins, ends, "value")
    header_counts, header_begins = _varints(data, np.maximum(value_ends, value_begins))
    _require(header_counts >= 0, "a record has a negative number of headers")
    _require(
        (header_begins == ends) | (header_counts > 0) & (header_begins < ends),
        "the length of a record does not match its content",
    )

    timestamps = rows.base_timestamps + deltas
    if _any(rows.is_log_append):
        timestamps = np.where(rows.is_log_append, rows.max_timestamps, timestamps)
    return Records(
        data,
        rows.base_offsets + offset_deltas,
        timestamps,
        rows.is_log_append,
        (key_begins, key_ends),
        (value_begins, value_ends),
        header_counts,
        (header_begins, ends),
    )


def _concatenate_blocks(data: Bytes, blocks: Sequence[Records]) -> Records:
    if not blocks:
        empty = np.zeros(0, np.int64)
        pair = (empty, empty)
        return Records(data, empty, empty, empty > 0, pair, pair, empty, pair)

    def column(name: str) -> Any:
        parts = [getattr(block, name) for block in blocks]
        if isinstance(parts[0], tuple):
            return tuple(np.concatenate(pair) for pair in zip(*parts, strict=True))
        return np.concatenate(parts)

    return Records(data, *(column(name) for name in Records._fields[1:]))


def table_of(batches: Sequence[pa.RecordBatch], *, with_headers: bool) -> pa.Table:
    """Returns the record batches of several partitions as one table."""
    schema = SCHEMA_WITH_HEADERS if with_headers else SCHEMA
    return pa.Table.from_batches(batches, schema=schema)


def to_arrow(
    records: Records, topic: str, partition: int, *, with_headers: bool = False
) -> pa.RecordBatch:
    count = len(records.offsets)
    columns = [
        _binary(records.data, *records.keys),
        _binary(records.data, *records.values),
        _constant(topic, pa.string(), count),
        _numbers(np.full(count, partition, np.int32), pa.int32()),
        _numbers(records.offsets, pa.int64()),
        _numbers(_microseconds(records), SCHEMA.field("timestamp").type),
        _numbers(records.is_log_append.astype(np.int32), pa.int32()),
    ]
    if with_headers:
        columns.append(_headers(records))
    schema = SCHEMA_WITH_HEADERS if with_headers else SCHEMA
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def _microseconds(records: Records) -> Ints:
    """Raises MalformedBatch for a timestamp (such as nanoseconds instead of milliseconds) that
    would overflow."""
    times = records.timestamps_ms
    for at in (times.argmin(), times.argmax()) if len(times) else ():
        if abs(int(times[at])) > _TIME_MS_MAX:
            raise MalformedBatch(
                f"the record at offset {records.offsets[at]} has the timestamp {times[at]} ms,"
                " which does not fit into a column of microseconds; poll() returns it as an int"
            )
    return times * 1000


# ── numbers and bytes of whole columns ───────────────────────────────────────────────────────


def _varints(data: Bytes, positions: Ints) -> tuple[Ints, Ints]:
    """Returns the zigzag varints at these positions, and the positions after them. Raises
    MalformedBatch at the end of the data; the caller checks the ends of records."""
    try:
        byte = data.take(positions)
        after = positions + 1
        has_more = byte >= 0x80
        if not _any(has_more):
            return _ZIGZAG.take(byte), after
        raw = (byte & 0x7F).astype(np.int64)
        more = np.flatnonzero(has_more)
        shift = 7
        while len(more):
            if shift > 63:
                raise MalformedBatch("a varint has more than ten bytes")
            if len(more) == len(positions):
                byte = data.take(after)
                raw |= (byte & 0x7F).astype(np.int64) << shift
                after += 1
            else:
                byte = data.take(after[more])
                # Bits of the tenth byte beyond the 64th are dropped, as in Java.
                raw[more] |= (byte & 0x7F).astype(np.int64) << shift
                after[more] += 1
            more = more[byte >= 0x80]
            shift += 7
    except IndexError:
        raise MalformedBatch("a record is incomplete") from None
    zigzag = (raw.view(np.uint64) >> np.uint64(1)).view(np.int64) ^ -(raw & 1)
    return zigzag, after


def _after(lengths: Ints, begins: Ints, ends: Ints, what: str) -> Ints:
    """Returns the ends of keys or values. A length of -1 is null: its end is before its start."""
    _require(lengths >= -1, f"a {what} has a negative length")
    # Compared before they are added: a length of 2^62 must not wrap around.
    _require(lengths <= ends - begins, f"a {what} is longer than its record")
    return (begins + lengths).astype(np.int32)


def _require(holds: Mask, problem: str) -> None:
    if not _all(holds):
        raise MalformedBatch(problem)


def _all(mask: Mask) -> bool:
    """Like `mask.all()`, for at least one element. numpy's method is implemented in Python and
    takes three times as long for a few thousand."""
    return bool(mask[mask.argmin()])


def _any(mask: Mask) -> bool:
    return bool(mask[mask.argmax()])


def _binary(data: Bytes, begins: Ints, ends: Ints) -> pa.Array:
    """Returns the bytes between each start and end; null if the end is before the start.

    The offsets of an Arrow array alternate between starts and ends, so that every other element is
    a value and the ones between are gaps; `take` copies the values.
    """
    count = len(begins)
    if not count:
        return pa.array([], pa.binary())
    is_null = ends < begins
    bounds = np.empty(2 * count, np.int32)
    bounds[0::2] = begins
    bounds[1::2] = ends
    validity = None
    if _any(is_null):
        if _all(is_null):
            return pa.nulls(count, pa.binary())
        np.maximum(ends, begins, out=bounds[1::2])
        valid = np.ones(2 * count - 1, np.bool_)
        valid[0::2] = ~is_null
        validity = pa.py_buffer(np.packbits(valid, bitorder="little"))
    whole = pa.Array.from_buffers(
        pa.binary(), 2 * count - 1, [validity, pa.py_buffer(bounds), pa.py_buffer(data)]
    )
    return whole.take(_numbers(np.arange(0, 2 * count, 2, dtype=np.int32), pa.int32()))


def _numbers(column: Ints, kind: pa.DataType) -> pa.Array:
    """Wraps numpy's memory. (pa.array would import pandas to check the type.)"""
    return pa.Array.from_buffers(kind, len(column), [None, pa.py_buffer(column)])


def _constant(value: str, kind: pa.DataType, count: int) -> pa.Array:
    return pa.repeat(pa.scalar(value, kind), count)


def _headers(records: Records) -> pa.Array:
    """Decodes the first header of all records that have one, the second of those that have two,
    and so on; then sorts them by record."""
    counts = records.header_counts
    positions, ends = records.headers
    rows = np.flatnonzero(counts)
    bounds = _numbers(np.concatenate(([0], np.cumsum(counts))).astype(np.int32), pa.int32())
    if not len(rows):
        empty = pa.array([], HEADER_TYPE.value_type)
        return pa.ListArray.from_arrays(bounds, empty, type=HEADER_TYPE)
    positions, ends = positions[rows].copy(), ends[rows]
    # A header has at least two bytes.
    _require(counts[rows] <= (ends - positions) // 2, "headers do not fit in their record")
    found: list[tuple[Ints, ...]] = []
    header_number = 0
    while len(rows):
        key_lengths, key_begins = _varints(records.data, positions)
        _require(key_lengths >= 0, "a record header has no key")
        key_ends = _after(key_lengths, key_begins, ends, "header's key")
        value_lengths, value_begins = _varints(records.data, key_ends)
        value_ends = _after(value_lengths, value_begins, ends, "header's value")
        found.append((rows, key_begins, key_ends, value_begins, value_ends))
        header_number += 1
        positions = np.maximum(value_ends, value_begins)
        is_last = counts[rows] == header_number
        _require(
            ~is_last | (positions == ends), "the length of a record does not match its content"
        )
        rows, positions, ends = rows[~is_last], positions[~is_last], ends[~is_last]
    owner, *bounds_ = (np.concatenate(column) for column in zip(*found, strict=True))
    order = np.argsort(owner, kind="stable")
    key_begins, key_ends, value_begins, value_ends = (column[order] for column in bounds_)
    try:
        keys = _binary(records.data, key_begins, key_ends).cast(pa.string())
    except pa.ArrowInvalid:
        raise MalformedBatch("a record header's key is not UTF-8") from None
    values = _binary(records.data, value_begins, value_ends)
    pairs = pa.StructArray.from_arrays([keys, values], fields=list(HEADER_TYPE.value_type))
    return pa.ListArray.from_arrays(bounds, pairs, type=HEADER_TYPE)


def _from_offset(records: Records, first_offset: int) -> Records:
    """Drops records before the requested offset: the first batch may start earlier."""
    keep = records.offsets >= first_offset

    def both(columns: tuple[Ints, Ints]) -> tuple[Ints, Ints]:
        return columns[0][keep], columns[1][keep]

    return Records(
        records.data,
        records.offsets[keep],
        records.timestamps_ms[keep],
        records.is_log_append[keep],
        both(records.keys),
        both(records.values),
        records.header_counts[keep],
        both(records.headers),
    )
