"""A leader's checks of records in batches: bounded, regardless of the decompressed size."""

import tracemalloc
from random import Random
from typing import Any

import pytest

from lograft.storage.errors import CorruptBatch, InvalidRecord, InvalidTimestamp, NeedsWorker
from lograft.storage.types import FixedLogConfig, Origin
from lograft.storage.validation import (
    PARSED_ON_LOOP_MAX,
    PARSED_RECORDS_MAX,
    RECOMPRESSED_ON_LOOP_BYTES_MAX,
    RECORD_MESSAGES_MAX,
    AppendRules,
    check_records,
)
from lograft.testing.memory import MemoryDisk
from lograft.wire.batches import (
    HEADER,
    HEADER_SIZE,
    Record,
    build_batch,
    check_crc,
    read_header,
    read_records,
)
from lograft.wire.compression import Codec, compress
from tests.unit.storage.logs import make_batch, open_log, read_all

NOW_MS = 1_767_225_600_000
COMPACTED = AppendRules(FixedLogConfig(cleanup_compact=True, cleanup_delete=False))
RECOMPRESSED = AppendRules(FixedLogConfig(compression_type="zstd"))
PACKED = [Codec.GZIP, Codec.SNAPPY, Codec.LZ4, Codec.ZSTD]
#: A record without key, value and headers.
SMALLEST = bytes([12, 0, 0, 0, 1, 1, 0])


def batch_around(payload: bytes, codec: int, count: int) -> memoryview:
    batch = bytearray(HEADER_SIZE)
    size = HEADER_SIZE - 12 + len(payload)
    HEADER.pack_into(
        batch, 0, 0, size, -1, 2, 0, codec, count - 1, NOW_MS, NOW_MS, -1, -1, -1, count
    )
    return memoryview(batch + payload)


@pytest.mark.parametrize("codec", PACKED)
def test_a_batch_of_millions_is_refused_by_its_header(codec: Codec) -> None:
    count = PARSED_RECORDS_MAX + 1
    batch = batch_around(compress(codec, SMALLEST * count), codec, count)
    with pytest.raises(InvalidRecord, match=str(PARSED_RECORDS_MAX)):
        check_records(batch, COMPACTED, Origin.CLIENT, NOW_MS)


@pytest.mark.parametrize("codec", PACKED)
def test_many_records_are_not_held_at_once(codec: Codec) -> None:
    count = 5_000
    records = [Record(index, NOW_MS, b"k", None) for index in range(count)]
    batch = memoryview(build_batch(records, compression=codec))
    tracemalloc.start()
    try:
        assert check_records(batch, COMPACTED, Origin.CLIENT, NOW_MS) is None
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 100 * count


@pytest.mark.parametrize("codec", PACKED)
def test_a_bomb_stops_at_the_cap(codec: Codec) -> None:
    payload = compress(codec, bytes(COMPACTED.unpacked_bytes_max + 1))
    with pytest.raises(CorruptBatch, match="bytes when decompressed"):
        check_records(batch_around(payload, codec, 1), COMPACTED, Origin.CLIENT, NOW_MS)


@pytest.mark.parametrize("codec", [Codec.NONE, *PACKED[:3]])
def test_another_codec_keeps_everything_else(codec: Codec) -> None:
    records = [Record(index, NOW_MS + index, b"k", b"v" * index) for index in range(50)]
    sent = build_batch(records, compression=codec, producer_id=7, producer_epoch=1, base_sequence=9)
    changed = check_records(memoryview(sent), RECOMPRESSED, Origin.CLIENT, NOW_MS)
    assert changed is not None
    assert check_crc(changed, 0, len(changed))
    before, after = read_header(sent), read_header(changed)
    assert after.compression == Codec.ZSTD
    assert after.size_bytes == len(changed)
    assert (
        after._replace(size_bytes=before.size_bytes, crc=before.crc, attributes=before.attributes)
        == before
    )
    assert read_records(changed, bytes_max=1 << 20) == records


@pytest.mark.parametrize(
    ("name", "low", "high"), [("gzip", 1, 9), ("lz4", 1, 12), ("zstd", -1000, 19)]
)
def test_the_topic_says_how_hard_to_compress(name: str, low: int, high: int) -> None:
    text = b" ".join(b"word%d" % (number * number % 97) for number in range(3000))
    batch = memoryview(bytearray(build_batch([Record(0, NOW_MS, None, text)])))
    sizes = []
    for level in (low, high):
        levels: dict[str, Any] = {f"compression_{name}_level": level}
        rules = AppendRules(FixedLogConfig(compression_type=name, **levels))
        changed = check_records(batch, rules, Origin.CLIENT, NOW_MS)
        assert changed is not None
        (record,) = read_records(changed, bytes_max=1 << 20)
        assert record.value == text
        sizes.append(len(changed))
    assert sizes[0] > sizes[1]


def test_what_takes_long_is_looked_at_by_a_worker() -> None:
    log = open_log(MemoryDisk(), FixedLogConfig(compression_type="zstd"))
    small = make_batch([bytes(1_000)])
    log.append_as_leader(small, leader_epoch=0, now_ms=NOW_MS)
    batch = make_batch([Random(1).randbytes(2 * RECOMPRESSED_ON_LOOP_BYTES_MAX)])
    with pytest.raises(NeedsWorker):
        log.append_as_leader(batch, leader_epoch=0, now_ms=NOW_MS)
    checked = log.validation_job(batch, NOW_MS)()
    assert read_header(checked.batch).compression == Codec.ZSTD
    # The topic's settings have changed in the meantime: the completed checks no longer match them.
    log.config = FixedLogConfig(compression_type="gzip")
    with pytest.raises(NeedsWorker):
        log.append_as_leader(checked.batch, leader_epoch=0, now_ms=NOW_MS, checked_by=checked.rules)
    again = log.validation_job(checked.batch, NOW_MS)()
    log.append_as_leader(again.batch, leader_epoch=0, now_ms=NOW_MS, checked_by=again.rules)
    assert [len(record.value or b"") for record in read_all(log)] == [
        1_000,
        2 * RECOMPRESSED_ON_LOOP_BYTES_MAX,
    ]
    assert log.end_offset == 2


def test_many_records_are_looked_at_by_a_worker() -> None:
    log = open_log(MemoryDisk(), FixedLogConfig(cleanup_compact=True, max_message_bytes=1 << 24))
    batch = make_batch([b""] * (PARSED_ON_LOOP_MAX + 1))
    with pytest.raises(NeedsWorker):
        log.append_as_leader(batch, leader_epoch=0, now_ms=NOW_MS)
    with pytest.raises(InvalidRecord, match="requires a key"):
        log.validation_job(batch, NOW_MS)()
    # Batches of the broker itself are not checked.
    log.append_as_leader(batch, leader_epoch=0, now_ms=NOW_MS, origin=Origin.COORDINATOR)


@pytest.mark.parametrize("codec", [Codec.NONE, *PACKED])
def test_all_records_without_a_key_are_named(codec: Codec) -> None:
    keys = [b"k", None, b"k", None]
    records = [Record(index, NOW_MS, key, b"v") for index, key in enumerate(keys)]
    batch = memoryview(build_batch(records, compression=codec))
    with pytest.raises(
        InvalidRecord, match="rejected 2 of the batch's records: record 1: "
    ) as found:
        check_records(batch, COMPACTED, Origin.CLIENT, NOW_MS)
    assert [error.batch_index for error in found.value.record_errors] == [1, 3]
    assert all("requires a key" in (error.message or "") for error in found.value.record_errors)


def test_one_bad_timestamp_decides_the_error_of_the_batch() -> None:
    rules = AppendRules(
        FixedLogConfig(
            cleanup_compact=True,
            message_timestamp_before_max_ms=1_000,
            message_timestamp_after_max_ms=2_000,
        )
    )
    records = [
        Record(0, NOW_MS, None, b"v"),
        Record(1, NOW_MS - 1_001, b"k", b"v"),
        # The missing key is reported first.
        Record(2, NOW_MS - 1_001, None, b"v"),
        Record(3, NOW_MS + 2_001, b"k", b"v"),
        Record(4, NOW_MS - 1_000, b"k", b"v"),
        Record(5, NOW_MS + 2_000, b"k", b"v"),
    ]
    with pytest.raises(InvalidTimestamp, match="; and 1 more") as found:
        check_records(memoryview(build_batch(records)), rules, Origin.CLIENT, NOW_MS)
    messages = {error.batch_index: error.message or "" for error in found.value.record_errors}
    assert list(messages) == [0, 1, 2, 3]
    assert "requires a key" in messages[0]
    assert "message.timestamp.before.max.ms" in messages[1]
    assert "requires a key" in messages[2]
    assert "message.timestamp.after.max.ms" in messages[3]


def test_every_rejected_record_is_named() -> None:
    count = RECORD_MESSAGES_MAX + 5
    records = [Record(index, NOW_MS, None, None) for index in range(count)]
    batch = memoryview(build_batch(records, compression=Codec.ZSTD))
    with pytest.raises(InvalidRecord, match=f"rejected {count} of") as found:
        check_records(batch, COMPACTED, Origin.CLIENT, NOW_MS)
    errors = found.value.record_errors
    assert [error.batch_index for error in errors] == list(range(count))
    assert sum(error.message is not None for error in errors) == RECORD_MESSAGES_MAX
