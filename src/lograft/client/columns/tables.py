"""Tables that are to be sent: what columns they may have, and the rows of each partition."""

from collections.abc import Iterator
from typing import Any, Final, NamedTuple, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lograft.client.columns.encoder import BLOCK, Rows
from lograft.client.columns.hashing import murmur2_column
from lograft.client.columns.varints import Ints
from lograft.client.errors import WrongUse
from lograft.client.producing.partitioner import Chooser, Unplaced

Mask: TypeAlias = np.ndarray[Any, np.dtype[np.bool_]]

COLUMNS: Final = ("key", "value", "headers", "timestamp", "partition")
#: What a record takes besides its content, and each of its headers: at most.
_RECORD_OVERHEAD: Final = 32
_HEADER_OVERHEAD: Final = 10
#: Rows are put in order of their partitions so many bytes at a time.
_CHUNK_BYTES: Final = 8 << 20
_CHUNK_ROWS: Final = 1 << 18
#: Of rows that may go anywhere.
ANYWHERE: Final = -1

_MS_PER_SECOND: Final = 1000
_PER_SECOND: Final = {"s": 1, "ms": 1000, "us": 1_000_000, "ns": 1_000_000_000}


def checked(table: pa.Table | pa.RecordBatch) -> pa.Table:
    """The table, if it can be sent. Raises WrongUse."""
    if isinstance(table, pa.RecordBatch):
        table = pa.Table.from_batches([table])
    unknown = [name for name in table.column_names if name not in COLUMNS]
    if unknown or len(set(table.column_names)) < table.num_columns:
        raise WrongUse(
            f"a table to be sent has the columns {', '.join(COLUMNS)}, each once at most; this one"
            f" has {', '.join(table.column_names)}"
        )
    if "value" not in table.column_names:
        raise WrongUse("a table to be sent has a column `value`; this one has none")
    for field in table.schema:
        if not _fits(field.name, field.type):
            raise WrongUse(f"the column `{field.name}` cannot be sent as {field.type}")
    if "headers" in table.column_names:
        for chunk in table.column("headers").chunks:
            pairs = chunk.flatten()
            if pairs.null_count or pairs.field("key").null_count:
                raise WrongUse("the column `headers` has a header without a key")
    if "partition" in table.column_names:
        least = pc.min(table.column("partition")).as_py()
        if least is not None and least < 0:
            raise WrongUse(
                f"the column `partition` has {least}, but partitions are numbered from 0; a row"
                " that may go anywhere has null"
            )
    return table


def _fits(name: str, kind: pa.DataType) -> bool:
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
    """What each row takes as a record: at most."""
    sizes = np.full(table.num_rows, _RECORD_OVERHEAD, np.int64)
    for name in ("key", "value"):
        if name in table.column_names:
            sizes += _byte_lengths(table.column(name))
    if "headers" in table.column_names:
        at = 0
        for chunk in table.column("headers").chunks:
            pairs = chunk.flatten()
            ends = np.zeros(len(pairs) + 1, np.int64)
            each = _byte_lengths(pairs.field("key")) + _byte_lengths(pairs.field("value"))
            np.cumsum(each + _HEADER_OVERHEAD, out=ends[1:])
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
    """Some rows of a table that follow each other."""

    values: pa.Array
    keys: pa.Array | None
    headers: pa.Array | None
    timestamps_ms: Ints
    #: ANYWHERE where the table does not say; None: it has no such column.
    partitions: Ints | None


def chunks(table: pa.Table, sizes: Ints, now_ms: int) -> Iterator[Chunk]:
    """The table in parts of a few megabytes."""
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
            partitions = np.asarray(pc.fill_null(partitions.cast(pa.int64()), ANYWHERE))
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
    is_given = np.asarray(column.is_valid())
    stamps: Ints = np.asarray(pc.fill_null(column.cast(pa.int64()), 0))
    if per_second >= _MS_PER_SECOND:
        stamps = stamps // (per_second // _MS_PER_SECOND)
    else:
        stamps = stamps * _MS_PER_SECOND
    if (stamps < 0).any():
        raise WrongUse("the column `timestamp` has times before 1970, which records cannot have")
    return np.where(is_given, stamps, now_ms)


def placed(
    chunk: Chunk,
    *,
    topic: str,
    partition: int | None,
    partition_count: int,
    by_keys: bool,
    chooser: Chooser | None,
) -> Ints:
    """The partition of each row, or ANYWHERE: the one that is given for all, the one in its
    column, or the one of its key."""
    count = len(chunk.values)
    if partition is not None:
        return np.full(count, partition, np.int64)
    given = chunk.partitions
    if given is None:
        given = np.full(count, ANYWHERE, np.int64)
    elif int(given.max()) >= partition_count:
        raise WrongUse(
            f"the column `partition` has {given.max()}, but topic {topic!r} has {partition_count}"
            " partitions"
        )
    is_open: Mask = given == ANYWHERE
    if not is_open.any():
        return given
    if chooser is not None:
        placed_rows = given.copy()
        for row in np.flatnonzero(is_open).tolist():
            key = None if chunk.keys is None else chunk.keys[row].as_py()
            value = chunk.values[row].as_py()
            record = Unplaced(topic, key, key, value, value)
            placed_rows[row] = chooser.choose(record, partition_count)
        return placed_rows
    if chunk.keys is None or not by_keys:
        return given
    is_open &= np.asarray(chunk.keys.is_valid())
    return np.where(is_open, murmur2_column(chunk.keys) % partition_count, given)


def by_partition(chunk: Chunk, partitions: Ints) -> Iterator[tuple[int, Rows]]:
    """The rows of each partition in their order, in blocks that can be encoded at once."""
    first = int(partitions[0])
    if (partitions == first).all():
        for block in _blocks(chunk, None):
            yield first, block
        return
    order = np.argsort(partitions, kind="stable")
    counts = np.bincount(partitions - ANYWHERE)
    at = 0
    for partition, count in enumerate(counts.tolist(), ANYWHERE):
        if count:
            for block in _blocks(chunk, order[at : at + count]):
                yield partition, block
            at += count


def _blocks(chunk: Chunk, rows: Ints | None) -> Iterator[Rows]:
    """The given rows, or all of them."""
    count = len(chunk.values) if rows is None else len(rows)
    for at in range(0, count, BLOCK):
        if rows is None:
            some: Any = slice(at, at + BLOCK)
            yield Rows(
                chunk.values[some],
                None if chunk.keys is None else chunk.keys[some],
                None if chunk.headers is None else chunk.headers[some],
                chunk.timestamps_ms[some],
            )
            continue
        some = rows[at : at + BLOCK]
        indices = pa.array(some)
        yield Rows(
            chunk.values.take(indices),
            None if chunk.keys is None else chunk.keys.take(indices),
            None if chunk.headers is None else chunk.headers.take(indices),
            chunk.timestamps_ms[some],
        )
