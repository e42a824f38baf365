import pytest
from hypothesis import given
from hypothesis import strategies as st

from lograft.wire.batches import (
    CRC_START,
    HEADER_SIZE,
    MalformedBatch,
    Record,
    RecordHeader,
    UnsupportedMagic,
    build_batch,
    check_crc,
    increment_sequence,
    iterate_headers,
    patch,
    patch_timestamp,
    read_header,
    read_records,
    whole_batches_size,
)
from lograft.wire.compression import Codec
from lograft.wire.errors import MalformedMessage

TIMESTAMP = 1_700_000_000_000
#: One record "k" → "v" at 1700000000000, as Apache Kafka's producer writes it.
GOLDEN = bytes.fromhex(
    "0000000000000000"  # base offset
    "0000003a"  # length
    "ffffffff02"  # leader epoch, magic
)

records = st.lists(
    st.builds(
        Record,
        st.just(0),
        st.integers(0, 2**45),
        st.none() | st.binary(max_size=20),
        st.none() | st.binary(max_size=50),
        st.lists(
            st.builds(RecordHeader, st.text(max_size=5), st.none() | st.binary(max_size=5)),
            max_size=3,
        ).map(tuple),
    ),
    min_size=1,
    max_size=10,
).map(lambda found: [record._replace(offset=100 + i) for i, record in enumerate(found)])


@given(records, st.sampled_from(list(Codec)))
def test_built_batches_are_read(found: list[Record], codec: Codec) -> None:
    batch = build_batch(found, compression=codec, producer_id=7, producer_epoch=1, base_sequence=3)
    assert read_records(batch, bytes_max=1 << 20) == found
    header = read_header(batch)
    assert header.size_bytes == len(batch)
    assert header.compression == codec
    assert header.last_offset == 100 + len(found) - 1
    assert header.max_timestamp == max(record.timestamp for record in found)
    assert header.last_sequence == 3 + len(found) - 1
    assert check_crc(batch, 0, len(batch))


def test_layout_matches_kafka() -> None:
    batch = build_batch([Record(0, TIMESTAMP, b"k", b"v")])
    assert batch[:17] == GOLDEN
    assert batch[HEADER_SIZE:] == bytes.fromhex("10 00 00 00 02 6b 02 76 00")
    assert len(batch) == HEADER_SIZE + 9


def test_patching_keeps_the_crc_valid() -> None:
    batch = bytearray(build_batch([Record(0, TIMESTAMP, None, b"v")]))
    patch(batch, 0, 1234, 5)
    header = read_header(batch)
    assert (header.base_offset, header.leader_epoch) == (1234, 5)
    assert check_crc(batch, 0, len(batch))
    assert read_records(batch, bytes_max=100)[0].offset == 1234


def test_log_append_time_replaces_the_timestamps_of_all_records() -> None:
    batch = bytearray(build_batch([Record(i, TIMESTAMP + i, None, b"v") for i in range(3)]))
    patch_timestamp(batch, 0, len(batch), 99)
    assert read_header(batch).timestamp_type_log_append
    assert check_crc(batch, 0, len(batch))
    assert {record.timestamp for record in read_records(batch, bytes_max=1000)} == {99}


def test_empty_batch_keeps_its_offsets() -> None:
    batch = build_batch([], base_offset=10, last_offset=14, producer_id=3, base_sequence=7)
    header = read_header(batch)
    assert (header.base_offset, header.last_offset, header.record_count) == (10, 14, 0)
    assert header.last_sequence == 11
    assert read_records(batch, bytes_max=10) == []


def test_delete_horizon_keeps_the_timestamps() -> None:
    batch = build_batch([Record(0, TIMESTAMP, b"k", None)], delete_horizon_ms=TIMESTAMP + 5000)
    assert read_header(batch).delete_horizon_ms == TIMESTAMP + 5000
    assert read_records(batch, bytes_max=100)[0].timestamp == TIMESTAMP


def test_incomplete_last_batch_ends_the_iteration() -> None:
    batch = build_batch([Record(0, TIMESTAMP, None, b"v")])
    data = batch + batch + batch[:-1]
    assert [position for position, _ in iterate_headers(data)] == [0, len(batch)]
    assert whole_batches_size(data) == 2 * len(batch)
    assert whole_batches_size(batch[:5]) == 0


def test_sequences_wrap_to_zero() -> None:
    assert increment_sequence(2**31 - 1, 1) == 0
    assert increment_sequence(2**31 - 2, 3) == 1


@given(st.data())
def test_damaged_batches_raise_malformed_batch(data: st.DataObject) -> None:
    batch = bytearray(build_batch([Record(i, TIMESTAMP, b"key", b"value") for i in range(5)]))
    position = data.draw(st.integers(CRC_START, len(batch) - 1))
    batch[position] ^= data.draw(st.integers(1, 255))
    assert not check_crc(batch, 0, len(batch))
    try:
        read_records(batch, bytes_max=10_000)
    except MalformedMessage:
        pass


@given(st.binary(max_size=200))
def test_garbage_is_rejected(garbage: bytes) -> None:
    try:
        read_records(garbage, bytes_max=1000)
    except MalformedMessage:
        pass


def test_invalid_headers_are_rejected() -> None:
    batch = bytearray(build_batch([Record(0, TIMESTAMP, None, b"v")]))
    with pytest.raises(MalformedBatch, match="too few"):
        read_header(batch[:60])
    with pytest.raises(MalformedBatch, match="incomplete"):
        read_records(batch[:-1], bytes_max=100)
    many = bytearray(batch)
    many[57:61] = (2**31 - 1).to_bytes(4, "big")
    with pytest.raises(MalformedBatch, match="do not fit"):
        read_records(many, bytes_max=100)
    old = bytearray(batch)
    old[16] = 1
    with pytest.raises(UnsupportedMagic):
        read_header(old)
    short = bytearray(batch)
    short[8:12] = (10).to_bytes(4, "big")
    with pytest.raises(MalformedBatch, match="22 bytes"):
        read_header(short)


def test_record_count_must_match_the_records() -> None:
    batch = bytearray(build_batch([Record(i, TIMESTAMP, None, b"v" * 20) for i in range(3)]))
    batch[57:61] = (2).to_bytes(4, "big")
    with pytest.raises(MalformedBatch, match="after the last"):
        read_records(batch, bytes_max=1000)
    batch[57:61] = (4).to_bytes(4, "big")
    with pytest.raises(MalformedBatch):
        read_records(batch, bytes_max=1000)


def test_decompressed_size_is_limited() -> None:
    batch = build_batch([Record(0, TIMESTAMP, None, bytes(1 << 20))], compression=Codec.ZSTD)
    assert len(batch) < 1000
    with pytest.raises(MalformedMessage, match="exceeds 1000 bytes"):
        read_records(batch, bytes_max=1000)
