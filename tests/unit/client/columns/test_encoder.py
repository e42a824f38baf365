"""Encoded rows are identical to the batches of the plain encoder, byte by byte."""

from typing import TypeAlias

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lograft.client.columns.decoder import HEADER_TYPE, decode
from lograft.client.columns.encoder import Encoded, Rows, encode
from lograft.client.columns.hashing import murmur2_column
from lograft.client.consuming.slices import Slice
from lograft.client.producing.batches import Batch
from lograft.client.producing.partitioner import murmur2
from lograft.wire.batches import HEADER_SIZE, read_header
from lograft.wire.compression import Codec
from tests.support.scenarios import scenario

Content: TypeAlias = tuple[int, bytes | None, bytes | None, list[tuple[str, bytes | None]]]

lengths = st.sampled_from([0, 1, 5, 62, 63, 64, 200, 8_191, 8_192, 20_000])
blobs = st.none() | lengths.map(lambda size: b"x" * size) | st.binary(max_size=80)
headers = st.lists(st.tuples(st.text(max_size=5), blobs), max_size=3)
times = st.integers(0, 1 << 41) | st.integers(1_000_000, 1_000_300)
contents = st.lists(st.tuples(times, blobs, blobs, headers), min_size=1, max_size=90)


def rows_of(given_contents: list[Content], *, with_keys: bool, with_headers: bool) -> Rows:
    stamps, keys, values, some_headers = zip(*given_contents, strict=True)
    lists = [[{"key": key, "value": value} for key, value in pairs] for pairs in some_headers]
    return Rows(
        pa.array(values, pa.binary()),
        pa.array(keys, pa.binary()) if with_keys else None,
        pa.array(lists, HEADER_TYPE) if with_headers else None,
        np.array(stamps, np.int64),
    )


def batch() -> Batch:
    return Batch("t", 0, 0, (0,))


def whole(encoded: Encoded, codec: Codec = Codec.NONE) -> bytes:
    filled = batch()
    filled.fill(encoded.payload, encoded.count, encoded.base_timestamp, encoded.max_timestamp)
    return bytes(filled.data(codec, None))


@given(
    contents,
    st.booleans(),
    st.booleans(),
    st.sampled_from([1, 100, 1_000, 1 << 20]),
    st.sampled_from(Codec),
)
@settings(deadline=None, max_examples=150)
@scenario()
async def test_batches_equal_those_of_plain_encoder(
    given_contents: list[Content],
    with_keys: bool,
    with_headers: bool,
    batch_bytes: int,
    codec: Codec,
) -> None:
    rows = rows_of(given_contents, with_keys=with_keys, with_headers=with_headers)
    at = 0
    data = b""
    for encoded in encode(rows, batch_bytes):
        plain = batch()
        for stamp, key, value, some_headers in given_contents[at : at + encoded.count]:
            plain.append(
                stamp, key if with_keys else None, value, some_headers if with_headers else ()
            )
        assert whole(encoded, codec) == plain.data(codec, None)
        assert encoded.count == 1 or len(encoded.payload) <= batch_bytes
        at += encoded.count
        data += whole(encoded, codec)
    assert at == len(given_contents)
    table = decode(Slice("t", 0, 0, data), with_headers=True)
    assert table.column("value").to_pylist() == rows.values.to_pylist()
    if rows.keys is not None:
        assert table.column("key").to_pylist() == rows.keys.to_pylist()
    if rows.headers is not None:
        assert table.column("headers").to_pylist() == rows.headers.to_pylist()


def test_batches_are_nearly_full() -> None:
    values = pa.array([b"v" * 100] * 5_000, pa.binary())
    batches = list(encode(Rows(values, None, None, np.full(5_000, 1_000)), 16_384))
    sizes = [len(encoded.payload) for encoded in batches]
    assert max(sizes) <= 16_384
    assert min(sizes[:-1]) > 15_000


@scenario()
async def test_sliced_arrays_are_encoded() -> None:
    """A slice shares the buffers of the whole array."""
    many: list[Content] = [
        (1_000 + i, b"k%d" % i if i % 3 else None, b"v" * i, [("h", b"%d" % i)] * (i % 3))
        for i in range(60)
    ]
    rows = rows_of(many, with_keys=True, with_headers=True)
    some_rows = slice(20, 50)
    assert rows.keys is not None
    assert rows.headers is not None
    part = Rows(
        rows.values[some_rows],
        rows.keys[some_rows],
        rows.headers[some_rows],
        rows.timestamps_ms[some_rows],
    )
    (encoded,) = encode(part, 1 << 20)
    (same,) = encode(rows_of(many[some_rows], with_keys=True, with_headers=True), 1 << 20)
    assert whole(encoded) == whole(same)
    assert read_header(whole(encoded)).record_count == 30
    assert len(whole(encoded)) == HEADER_SIZE + len(encoded.payload)


def test_no_rows_yield_no_batch() -> None:
    empty = Rows(pa.array([], pa.binary()), None, None, np.zeros(0, np.int64))
    assert list(encode(empty, 100)) == []


@given(st.lists(st.none() | st.binary(max_size=140), max_size=50), st.integers(0, 5))
@settings(deadline=None)
def test_column_hashes_equal_single_hashes(keys: list[bytes | None], first: int) -> None:
    hashes = murmur2_column(pa.array(keys, pa.binary())[first:])
    for key, hashed in zip(keys[first:], hashes.tolist(), strict=True):
        if key is not None:
            assert hashed == murmur2(key)


@pytest.mark.parametrize("size", [0, 1, 3, 4, 127, 128, 129, 5_000])
def test_column_hash_of_every_key_length(size: int) -> None:
    key = bytes(i % 251 for i in range(size))
    assert murmur2_column(pa.array([key], pa.binary())).tolist() == [murmur2(key)]
