"""Decodes record batches into the records that the application gets."""

from collections.abc import Sequence
from typing import TypeAlias

from lograft.client.consuming.slices import Batch, Slice
from lograft.client.errors import SerializationFailed
from lograft.client.serializers import Deserializer
from lograft.client.types import ConsumerRecord
from lograft.wire.batches import RECORD_BYTES_MIN, BatchHeader, MalformedBatch, unpack_records

Headers: TypeAlias = Sequence[tuple[str, bytes | None]]


def decode_records(fetched: Slice, batch: Batch, bytes_max: int) -> list[ConsumerRecord]:
    """Returns the records of one batch at or after the reader's offset. Raises MalformedBatch."""
    header = batch.header
    view = memoryview(fetched.data)[batch.position : batch.position + header.size_bytes]
    data = unpack_records(view, header, bytes_max=bytes_max)
    if header.record_count < 0 or header.record_count * RECORD_BYTES_MIN > len(data):
        raise MalformedBatch(f"{header.record_count} records do not fit in {len(data)} bytes")
    try:
        return _parse_records(fetched, header, data)
    except IndexError:
        raise MalformedBatch("the records are incomplete") from None


def _parse_records(fetched: Slice, header: BatchHeader, data: bytes) -> list[ConsumerRecord]:
    """The loop over records. Varints of one and two bytes, which are the usual ones, are decoded
    inline: a function call for the length of each value of 64 bytes or more took a quarter of the
    time. The end of every record is checked before the record is added."""
    topic, partition, first_offset = fetched.topic, fetched.partition, fetched.first_offset
    base_offset, base_timestamp = header.base_offset, header.base_timestamp
    epoch = header.leader_epoch
    timestamp_type = int(header.timestamp_type_log_append)
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
            length, position = _parse_varint(data, position)
            byte = length < 0
        end = position + length
        if byte or length < RECORD_BYTES_MIN - 1 or end > len(data):
            raise MalformedBatch("a record has an invalid length")

        byte = data[position + 1]
        if byte < 0x80:
            delta, position = (byte >> 1) ^ -(byte & 1), position + 2
        else:
            delta, position = _parse_varint(data, position + 1)
        byte = data[position]
        if byte < 0x80:
            offset_delta, position = (byte >> 1) ^ -(byte & 1), position + 1
        elif data[position + 1] < 0x80:
            byte = byte & 0x7F | data[position + 1] << 7
            offset_delta, position = (byte >> 1) ^ -(byte & 1), position + 2
        else:
            offset_delta, position = _parse_varint(data, position)

        byte = data[position]
        if byte < 0x80:
            length, position = (byte >> 1) ^ -(byte & 1), position + 1
        else:
            length, position = _parse_varint(data, position)
        key = None
        if length >= 0:
            key = data[position : position + length]
            position += length
        elif length != -1:
            raise MalformedBatch("a record has a negative key or value length")

        byte = data[position]
        if byte < 0x80:
            length, position = (byte >> 1) ^ -(byte & 1), position + 1
        elif data[position + 1] < 0x80:
            byte = byte & 0x7F | data[position + 1] << 7
            length, position = (byte >> 1) ^ -(byte & 1), position + 2
        else:
            length, position = _parse_varint(data, position)
        value = None
        if length >= 0:
            value = data[position : position + length]
            position += length
        elif length != -1:
            raise MalformedBatch("a record has a negative key or value length")

        headers: Headers = ()
        if data[position]:
            headers, position = _parse_headers(data, position, end)
        else:
            position += 1
        if position != end:
            raise MalformedBatch("the length of a record does not match its content")
        offset = base_offset + offset_delta
        if offset >= first_offset:
            timestamp = max_timestamp if timestamp_type else base_timestamp + delta
            fields = topic, partition, offset, timestamp, key, value, headers, epoch, timestamp_type
            add(new(record_class, fields))
    if position != len(data):
        raise MalformedBatch("there are bytes after the last record")
    return records


def _parse_headers(data: bytes, position: int, end: int) -> tuple[Headers, int]:
    count, position = _parse_varint(data, position)
    if count < 0 or count * 2 > end - position:
        raise MalformedBatch(f"{count} headers do not fit in their record")
    headers: list[tuple[str, bytes | None]] = []
    for _ in range(count):
        length, position = _parse_varint(data, position)
        if not 0 <= length <= end - position:
            raise MalformedBatch("a record header has no key")
        try:
            key = data[position : position + length].decode()
        except UnicodeDecodeError:
            raise MalformedBatch("the key of a record header is not UTF-8") from None
        length, position = _parse_varint(data, position + length)
        if not -1 <= length <= end - position:
            raise MalformedBatch("the value of a record header is longer than its record")
        value = None
        if length >= 0:
            value = data[position : position + length]
            position += length
        headers.append((key, value))
    return tuple(headers), position


def _parse_varint(data: bytes, position: int) -> tuple[int, int]:
    """Decodes a zigzag varint of at most ten bytes. Returns it and the position after it."""
    value = shift = 0
    while True:
        byte = data[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return (value >> 1) ^ -(value & 1), position
        shift += 7
        if shift > 63:
            raise MalformedBatch("a varint has more than ten bytes")


class RecordDeserializer:
    """Applies the deserializers of keys and values; None leaves the bytes."""

    def __init__(self, key: Deserializer | None, value: Deserializer | None) -> None:
        self._key = key
        self._value = value
        self.returns_bytes = key is None and value is None

    def deserialize(self, record: ConsumerRecord) -> ConsumerRecord:
        """Raises SerializationFailed."""
        key, value = record.key, record.value
        part = "key"
        try:
            if self._key is not None and key is not None:
                key = self._key(record.topic, key)
            part = "value"
            if self._value is not None and value is not None:
                value = self._value(record.topic, value)
        except Exception as error:
            raise SerializationFailed(
                f"the {part} of {record.topic}-{record.partition} at offset {record.offset} cannot"
                f" be deserialized: {error}; seek to {record.offset + 1} to skip it"
            ) from error
        return record._replace(key=key, value=value)
