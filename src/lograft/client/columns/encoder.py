"""Encodes Arrow columns as record batches, without a Python object per record.

The bytes before a key, between key and value and after a value are short columns, computed by
arithmetic on whole columns; Arrow joins them with keys and values element by element. The data of
the joined array are the records one after the other, and a batch is a slice of it.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lograft.client.columns.varints import Ints, Varints, binary_array, pack_columns, varint_width

#: Records that are encoded at once: their columns fit into the CPU caches.
BLOCK: Final = 16_384
_NULL: Final = b"\x01"  # length -1
_ATTRIBUTES: Final = b"\x00"
_NO_HEADERS: Final = b"\x00"
_JOIN: Final = pc.JoinOptions(null_handling="replace", null_replacement="")


class Rows(NamedTuple):
    """Consecutive records of a partition, as columns of the same length."""

    #: Of type binary.
    values: pa.Array
    keys: pa.Array | None
    #: Lists of structs of key and value.
    headers: pa.Array | None
    timestamps_ms: Ints


@dataclass(frozen=True, slots=True)
class Encoded:
    """A batch without its header."""

    payload: memoryview
    count: int
    base_timestamp: int
    max_timestamp: int


def encode(rows: Rows, batch_bytes: int) -> Iterator[Encoded]:
    """Yields the rows in batches of at most `batch_bytes`, without batch headers; a larger row is
    a batch by itself."""
    count = len(rows.values)
    if not count:
        return
    key_lengths = _lengths(rows.keys) if rows.keys is not None else None
    value_lengths = _lengths(rows.values)
    tails, tail_lengths = _tails(rows.headers, count)
    contents: Ints = np.maximum(value_lengths, 0) + tail_lengths
    if key_lengths is not None:
        contents += np.maximum(key_lengths, 0)
    stamps = rows.timestamps_ms
    begins = _split(contents, stamps, batch_bytes)
    counts = np.diff(np.append(begins, count))

    key_part: Varints | bytes = _NULL if key_lengths is None else Varints(key_lengths)
    key_widths = 1 if isinstance(key_part, bytes) else key_part.widths
    value_part = Varints(value_lengths)
    time_deltas = Varints(stamps - np.repeat(stamps[begins], counts))
    offset_deltas = Varints(np.arange(count) - np.repeat(begins, counts))
    bodies: Ints = (
        1 + time_deltas.widths + offset_deltas.widths + key_widths + value_part.widths + contents
    )
    lengths = Varints(bodies)

    head: list[Varints | bytes] = [lengths, _ATTRIBUTES, time_deltas, offset_deltas, key_part]
    if rows.keys is None:
        parts = [pack_columns([*head, value_part]), rows.values, tails]
    else:
        parts = [pack_columns(head), rows.keys, pack_columns([value_part]), rows.values, tails]
    joined = pc.binary_join_element_wise(*parts, b"", options=_JOIN)
    data = memoryview(joined.buffers()[2])
    ends = np.cumsum(lengths.widths + bodies)
    max_stamps = np.maximum.reduceat(stamps, begins).tolist()
    position = 0
    for number, begin in enumerate(begins.tolist()):
        size = int(counts[number])
        end = int(ends[begin + size - 1])
        yield Encoded(data[position:end], size, int(stamps[begin]), max_stamps[number])
        position = end


def _lengths(column: pa.Array) -> Ints:
    """Returns the lengths in bytes; -1 for null."""
    lengths = pc.binary_length(column)
    if column.null_count:
        lengths = pc.fill_null(lengths, -1)
    return np.asarray(lengths).astype(np.int64)


def _tails(headers: pa.Array | None, count: int) -> tuple[pa.Array | pa.Scalar, Ints]:
    """Returns the bytes after each value, the number of headers and the headers, and their
    lengths."""
    if headers is None:
        return pa.scalar(_NO_HEADERS, pa.binary()), np.full(count, len(_NO_HEADERS))
    counts = np.asarray(pc.fill_null(pc.list_value_length(headers), 0)).astype(np.int64)
    pairs = headers.flatten()
    count_parts = Varints(counts)
    if not len(pairs):
        return pack_columns([count_parts]), count_parts.widths
    keys = pairs.field("key").cast(pa.binary())
    values = pairs.field("value").cast(pa.binary())
    key_lengths, value_lengths = _lengths(keys), _lengths(values)
    key_parts, value_parts = Varints(key_lengths), Varints(value_lengths)
    joined = pc.binary_join_element_wise(
        pack_columns([key_parts]), keys, pack_columns([value_parts]), values, b"", options=_JOIN
    )
    sizes = key_parts.widths + key_lengths + value_parts.widths + np.maximum(value_lengths, 0)
    ends = np.concatenate(([0], np.cumsum(sizes)))
    per_row = np.diff(ends[np.concatenate(([0], np.cumsum(counts)))])
    tails = pc.binary_join_element_wise(
        pack_columns([count_parts]), binary_array(joined.buffers()[2], per_row), b"", options=_JOIN
    )
    return tails, count_parts.widths + per_row


def _split(contents: Ints, stamps: Ints, batch_bytes: int) -> Ints:
    """Returns the first row of each batch. The widths of deltas depend on the batches, so their
    upper bounds are used."""
    time_span = int(stamps.max()) - int(stamps.min())
    delta_bytes = varint_width(2 * time_span + 1) + varint_width(2 * len(contents))
    length_bytes = 3 * varint_width(2 * (int(contents.max()) + delta_bytes + 11))
    ends = np.cumsum(contents + (1 + delta_bytes + length_bytes))
    if ends[-1] <= batch_bytes:
        return np.zeros(1, np.int64)
    begins = []
    begin, before = 0, 0
    while begin < len(ends):
        begins.append(begin)
        end = int(np.searchsorted(ends, before + batch_bytes, "right"))
        begin = max(end, begin + 1)
        before = int(ends[begin - 1])
    return np.array(begins, np.int64)
