"""Column types of tables to send, and grouping of rows by partition."""

from datetime import UTC, datetime
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from lograft.client.columns.decoder import HEADER_TYPE
from lograft.client.columns.encoder import BLOCK
from lograft.client.columns.tables import (
    NO_PARTITION,
    Chunk,
    check_table,
    choose_partitions,
    group_by_partition,
    row_sizes,
    split_table,
)

NOW_MS = 99_000


def chunks_of(table: pa.Table) -> list[Chunk]:
    table = check_table(table)
    return list(split_table(table, row_sizes(table), NOW_MS))


@pytest.mark.parametrize("unit", ["s", "ms", "us", "ns"])
def test_timestamps_of_every_unit_are_converted_and_null_is_now(unit: str) -> None:
    time = datetime(2024, 5, 6, 7, 8, 9, tzinfo=UTC)
    times = pa.array([time, None], pa.timestamp(unit, tz="UTC"))
    (chunk,) = chunks_of(pa.table({"value": ["a", "b"], "timestamp": times}))
    assert chunk.timestamps_ms.tolist() == [int(time.timestamp()) * 1000, NOW_MS]


def test_integer_timestamps_are_milliseconds() -> None:
    (chunk,) = chunks_of(pa.table({"value": ["a", "b"], "timestamp": [7, None]}))
    assert chunk.timestamps_ms.tolist() == [7, NOW_MS]
    (chunk,) = chunks_of(pa.table({"value": ["a"]}))
    assert chunk.timestamps_ms.tolist() == [NOW_MS]


@pytest.mark.parametrize("kind", [pa.binary(), pa.large_binary(), pa.string(), pa.large_string()])
def test_every_binary_and_string_type_is_sent(kind: pa.DataType) -> None:
    column = pa.array(["a", None, "ccc"], kind)
    (chunk,) = chunks_of(pa.table({"value": column, "key": column}))
    assert chunk.values.to_pylist() == [b"a", None, b"ccc"]
    assert chunk.keys is not None
    assert chunk.keys.to_pylist() == [b"a", None, b"ccc"]


def test_null_columns_are_sent() -> None:
    (chunk,) = chunks_of(pa.table({"value": pa.nulls(2), "key": pa.nulls(2)}))
    assert chunk.values.to_pylist() == [None, None]
    assert chunk.keys is None


def test_row_sizes_are_upper_bounds() -> None:
    lists = pa.array([[{"key": "kk", "value": b"vvv"}] * 2, None, []], HEADER_TYPE)
    table = pa.table({"value": ["a" * 70, None, "c"], "key": ["k", "k", None], "headers": lists})
    assert row_sizes(pa.concat_tables([table, table])).tolist() == [133, 33, 33] * 2


def test_large_table_is_split() -> None:
    table = pa.table({"value": [b"v" * 1_000_000] * 20})
    parts = chunks_of(table)
    assert len(parts) == 3
    assert sum(len(part.values) for part in parts) == 20
    assert len(chunks_of(pa.table({"value": pa.nulls(300_000)}))) == 2


def test_small_arrow_chunks_are_combined() -> None:
    table = pa.concat_tables([pa.table({"value": [f"{i}"]}) for i in range(100)])
    (chunk,) = chunks_of(table)
    assert chunk.values.to_pylist() == [b"%d" % i for i in range(100)]


def test_rows_of_a_partition_keep_their_order() -> None:
    count = 3 * BLOCK
    (chunk,) = chunks_of(pa.table({"value": [f"{i}" for i in range(count)]}))
    partitions = np.arange(count) % 2 + NO_PARTITION
    found: dict[int, list[bytes]] = {NO_PARTITION: [], 0: []}
    for partition, rows in group_by_partition(chunk, partitions):
        assert len(rows.values) <= BLOCK
        found[partition] += rows.values.to_pylist()
    assert found[NO_PARTITION] == [b"%d" % i for i in range(0, count, 2)]
    assert found[0] == [b"%d" % i for i in range(1, count, 2)]


def test_rows_without_key_or_with_ignored_keys_have_no_partition() -> None:
    (chunk,) = chunks_of(pa.table({"value": ["a", "b", "c"], "key": ["21", None, "abc"]}))

    def partitions(by_keys: bool) -> Any:
        return choose_partitions(
            chunk, topic="t", partition=None, partition_count=5, by_keys=by_keys, chooser=None
        ).tolist()

    # Java's murmur2 of "21" and "abc", without the sign bit.
    assert partitions(True) == [(-973932308 & 0x7FFFFFFF) % 5, NO_PARTITION, 479470107 % 5]
    assert partitions(False) == [NO_PARTITION] * 3
