"""Record batches as records for the program."""

from collections.abc import Sequence
from typing import TypeAlias

from lograft.client.consuming.slices import Batch, Slice
from lograft.client.errors import SerializationFailed
from lograft.client.serializers import Deserializer
from lograft.client.types import ConsumerRecord
from lograft.wire.batches import RECORD_BYTES_MIN, BatchHeader, MalformedBatch, unpack_records

Headers: TypeAlias = Sequence[tuple[str, bytes | None]]


def records_of(fetched: Slice, batch: Batch, bytes_max: int) -> list[ConsumerRecord]:
    """The records of one batch that the reader is to see. Raises MalformedBatch."""
    header = batch.header
    view = memoryview(fetched.data)[batch.position : batch.position + header.size_bytes]
    data = unpack_records(view, header, bytes_max=bytes_max)
    if header.record_count < 0 or header.record_count * RECORD_BYTES_MIN > len(data):
        raise MalformedBatch(f"{header.record_count} records do not fit in {len(data)} bytes")
    try:
        return _parsed(fetched, header, data)
    except IndexError:
        raise MalformedBatch("the records are incomplete") from None


def _parsed(fetched: Slice, header: BatchHeader, data: bytes) -> list[ConsumerRecord]:
    """The loop over records: one body without calls for the usual numbers of one and two bytes (a
    call for the length of a value of 64 bytes and more took a quarter of the time). Every position
    is checked against the record's end before the record is given to anybody."""
    topic, partition, first_offset = fetched.topic, fetched.partition, fetched.first_offset
    base_offset, base_timestamp = header.base_offset, header.base_timestamp
    epoch = header.leader_epoch
    kind = int(header.timestamp_type_log_append)
    max_timestamp = header.max_timestamp
    new, record_class = tuple.__new__, ConsumerRecord
    records: list[ConsumerRecord] = []
    add = records.append
    position = 0
    for _ in range(header.record_count):
        byte = data[position]
        if byte < 0x80:
            length, position = byte >> 1, position + 1
            byte &= 1
        elif data[position + 1] < 0x80:
            length, position = (byte & 0x7E | data[position + 1] << 7) >> 1, position + 2
            byte &= 1
        else:
            length, position = _varint(data, position)
            byte = length < 0
        end = position + length
        if byte or length < RECORD_BYTES_MIN - 1 or end > len(data):
            raise MalformedBatch("a record's length is not possible")

        byte = data[position + 1]
        if byte < 0x80:
            delta, position = (byte >> 1) ^ -(byte & 1), position + 2
        else:
            delta, position = _varint(data, position + 1)
        byte = data[position]
        if byte < 0x80:
            offset_delta, position = (byte >> 1) ^ -(byte & 1), position + 1
        elif data[position + 1] < 0x80:
            byte = byte & 0x7F | data[position + 1] << 7
            offset_delta, position = (byte >> 1) ^ -(byte & 1), position + 2
        else:
            offset_delta, position = _varint(data, position)

        byte = data[position]
        if byte < 0x80:
            length, position = (byte >> 1) ^ -(byte & 1), position + 1
        else:
            length, position = _varint(data, position)
        key = None
        if length >= 0:
            key = data[position : position + length]
            position += length
        elif length != -1:
            raise MalformedBatch("a negative length")

        byte = data[position]
        if byte < 0x80:
            length, position = (byte >> 1) ^ -(byte & 1), position + 1
        elif data[position + 1] < 0x80:
            byte = byte & 0x7F | data[position + 1] << 7
            length, position = (byte >> 1) ^ -(byte & 1), position + 2
        else:
            length, position = _varint(data, position)
        value = None
        if length >= 0:
            value = data[position : position + length]
            position += length
        elif length != -1:
            raise MalformedBatch("a negative length")

        headers: Headers = ()
        if data[position]:
            headers, position = _headers(data, position, end)
        else:
            position += 1
        if position != end:
            raise MalformedBatch("the length of a record does not match its content")
        offset = base_offset + offset_delta
        if offset >= first_offset:
            timestamp = max_timestamp if kind else base_timestamp + delta
            add(
                new(
                    record_class,
                    (topic, partition, offset, timestamp, key, value, headers, epoch, kind),
                )
            )
    if position != len(data):
        raise MalformedBatch("there are bytes after the last record")
    return records


def _headers(data: bytes, position: int, end: int) -> tuple[Headers, int]:
    count, position = _varint(data, position)
    if count < 0 or count * 2 > end - position:
        raise MalformedBatch(f"{count} headers do not fit in their record")
    headers: list[tuple[str, bytes | None]] = []
    for _ in range(count):
        length, position = _varint(data, position)
        if not 0 <= length <= end - position:
            raise MalformedBatch("a record header without a key")
        try:
            key = data[position : position + length].decode()
        except UnicodeDecodeError:
            raise MalformedBatch("a record header's key is not UTF-8") from None
        length, position = _varint(data, position + length)
        if not -1 <= length <= end - position:
            raise MalformedBatch("a record header's value is longer than its record")
        value = None
        if length >= 0:
            value = data[position : position + length]
            position += length
        headers.append((key, value))
    return tuple(headers), position


def _varint(data: bytes, position: int) -> tuple[int, int]:
    """A zigzag number of at most ten bytes, and where it ends."""
    value = shift = 0
    while True:
        byte = data[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return (value >> 1) ^ -(value & 1), position
        shift += 7
        if shift > 63:
            raise MalformedBatch("a number of more than ten bytes")


class Decoders:
    """What makes a program's values of bytes; None: bytes stay bytes."""

    def __init__(self, key: Deserializer | None, value: Deserializer | None) -> None:
        self._key = key
        self._value = value
        self.are_plain = key is None and value is None

    def decoded(self, record: ConsumerRecord) -> ConsumerRecord:
        """Raises SerializationFailed."""
        key, value = record.key, record.value
        what = "key"
        try:
            if self._key is not None and key is not None:
                key = self._key(record.topic, key)
            what = "value"
            if self._value is not None and value is not None:
                value = self._value(record.topic, value)
        except Exception as error:
            raise SerializationFailed(
                f"the {what} of {record.topic}-{record.partition} at offset {record.offset} cannot"
                f" be deserialized: {error}; seek to {record.offset + 1} to skip it"
            ) from error
        return record._replace(key=key, value=value)
