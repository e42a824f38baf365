"""Tables to send: checks their columns, and groups their rows by partition."""

from collections.abc import Iterator
from typing import Any, Final, NamedTuple, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lograft.client.columns.encoder import BLOCK, Rows
from lograft.client.columns.hashing import murmur2_column
from lograft.client.columns.varints import Ints
from lograft.client.errors import WrongUse
from lograft.client.producing.partitioner import Chooser, UnassignedRecord

Mask: TypeAlias = np.ndarray[Any, np.dtype[np.bool_]]

COLUMNS: Final = ("key", "value", "headers", "timestamp", "partition")
#: Upper bounds of the bytes of a record, and of each header, besides their content.
_RECORD_OVERHEAD: Final = 32
_HEADER_OVERHEAD: Final = 10
#: The bytes and rows that are sorted by partition at once.
_CHUNK_BYTES: Final = 8 << 20
_CHUNK_ROWS: Final = 1 << 18
#: The partition of rows without a partition and a key.
NO_PARTITION: Final = -1

_MS_PER_SECOND: Final = 1000
_PER_SECOND: Final = {"s": 1, "ms": 1000, "us": 1_000_000, "ns": 1_000_000_000}


def check_table(table: pa.Table | pa.RecordBatch) -> pa.Table:
    """Returns the argument as a table. Raises WrongUse if it cannot be sent."""
    if isinstance(table, pa.RecordBatch):
        table = pa.Table.from_batches([table])
    unknown = [name for name in table.column_names if name not in COLUMNS]
    if unknown or len(set(table.column_names)) < table.num_columns:
        raise WrongUse(
            f"the table has the columns {', '.join(table.column_names)}; allowed are"
            f" {', '.join(COLUMNS)}, each at most once"
        )
    if "value" not in table.column_names:
        raise WrongUse("the table has no column `value`")
    for field in table.schema:
        if not _is_supported(field.name, field.type):
            raise WrongUse(
                f"the column `{field.name}` has the type {field.type}, which cannot be sent"
            )
    if "headers" in table.column_names:
        for chunk in table.column("headers").chunks:
            pairs = chunk.flatten()
            if pairs.null_count or pairs.field("key").null_count:
                raise WrongUse("the column `headers` contains a header without a key")
    if "partition" in table.column_names:
        least = pc.min(table.column("partition")).as_py()
        if least is not None and least < 0:
            raise WrongUse(
                f"the column `partition` contains {least}, but partitions are numbered from 0; use"
                " null for rows without a partition"
            )
    return table


def _is_supported(name: str, kind: pa.DataType) -> bool:
    types = pa.types
    if name == "partition":
        return bool(types.is_integer(kind))
    if name == "timestamp":
        return bool(types.is_timestamp(kind) or types.is_integer(kind))
    if name == "headers":
        return bool(
            (types.is_list(kind) or types.is_large_list(kind))
            and types.is_struct(kind.value_type)
            and {field.name for field in kind.value_type} == {"key", "value"}
            and all(_is_bytes(field.type) for field in kind.value_type)
        )
    return _is_bytes(kind)


def _is_bytes(kind: pa.DataType) -> bool:
    types = pa.types
    return bool(
        types.is_binary(kind)
        or types.is_large_binary(kind)
        or types.is_string(kind)
        or types.is_large_string(kind)
        or types.is_null(kind)
    )


def row_sizes(table: pa.Table) -> Ints:
    """Returns an upper bound of the size of each row as a record."""
    sizes = np.full(table.num_rows, _RECORD_OVERHEAD, np.int64)
    for name in ("key", "value"):
        if name in table.column_names:
            sizes += _byte_lengths(table.column(name))
    if "headers" in table.column_names:
        at = 0
        for chunk in table.column("headers").chunks:
            pairs = chunk.flatten()
            ends = np.zeros(len(pairs) + 1, np.int64)
            header_sizes = _byte_lengths(pairs.field("key")) + _byte_lengths(pairs.field("value"))
            np.cumsum(header_sizes + _HEADER_OVERHEAD, out=ends[1:])
            counts = np.asarray(pc.fill_null(pc.list_value_length(chunk), 0))
            bounds = np.concatenate(([0], np.cumsum(counts)))
            sizes[at : at + len(chunk)] += np.diff(ends[bounds])
            at += len(chunk)
    return sizes


def _byte_lengths(column: pa.Array | pa.ChunkedArray) -> Ints:
    if pa.types.is_null(column.type):
        return np.zeros(len(column), np.int64)
    return np.asarray(pc.fill_null(pc.binary_length(column), 0)).astype(np.int64)


class Chunk(NamedTuple):
    """Consecutive rows of a table."""

    values: pa.Array
    keys: pa.Array | None
    headers: pa.Array | None
    timestamps_ms: Ints
    #: NO_PARTITION for null; None if the table has no such column.
    partitions: Ints | None


def split_table(table: pa.Table, sizes: Ints, now_ms: int) -> Iterator[Chunk]:
    """Yields the table in chunks of a few megabytes."""
    ends = np.cumsum(sizes)
    begin, before = 0, 0
    while begin < len(sizes):
        end = int(np.searchsorted(ends, before + _CHUNK_BYTES, "right"))
        end = min(max(end, begin + 1), begin + _CHUNK_ROWS)
        part = table.slice(begin, end - begin).combine_chunks()

        def column(name: str, part: pa.Table = part) -> pa.Array | None:
            return part.column(name).chunk(0) if name in part.column_names else None

        keys, partitions = column("key"), column("partition")
        if partitions is not None:
            partitions = np.asarray(pc.fill_null(partitions.cast(pa.int64()), NO_PARTITION))
        yield Chunk(
            part.column("value").chunk(0).cast(pa.binary()),
            None if keys is None or keys.null_count == len(keys) else keys.cast(pa.binary()),
            column("headers"),
            _milliseconds(column("timestamp"), end - begin, now_ms),
            partitions,
        )
        begin, before = end, int(ends[end - 1])


def _milliseconds(column: pa.Array | None, count: int, now_ms: int) -> Ints:
    if column is None:
        return np.full(count, now_ms, np.int64)
    per_second = _MS_PER_SECOND
    if pa.types.is_timestamp(column.type):
        per_second = _PER_SECOND[column.type.unit]
    has_value = np.asarray(column.is_valid())
    stamps: Ints = np.asarray(pc.fill_null(column.cast(pa.int64()), 0))
    if per_second >= _MS_PER_SECOND:
        stamps = stamps // (per_second // _MS_PER_SECOND)
    else:
        stamps = stamps * _MS_PER_SECOND
    if (stamps < 0).any():
        raise WrongUse(
            "the column `timestamp` contains a time before 1970, which a record cannot have"
        )
    return np.where(has_value, stamps, now_ms)


def choose_partitions(
    chunk: Chunk,
    *,
    topic: str,
    partition: int | None,
    partition_count: int,
    by_keys: bool,
    chooser: Chooser | None,
) -> Ints:
    """Returns the partition of each row: `partition`, the one in its column, the one of its key, or
    NO_PARTITION."""
    count = len(chunk.values)
    if partition is not None:
        return np.full(count, partition, np.int64)
    requested = chunk.partitions
    if requested is None:
        requested = np.full(count, NO_PARTITION, np.int64)
    elif int(requested.max()) >= partition_count:
        raise WrongUse(
            f"the column `partition` contains {requested.max()}, but topic {topic!r} has"
            f" {partition_count} partitions"
        )
    is_unassigned: Mask = requested == NO_PARTITION
    if not is_unassigned.any():
        return requested
    if chooser is not None:
        chosen = requested.copy()
        for row in np.flatnonzero(is_unassigned).tolist():
            key = None if chunk.keys is None else chunk.keys[row].as_py()
            value = chunk.values[row].as_py()
            record = UnassignedRecord(topic, key, key, value, value)
            chosen[row] = chooser.choose(record, partition_count)
        return chosen
    if chunk.keys is None or not by_keys:
        return requested
    is_unassigned &= np.asarray(chunk.keys.is_valid())
    return np.where(is_unassigned, murmur2_column(chunk.keys) % partition_count, requested)


def group_by_partition(chunk: Chunk, partitions: Ints) -> Iterator[tuple[int, Rows]]:
    """Yields the rows of each partition in order, in blocks that are encoded at once."""
    first = int(partitions[0])
    if (partitions == first).all():
        for block in _blocks(chunk, None):
            yield first, block
        return
    order = np.argsort(partitions, kind="stable")
    counts = np.bincount(partitions - NO_PARTITION)
    at = 0
    for partition, count in enumerate(counts.tolist(), NO_PARTITION):
        if count:
            for block in _blocks(chunk, order[at : at + count]):
                yield partition, block
            at += count


def _blocks(chunk: Chunk, rows: Ints | None) -> Iterator[Rows]:
    """Yields the given rows, or all rows."""
    count = len(chunk.values) if rows is None else len(rows)
    for at in range(0, count, BLOCK):
        if rows is None:
            block: Any = slice(at, at + BLOCK)
            yield Rows(
                chunk.values[block],
                None if chunk.keys is None else chunk.keys[block],
                None if chunk.headers is None else chunk.headers[block],
                chunk.timestamps_ms[block],
            )
            continue
        block = rows[at : at + BLOCK]
        indices = pa.array(block)
        yield Rows(
            chunk.values.take(indices),
            None if chunk.keys is None else chunk.keys.take(indices),
            None if chunk.headers is None else chunk.headers.take(indices),
            chunk.timestamps_ms[block],
        )
