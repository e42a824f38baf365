"""Record batches as Arrow columns, without a Python object per record.

Where records begin is a chain (each says how long it is), so it is followed first: by leaps where
neighbours are of equal length, else by a plain loop over the lengths alone. All else is arithmetic
on whole columns: numbers of variable length by take and mask, keys and values as Arrow arrays over
the fetched bytes, from which `take` gathers what lies between their ends.

Every position that a record names is checked against the record's end before it is used.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple, TypeAlias

import numpy as np
import pyarrow as pa

from lograft.client.consuming.fetched import Batch, Slice, visible_batches
from lograft.model.seams import Buffer
from lograft.wire.batches import CODEC_MASK, HEADER_SIZE, MalformedBatch
from lograft.wire.compression import decompress

#: Positions have 32 bits, all else 64.
Ints: TypeAlias = np.ndarray[Any, np.dtype[np.signedinteger[Any]]]
Bytes: TypeAlias = np.ndarray[Any, np.dtype[np.uint8]]
Mask: TypeAlias = np.ndarray[Any, np.dtype[np.bool_]]

#: What a consumer takes of one compressed batch when it is unpacked.
BATCH_BYTES_MAX: Final = 256 << 20
#: A number of 64 bits takes at most ten bytes.
_VARINT_BYTES_MAX: Final = 10
#: A record has at least a byte for each: length, attributes, two deltas, two lengths, a count.
_RECORD_BYTES_MIN: Final = 7
#: Records that are decoded at a time: their columns stay in the processor's caches.
_BLOCK: Final = 16_384
#: Finding out that fewer neighbours are of equal length costs more than walking past them; after
#: so many disappointments the rest of a batch is walked.
_RUN_MIN: Final = 64
_MISSES_MAX: Final = 2
#: Arrow's 32-bit offsets end here; larger inputs are decoded in parts.
_POSITIONS_MAX: Final = (1 << 31) - 1

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
    """The records of some batches, each a row of these columns."""

    #: What positions point into.
    data: Bytes
    offsets: Ints
    timestamps_ms: Ints
    is_log_append: Mask
    #: Begin and end; a length of -1 (end before begin) is null.
    keys: tuple[Ints, Ints]
    values: tuple[Ints, Ints]
    header_counts: Ints
    #: Where the headers of each record begin and where the record ends.
    headers: tuple[Ints, Ints]


@dataclass(frozen=True, slots=True)
class _Layout:
    """Batches whose records lie uncompressed in one buffer."""

    raw: Buffer
    #: The same bytes.
    data: Bytes
    #: Of each batch: where its records begin and end, and its header.
    parts: Sequence[tuple[int, int, Batch]]


def decode(
    fetched: Slice,
    *,
    with_headers: bool = False,
    checks_crcs: bool = True,
    batch_bytes_max: int = BATCH_BYTES_MAX,
) -> pa.RecordBatch:
    """All records of a slice that its reader is to see. Raises BatchCorrupt or MalformedBatch."""
    batches = list(visible_batches(fetched, checks_crcs=checks_crcs))
    records = decode_records(fetched.data, batches, batch_bytes_max=batch_bytes_max)
    if len(records.offsets) and records.offsets[0] < fetched.first_offset:
        records = _from_offset(records, fetched.first_offset)
    return to_arrow(records, fetched.topic, fetched.partition, with_headers=with_headers)


def decode_records(
    data: Buffer, batches: Sequence[Batch], *, batch_bytes_max: int = BATCH_BYTES_MAX
) -> Records:
    layout = _lay_out(data, batches, batch_bytes_max)
    begins, counts = _starts(layout)
    facts = _facts_of_batches(layout)
    parts = np.repeat(np.arange(len(counts)), counts)
    # The last record of a batch ends with it, every other where the next one begins.
    ends = np.append(begins[1:], facts.ends[-1:])
    ends[np.cumsum(counts)[counts > 0] - 1] = facts.ends[counts > 0]
    blocks = [
        _read_block(layout.data, begins[block], ends[block], parts[block], facts)
        for block in (slice(at, at + _BLOCK) for at in range(0, len(parts), _BLOCK))
    ]
    if len(blocks) == 1:
        return blocks[0]
    return _joined(layout.data, blocks)


class _Facts(NamedTuple):
    """Of the batches' headers, a row each."""

    ends: Ints
    base_offsets: Ints
    base_timestamps: Ints
    max_timestamps: Ints
    is_log_append: Mask


def _facts_of_batches(layout: _Layout) -> _Facts:
    headers = [batch.header for _, _, batch in layout.parts]
    return _Facts(
        np.array([end for _, end, _ in layout.parts], np.int32),
        np.array([one.base_offset for one in headers], np.int64),
        np.array([one.base_timestamp for one in headers], np.int64),
        np.array([one.max_timestamp for one in headers], np.int64),
        np.array([one.timestamp_type_log_append for one in headers], np.bool_),
    )


def _read_block(data: Bytes, begins: Ints, ends: Ints, parts: Ints, facts: _Facts) -> Records:
    """Some records, given where each begins and ends and which batch it is of."""
    lengths, bodies = _varints(data, begins, ends)
    # Only now is it known that the chain was followed rightly.
    _require(lengths == ends - bodies, "a record's length is wrong")
    _require(lengths >= _RECORD_BYTES_MIN - 1, "a record's length is not possible")

    deltas, position = _varints(data, bodies + 1, ends)
    offset_deltas, position = _varints(data, position, ends)
    key_lengths, key_begins = _varints(data, position, ends)
    key_ends = _after(key_lengths, key_begins, ends, "key")
    value_lengths, value_begins = _varints(data, np.maximum(key_ends, key_begins), ends)
    value_ends = _after(value_lengths, value_begins, ends, "value")
    header_counts, header_begins = _varints(data, np.maximum(value_ends, value_begins), ends)
    _require(header_counts >= 0, "a negative count of headers")
    _require((header_counts > 0) | (header_begins == ends), "a record is not as long as it says")

    is_log_append = facts.is_log_append[parts]
    timestamps = facts.base_timestamps[parts] + deltas
    if is_log_append.any():
        timestamps = np.where(is_log_append, facts.max_timestamps[parts], timestamps)
    return Records(
        data,
        facts.base_offsets[parts] + offset_deltas,
        timestamps,
        is_log_append,
        (key_begins, key_ends),
        (value_begins, value_ends),
        header_counts,
        (header_begins, ends),
    )


def _joined(data: Bytes, blocks: Sequence[Records]) -> Records:
    if not blocks:
        none = np.zeros(0, np.int64)
        nothing = (none, none)
        return Records(data, none, none, none > 0, nothing, nothing, none, nothing)

    def column(name: str) -> Any:
        parts = [getattr(block, name) for block in blocks]
        if isinstance(parts[0], tuple):
            return tuple(np.concatenate(pair) for pair in zip(*parts, strict=True))
        return np.concatenate(parts)

    return Records(data, *(column(name) for name in Records._fields[1:]))


def to_arrow(
    records: Records, topic: str, partition: int, *, with_headers: bool = False
) -> pa.RecordBatch:
    count = len(records.offsets)
    columns = [
        _binary(records.data, *records.keys),
        _binary(records.data, *records.values),
        _constant(topic, pa.string(), count),
        pa.array(np.full(count, partition, np.int32)),
        pa.array(records.offsets),
        pa.array(records.timestamps_ms * 1000).cast(SCHEMA.field("timestamp").type),
        pa.array(records.is_log_append.astype(np.int32)),
    ]
    if with_headers:
        columns.append(_headers(records))
    schema = SCHEMA_WITH_HEADERS if with_headers else SCHEMA
    return pa.RecordBatch.from_arrays(columns, schema=schema)


# ── where records begin ──────────────────────────────────────────────────────────────────────


def _lay_out(data: Buffer, batches: Sequence[Batch], bytes_max: int) -> _Layout:
    """Batches that are not compressed are read where they lie; if any is, all are put into one
    buffer."""
    if len(data) > _POSITIONS_MAX:
        raise MalformedBatch(f"a fetch of {len(data)} bytes is more than can be decoded at once")
    if not any(batch.header.attributes & CODEC_MASK for batch in batches):
        parts = [
            (batch.position + HEADER_SIZE, batch.position + batch.header.size_bytes, batch)
            for batch in batches
        ]
        return _Layout(data, np.frombuffer(data, np.uint8), parts)
    view = memoryview(data)
    pieces: list[Buffer] = []
    parts = []
    size = 0
    for batch in batches:
        header = batch.header
        packed = view[batch.position + HEADER_SIZE : batch.position + header.size_bytes]
        piece = decompress(header.attributes & CODEC_MASK, packed, bytes_max)
        pieces.append(piece)
        parts.append((size, size + len(piece), batch))
        size += len(piece)
        if size > _POSITIONS_MAX:
            raise MalformedBatch("a fetch unpacks to more than can be decoded at once")
    whole = b"".join(pieces)
    return _Layout(whole, np.frombuffer(whole, np.uint8), parts)


def _starts(layout: _Layout) -> tuple[Ints, Ints]:
    """Where each record begins, and how many each batch has.

    Lengths are taken at their word here: `_read_block` checks that every record ends where the next
    one begins, so a chain that went astray is found out before anything of it is used.
    """
    counts = []
    chains: list[Ints] = []
    for begin, end, batch in layout.parts:
        count = batch.header.record_count
        if count < 0 or count * _RECORD_BYTES_MIN > end - begin:
            raise MalformedBatch(f"{count} records do not fit in {end - begin} bytes")
        counts.append(count)
        if _follow(layout, begin, end, count, chains) != end:
            raise MalformedBatch("the records do not fill their batch")
    begins = np.concatenate(chains) if chains else np.zeros(0, np.int32)
    return begins, np.array(counts, np.int64)


def _follow(layout: _Layout, begin: int, end: int, count: int, chains: list[Ints]) -> int:
    """Adds where the records of one batch begin; returns where the last one ends."""
    position = begin
    misses = 0 if count >= _RUN_MIN else _MISSES_MAX
    while count and misses < _MISSES_MAX:
        run, stride = _equal_run(layout.data, position, end, count)
        chains.append(np.arange(position, position + stride * run, stride, dtype=np.int32))
        position += stride * run
        count -= run
        misses += run < _RUN_MIN
    if count:
        walked, position = _walk(layout.raw, position, count)
        chains.append(np.array(walked, np.int32))
    return position


def _equal_run(data: Bytes, position: int, end: int, count: int) -> tuple[int, int]:
    """How many records from here on are as long as the first (at least that one), and how long."""
    width, length = _length_at(data[position : min(position + _VARINT_BYTES_MAX, end)])
    stride = width + length
    if length < _RECORD_BYTES_MIN - 1 or position + stride > end:
        raise MalformedBatch("a record's length is not possible")
    leap = min(count, (end - position) // stride)
    whole = data[position : position + leap * stride].reshape(leap, stride)
    is_same = whole[:, 0] == whole[0, 0]
    for byte in range(1, width):
        is_same &= whole[:, byte] == whole[0, byte]
    run = leap if is_same.all() else int(is_same.argmin())
    return run, stride


def _length_at(data: Bytes) -> tuple[int, int]:
    """Of a varint: how many bytes it takes, and its value."""
    value = shift = 0
    for width, byte in enumerate(data.tolist(), 1):
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return width, (value >> 1) ^ -(value & 1)
        shift += 7
    raise MalformedBatch("the records are cut short")


def _walk(raw: Buffer, position: int, count: int) -> tuple[list[int], int]:
    """Follows the chain one by one: where the records begin, and where the last one ends. The only
    loop over records, so it looks at their lengths only and checks nothing."""
    found: list[int] = []
    add = found.append
    try:
        for _ in range(count):
            add(position)
            byte = raw[position]
            if byte < 0x80:
                position += (byte >> 1) + 1
                continue
            second = raw[position + 1]
            if second < 0x80:
                position += (byte & 0x7E | second << 7) // 2 + 2
                continue
            value, shift = byte & 0x7F | (second & 0x7F) << 7, 14
            position += 2
            while (byte := raw[position]) >= 0x80:
                value |= (byte & 0x7F) << shift
                shift += 7
                position += 1
            position += ((value | byte << shift) >> 1) + 1
    except IndexError:
        raise MalformedBatch("the records are cut short") from None
    return found, position


# ── numbers and bytes of whole columns ───────────────────────────────────────────────────────


def _varints(data: Bytes, positions: Ints, ends: Ints) -> tuple[Ints, Ints]:
    """The zigzag numbers at these positions, and the positions after them."""
    _require(positions < ends, "a record is cut short")
    byte = data.take(positions)
    after = positions + 1
    goes_on = byte >= 0x80
    if not goes_on.any():
        small = byte.astype(np.int64)
        return (small >> 1) ^ -(small & 1), after
    raw = (byte & 0x7F).astype(np.int64)
    more = np.flatnonzero(goes_on)
    shift = 7
    while len(more):
        if shift > 63:
            raise MalformedBatch("a number of more than ten bytes")
        if len(more) == len(positions):
            _require(after < ends, "a record is cut short")
            byte = data.take(after)
            raw |= (byte & 0x7F).astype(np.int64) << shift
            after += 1
        else:
            where = after[more]
            _require(where < ends[more], "a record is cut short")
            byte = data.take(where)
            # The tenth byte's bits beyond the 64th fall off the end, as in Java.
            raw[more] |= (byte & 0x7F).astype(np.int64) << shift
            after[more] += 1
        more = more[byte >= 0x80]
        shift += 7
    zigzag = (raw.view(np.uint64) >> np.uint64(1)).view(np.int64) ^ -(raw & 1)
    return zigzag, after


def _after(lengths: Ints, begins: Ints, ends: Ints, what: str) -> Ints:
    """Where keys or values end; -1 as a length is null, and its end lies before its begin."""
    _require(lengths >= -1, f"a negative length of a {what}")
    # Compared before they are added: a length of 2^62 must not wrap around.
    _require(lengths <= ends - begins, f"a {what} is longer than its record")
    return (begins + lengths).astype(np.int32)


def _require(holds: Mask, problem: str) -> None:
    if not holds.all():
        raise MalformedBatch(problem)


def _binary(data: Bytes, begins: Ints, ends: Ints) -> pa.Array:
    """The bytes between each begin and end; null where the end comes first.

    Arrow's offsets alternate between begins and ends, so that every other element is wanted and
    those between them are what lies in between; `take` copies the wanted ones together.
    """
    count = len(begins)
    if not count:
        return pa.array([], pa.binary())
    is_null = ends < begins
    if is_null.all():
        return pa.nulls(count, pa.binary())
    bounds = np.empty(2 * count, np.int32)
    bounds[0::2] = begins
    bounds[1::2] = np.maximum(ends, begins)
    validity = None
    if is_null.any():
        valid = np.ones(2 * count - 1, np.bool_)
        valid[0::2] = ~is_null
        validity = pa.py_buffer(np.packbits(valid, bitorder="little"))
    whole = pa.Array.from_buffers(
        pa.binary(), 2 * count - 1, [validity, pa.py_buffer(bounds), pa.py_buffer(data)]
    )
    return whole.take(pa.array(np.arange(0, 2 * count, 2, dtype=np.int32)))


def _constant(value: str, kind: pa.DataType, count: int) -> pa.Array:
    return pa.repeat(pa.scalar(value, kind), count)


def _headers(records: Records) -> pa.Array:
    """Header by header: the first of all records that have one, the second of those that have two,
    and so on; then back into the order of the records."""
    counts = records.header_counts
    positions, ends = records.headers
    rows = np.flatnonzero(counts)
    positions, ends = positions[rows].copy(), ends[rows]
    # A header takes at least two bytes.
    _require(counts[rows] <= (ends - positions) // 2, "headers do not fit in their record")
    found: list[tuple[Ints, ...]] = []
    round_ = 0
    while len(rows):
        key_lengths, key_begins = _varints(records.data, positions, ends)
        _require(key_lengths >= 0, "a record header without a key")
        key_ends = _after(key_lengths, key_begins, ends, "header's key")
        value_lengths, value_begins = _varints(records.data, key_ends, ends)
        value_ends = _after(value_lengths, value_begins, ends, "header's value")
        found.append((rows, key_begins, key_ends, value_begins, value_ends))
        round_ += 1
        positions = np.maximum(value_ends, value_begins)
        is_last = counts[rows] == round_
        _require(~is_last | (positions == ends), "a record is not as long as it says")
        rows, positions, ends = rows[~is_last], positions[~is_last], ends[~is_last]
    bounds = pa.array(np.concatenate(([0], np.cumsum(counts))).astype(np.int32))
    if not found:
        empty = pa.array([], HEADER_TYPE.value_type)
        return pa.ListArray.from_arrays(bounds, empty, type=HEADER_TYPE)
    owner, *places = (np.concatenate(column) for column in zip(*found, strict=True))
    order = np.argsort(owner, kind="stable")
    key_begins, key_ends, value_begins, value_ends = (place[order] for place in places)
    try:
        keys = _binary(records.data, key_begins, key_ends).cast(pa.string())
    except pa.ArrowInvalid:
        raise MalformedBatch("a record header's key is not UTF-8") from None
    values = _binary(records.data, value_begins, value_ends)
    pairs = pa.StructArray.from_arrays([keys, values], fields=list(HEADER_TYPE.value_type))
    return pa.ListArray.from_arrays(bounds, pairs, type=HEADER_TYPE)


def _from_offset(records: Records, first_offset: int) -> Records:
    """The first batch may begin before the offset that was asked for."""
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
