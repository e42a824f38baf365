"""Decoded columns contain the same records as the plain reader returns; corrupt data is
rejected."""

from random import Random
from typing import TypeAlias

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lograft.client.columns.decoder import SCHEMA, SCHEMA_WITH_HEADERS, decode
from lograft.client.consuming.completed_fetches import CompletedFetch
from lograft.client.consuming.slices import Aborted, BatchCorrupt, Slice
from lograft.wire.batches import (
    HEADER_SIZE,
    MalformedBatch,
    Record,
    RecordHeader,
    build_batch,
    read_header,
    read_records,
)
from lograft.wire.compression import Codec
from lograft.wire.errors import WireError

Content: TypeAlias = tuple[int, bytes | None, bytes | None, tuple[RecordHeader, ...]]

BIG = 1 << 30

lengths = st.sampled_from([0, 1, 5, 62, 63, 64, 200, 8_191, 8_192, 20_000])
blobs = st.none() | lengths.map(lambda size: b"x" * size) | st.binary(max_size=80)
headers = st.lists(st.builds(RecordHeader, st.text(max_size=5), blobs), max_size=3).map(tuple)
contents = st.tuples(st.integers(-(1 << 40), 1 << 40), blobs, blobs, headers)
batches = st.tuples(st.lists(contents, min_size=1, max_size=40), st.sampled_from(Codec))


def rows(table: pa.RecordBatch) -> list[tuple[object, ...]]:
    found: list[tuple[object, ...]] = []
    for row in table.to_pylist():
        pairs = tuple(RecordHeader(header["key"], header["value"]) for header in row["headers"])
        stamp = row["timestamp"]
        found.append((row["offset"], row["key"], row["value"], pairs, stamp))
    return found


def expected(data: bytes) -> list[tuple[object, ...]]:
    found: list[tuple[object, ...]] = []
    position = 0
    while position < len(data):
        batch = data[position : position + read_header(data, position).size_bytes]
        stamps = pa.array(
            [record.timestamp * 1000 for record in read_records(batch, bytes_max=BIG)]
        ).cast(SCHEMA.field("timestamp").type)
        found += [
            (record.offset, record.key, record.value, record.headers, stamp.as_py())
            for record, stamp in zip(read_records(batch, bytes_max=BIG), stamps, strict=True)
        ]
        position += len(batch)
    return found


def next_offset(data: bytes) -> int:
    return CompletedFetch(Slice("t", 0, 0, data)).next_offset


def records_of(values: list[bytes], *, first: int = 0) -> list[Record]:
    return [Record(first + i, 1_000 + i, None, value) for i, value in enumerate(values)]


@given(st.lists(batches, min_size=1, max_size=4))
@settings(deadline=None, max_examples=60)
def test_columns_equal_records_of_plain_reader(
    given_batches: list[tuple[list[Content], Codec]],
) -> None:
    data = b""
    offset = 100
    for some_contents, codec in given_batches:
        records = []
        for timestamp, key, value, some_headers in some_contents:
            records.append(Record(offset, timestamp % (1 << 41), key, value, some_headers))
            offset += 1
        data += build_batch(records, compression=codec)
        offset += 3
    table = decode(Slice("t", 7, 0, data), with_headers=True)
    assert table.schema == SCHEMA_WITH_HEADERS
    assert rows(table) == expected(data)
    assert set(table.column("partition").to_pylist()) == {7}
    assert set(table.column("topic").to_pylist()) == {"t"}
    assert next_offset(data) == offset - 3


@pytest.mark.parametrize("sizes", [[100] * 40_000, [50] * 70 + [51] * 70 + [3] * 300, range(2_000)])
def test_runs_of_equal_length_are_decoded(sizes: list[int]) -> None:
    values = [b"v" * size for size in sizes]
    data = build_batch(records_of(values))
    table = decode(Slice("t", 0, 0, data))
    assert table.column("value").to_pylist() == values
    assert table.column("offset").to_pylist() == list(range(len(values)))


def test_many_small_batches_are_decoded() -> None:
    data = b"".join(build_batch(records_of([b"v%d" % i], first=i)) for i in range(3_000))
    table = decode(Slice("t", 0, 0, data))
    assert table.column("value").to_pylist() == [b"v%d" % i for i in range(3_000)]


def test_empty_slice_is_an_empty_table() -> None:
    assert decode(Slice("t", 0, 0, b"")).num_rows == 0
    assert decode(Slice("t", 0, 0, b""), with_headers=True).schema == SCHEMA_WITH_HEADERS


def test_records_before_the_first_offset_are_dropped() -> None:
    data = build_batch(records_of([b"a", b"b", b"c"], first=10))
    table = decode(Slice("t", 0, 11, data))
    assert table.column("offset").to_pylist() == [11, 12]
    assert decode(Slice("t", 0, 13, data)).num_rows == 0


def test_incomplete_last_batch_is_ignored() -> None:
    first = build_batch(records_of([b"a"]))
    second = build_batch(records_of([b"b"], first=1))
    assert decode(Slice("t", 0, 0, first + second[:-1])).num_rows == 1
    assert next_offset(first + second[:-1]) == 1


def test_log_append_time_applies_to_all_records() -> None:
    data = build_batch(records_of([b"a", b"b"]), log_append_time_ms=5_000)
    table = decode(Slice("t", 0, 0, data))
    assert table.column("timestampType").to_pylist() == [1, 1]
    assert [stamp.timestamp() for stamp in table.column("timestamp").to_pylist()] == [5.0, 5.0]


def test_timestamp_that_overflows_is_rejected() -> None:
    last_ms = ((1 << 63) - 1) // 1000
    fits = decode(Slice("t", 0, 0, build_batch([Record(0, last_ms, None, b"a")])))
    assert fits.column("timestamp").cast(pa.int64()).to_pylist() == [last_ms * 1000]
    data = build_batch([Record(0, 5, None, b"a"), Record(1, 1_700_000_000 * 10**9, None, b"b")])
    with pytest.raises(MalformedBatch, match="offset 1 has the timestamp 1700000000000000000 ms"):
        decode(Slice("t", 0, 0, data))


def marker(offset: int, producer_id: int, *, commits: bool) -> bytes:
    key = (0).to_bytes(2, "big") + int(commits).to_bytes(2, "big")
    record = Record(offset, 0, key, bytes(6))
    return build_batch([record], producer_id=producer_id, transactional=True, control=True)


def test_aborted_transactions_are_skipped_until_their_marker() -> None:
    def data_batch(offset: int, producer_id: int) -> bytes:
        return build_batch(
            records_of([b"%d" % producer_id], first=offset),
            producer_id=producer_id,
            transactional=True,
        )

    data = b"".join(
        [
            data_batch(0, 1),
            data_batch(1, 2),
            data_batch(2, 1),
            marker(3, 1, commits=False),
            data_batch(4, 1),
            marker(5, 2, commits=True),
            build_batch(records_of([b"plain"], first=6)),
            marker(7, 1, commits=True),
        ]
    )
    committed = decode(Slice("t", 0, 0, data, [Aborted(1, 0)]))
    assert committed.column("offset").to_pylist() == [1, 4, 6]
    everything = decode(Slice("t", 0, 0, data))
    assert everything.column("offset").to_pylist() == [0, 1, 2, 4, 6]
    assert next_offset(data) == 8


def test_flipped_bit_is_detected_if_crcs_are_checked() -> None:
    data = bytearray(build_batch(records_of([b"aaaa"])))
    data[-2] ^= 1
    with pytest.raises(BatchCorrupt, match="offsets 0 to 0 has a bad CRC; seek to 1"):
        decode(Slice("t", 0, 0, data))
    assert decode(Slice("t", 0, 0, data), checks_crcs=False).num_rows == 1


def test_corrupt_records_raise_or_decode_like_plain_reader() -> None:
    """Without CRC checks, corrupt bytes cause an error in both readers, or the same records in
    both."""
    random = Random(11)
    whole = build_batch(
        [
            Record(i, 5, b"key%d" % i, b"v" * random.randrange(90), (RecordHeader("h", b"x"),))
            for i in range(90)
        ]
    )
    rejected = 0
    for _ in range(600):
        data = bytearray(whole)
        for _ in range(random.randrange(1, 4)):
            data[random.randrange(HEADER_SIZE, len(data))] = random.randrange(256)
        try:
            table = decode(Slice("t", 0, 0, bytes(data)), with_headers=True, checks_crcs=False)
        except WireError:
            rejected += 1
            with pytest.raises(MalformedBatch):
                read_records(bytes(data), bytes_max=BIG)
        else:
            plain = read_records(bytes(data), bytes_max=BIG)
            assert table.column("value").to_pylist() == [record.value for record in plain]
    assert 100 < rejected < 600
