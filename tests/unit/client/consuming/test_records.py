"""The consumer's record decoder agrees with the general one on valid and on malformed batches."""

from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as some

from lograft.client.consuming.records import RecordDeserializer, decode_records
from lograft.client.consuming.slices import Slice, visible_batches
from lograft.client.errors import SerializationFailed
from lograft.client.serializers import json_deserializer, text_deserializer
from lograft.client.types import ConsumerRecord
from lograft.wire.batches import (
    HEADER_SIZE,
    MalformedBatch,
    Record,
    RecordHeader,
    build_batch,
    read_records,
)
from lograft.wire.compression import Codec

BIG = 1 << 30
lengths = some.sampled_from([0, 1, 62, 63, 64, 8_191, 8_192, 70_000])
blobs = some.none() | lengths.map(lambda size: b"x" * size) | some.binary(max_size=80)
headers = some.lists(some.builds(RecordHeader, some.text(max_size=5), blobs), max_size=3).map(tuple)
contents = some.lists(
    some.tuples(some.integers(0, 1 << 40), blobs, blobs, headers, some.integers(1, 20_000)),
    min_size=1,
    max_size=10,
)


def read(data: bytes, first_offset: int = 0) -> list[ConsumerRecord]:
    fetched = Slice("t", 3, first_offset, data)
    return [
        record
        for batch in visible_batches(fetched, checks_crcs=False)
        for record in decode_records(fetched, batch, BIG)
    ]


@given(contents, some.sampled_from(Codec), some.none() | some.integers(0, 1 << 40))
@settings(deadline=None, max_examples=60)
def test_records_equal_those_of_the_general_decoder(
    given_records: list[tuple[int, bytes | None, bytes | None, tuple[RecordHeader, ...], int]],
    codec: Codec,
    append_time_ms: int | None,
) -> None:
    offset = 100
    written: list[Record] = []
    for timestamp, key, value, some_headers, gap in given_records:
        written.append(Record(offset, timestamp, key, value, some_headers))
        offset += gap
    data = build_batch(
        written, compression=codec, leader_epoch=5, log_append_time_ms=append_time_ms
    )
    plain = read_records(data, bytes_max=BIG)
    found = read(data)
    assert [
        (record.offset, record.timestamp_ms, record.key, record.value, record.headers)
        for record in found
    ] == [tuple(record) for record in plain]
    assert all(isinstance(record, ConsumerRecord) for record in found)
    assert {(record.topic, record.partition, record.leader_epoch) for record in found} == {
        ("t", 3, 5)
    }
    assert {record.timestamp_type for record in found} == {int(append_time_ms is not None)}
    assert [record.offset for record in read(data, 101)] == [record.offset for record in plain[1:]]


def test_corrupt_batches_are_rejected_or_decoded_like_the_general_decoder() -> None:
    random = Random(5)
    valid = build_batch(
        [
            Record(i, 5, b"key%d" % i, b"v" * random.randrange(300), (RecordHeader("h", b"x"),))
            for i in range(60)
        ]
    )
    rejected = 0
    for _ in range(1_500):
        data = bytearray(valid)
        for _ in range(random.randrange(1, 4)):
            data[random.randrange(HEADER_SIZE, len(data))] = random.randrange(256)
        try:
            # A corrupt offset may have any value.
            found = read(bytes(data), -BIG * BIG)
        except MalformedBatch:
            rejected += 1
            with pytest.raises(MalformedBatch):
                read_records(bytes(data), bytes_max=BIG)
        else:
            plain = read_records(bytes(data), bytes_max=BIG)
            assert [record.value for record in found] == [record.value for record in plain]
    assert 100 < rejected < 1_500


def test_deserializers_get_bytes_and_never_none() -> None:
    deserializer = RecordDeserializer(text_deserializer, json_deserializer)
    record = ConsumerRecord("t", 0, 7, 0, b"key", b"[1]")
    assert deserializer.deserialize(record)[4:6] == ("key", [1])
    assert deserializer.deserialize(record._replace(key=None, value=None))[4:6] == (None, None)
    with pytest.raises(SerializationFailed, match="the key of t-0 at offset 7"):
        deserializer.deserialize(record._replace(key=b"\xff"))
