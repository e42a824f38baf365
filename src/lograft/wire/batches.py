"""Record batches of magic 2, the unit in which logs are written, stored and fetched.

    base offset i64 | length i32 | leader epoch i32 | magic i8 | crc u32 | attributes i16 |
    last offset delta i32 | base timestamp i64 | max timestamp i64 | producer id i64 |
    producer epoch i16 | base sequence i32 | record count i32 | records

The CRC-32C covers everything from the attributes on, so base offset and leader epoch can be changed
without recomputing it. Records are parsed only if their content is needed.
"""

import struct
from collections.abc import Iterable, Iterator, Sequence
from typing import Final, NamedTuple

from crc32c import crc32c

from lograft.model.seams import Buffer
from lograft.model.types import NO_PRODUCER_EPOCH, NO_PRODUCER_ID, NO_SEQUENCE, NO_TIMESTAMP
from lograft.wire.compression import Codec, compress, decompress
from lograft.wire.errors import MalformedMessage
from lograft.wire.varints import uvarint

HEADER_SIZE: Final = 61
#: A record has at least one byte each for length, attributes, two deltas, two lengths and a count.
RECORD_BYTES_MIN: Final = 7
#: Base offset and length: the bytes that `length` does not include.
LENGTH_OVERHEAD: Final = 12
MAGIC: Final = 2
#: Start of the bytes that the CRC covers.
CRC_START: Final = 21

CODEC_MASK: Final = 0x07
LOG_APPEND_TIME_FLAG: Final = 0x08
TRANSACTIONAL_FLAG: Final = 0x10
CONTROL_FLAG: Final = 0x20
#: The base timestamp is the time from which the batch's tombstones may be removed (KIP-534).
DELETE_HORIZON_FLAG: Final = 0x40

SEQUENCE_MAX: Final = 2**31 - 1

HEADER: Final = struct.Struct(">qiibIhiqqqhii")
unpack_header: Final = HEADER.unpack_from
_PATCH_OFFSET: Final = struct.Struct(">q").pack_into
_PATCH_EPOCH: Final = struct.Struct(">i").pack_into
_CRC: Final = struct.Struct(">I")
_ATTRIBUTES: Final = struct.Struct(">h")
_TIMESTAMP: Final = struct.Struct(">q")
_SIZE: Final = struct.Struct(">qi")
_LENGTH: Final = struct.Struct(">i")


class MalformedBatch(MalformedMessage):
    """The bytes are not a record batch of magic 2, or do not match its header."""


class UnsupportedMagic(MalformedBatch):
    """A message set of the formats before Kafka 0.11, which Kafka 4 does not support either."""


class BatchHeader(NamedTuple):
    base_offset: int
    #: Size of the whole batch.
    size_bytes: int
    leader_epoch: int
    magic: int
    crc: int
    attributes: int
    last_offset_delta: int
    base_timestamp: int
    max_timestamp: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    record_count: int

    @property
    def compression(self) -> int:
        return self.attributes & CODEC_MASK

    @property
    def timestamp_type_log_append(self) -> bool:
        return bool(self.attributes & LOG_APPEND_TIME_FLAG)

    @property
    def is_transactional(self) -> bool:
        return bool(self.attributes & TRANSACTIONAL_FLAG)

    @property
    def is_control(self) -> bool:
        return bool(self.attributes & CONTROL_FLAG)

    @property
    def has_delete_horizon(self) -> bool:
        return bool(self.attributes & DELETE_HORIZON_FLAG)

    @property
    def delete_horizon_ms(self) -> int | None:
        return self.base_timestamp if self.attributes & DELETE_HORIZON_FLAG else None

    @property
    def last_offset(self) -> int:
        return self.base_offset + self.last_offset_delta

    @property
    def last_sequence(self) -> int:
        if self.base_sequence == NO_SEQUENCE:
            return NO_SEQUENCE
        return increment_sequence(self.base_sequence, self.last_offset_delta)


class RecordHeader(NamedTuple):
    key: str
    value: bytes | None


class Record(NamedTuple):
    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: tuple[RecordHeader, ...] = ()


def increment_sequence(sequence: int, by: int) -> int:
    """Sequence numbers continue with 0 after 2^31-1."""
    return (sequence + by) & SEQUENCE_MAX


def read_header(buffer: Buffer, position: int = 0) -> BatchHeader:
    """Parses the header; checks only size and magic."""
    if len(buffer) - position < HEADER_SIZE:
        raise MalformedBatch(f"{len(buffer) - position} bytes are too few for a batch header")
    fields = unpack_header(buffer, position)
    if fields[3] != MAGIC:
        raise UnsupportedMagic(f"a batch has magic {fields[3]}, but only {MAGIC} is supported")
    size_bytes = fields[1] + LENGTH_OVERHEAD
    if size_bytes < HEADER_SIZE:
        raise MalformedBatch(f"a batch has the invalid size of {size_bytes} bytes")
    return BatchHeader(fields[0], size_bytes, *fields[2:])


def check_crc(buffer: Buffer, position: int, size_bytes: int) -> bool:
    """Returns whether the CRC matches the batch's bytes."""
    view = memoryview(buffer)
    (crc,) = _CRC.unpack_from(view, position + 17)
    return bool(crc32c(view[position + CRC_START : position + size_bytes]) == crc)


def iterate_headers(buffer: Buffer) -> Iterator[tuple[int, BatchHeader]]:
    """Yields position and header of each complete batch; ends at an incomplete last one, which is
    valid in a fetch response."""
    position, end = 0, len(buffer)
    while end - position >= HEADER_SIZE:
        header = read_header(buffer, position)
        if position + header.size_bytes > end:
            return
        yield position, header
        position += header.size_bytes


def whole_batches_size(buffer: Buffer) -> int:
    """Returns the size of the complete batches in a fetched buffer."""
    position, end = 0, len(buffer)
    while end - position >= LENGTH_OVERHEAD:
        size = _SIZE.unpack_from(buffer, position)[1] + LENGTH_OVERHEAD
        if size < HEADER_SIZE or position + size > end:
            break
        position += size
    return position


def patch(
    buffer: bytearray | memoryview, position: int, base_offset: int, leader_epoch: int
) -> None:
    _PATCH_OFFSET(buffer, position, base_offset)
    _PATCH_EPOCH(buffer, position + 12, leader_epoch)


def patch_timestamp(
    buffer: bytearray | memoryview, position: int, size_bytes: int, log_append_time_ms: int
) -> None:
    """Sets the batch's timestamps to the broker's time and recomputes the CRC."""
    (attributes,) = _ATTRIBUTES.unpack_from(buffer, position + 21)
    _ATTRIBUTES.pack_into(buffer, position + 21, attributes | LOG_APPEND_TIME_FLAG)
    _TIMESTAMP.pack_into(buffer, position + 35, log_append_time_ms)
    patch_crc(buffer, position, size_bytes)


def patch_crc(buffer: bytearray | memoryview, position: int, size_bytes: int) -> None:
    checked = memoryview(buffer)[position + CRC_START : position + size_bytes]
    _CRC.pack_into(buffer, position + 17, crc32c(checked))


# ── records ──────────────────────────────────────────────────────────────────────────────────


def read_records(batch: Buffer, *, bytes_max: int) -> list[Record]:
    """Returns all records of one complete batch; decompresses at most `bytes_max` bytes.

    Checks neither the CRC nor the order of the offsets, which were checked before the append.
    """
    return list(iterate_records(batch, bytes_max=bytes_max))


def iterate_records(batch: Buffer, *, bytes_max: int) -> Iterator[Record]:
    """Yields the records one at a time: a few bytes can contain millions of records, which must not
    all be in memory if a client may have sent them."""
    header = read_header(batch)
    return parse_records(unpack_records(batch, header, bytes_max=bytes_max), header)


def unpack_records(batch: Buffer, header: BatchHeader | None = None, *, bytes_max: int) -> bytes:
    """Returns the uncompressed records of one complete batch. `header`: if already parsed."""
    header = header or read_header(batch)
    if header.size_bytes > len(batch):
        raise MalformedBatch("the batch is incomplete")
    payload = memoryview(batch)[HEADER_SIZE : header.size_bytes]
    if header.attributes & CODEC_MASK:
        return bytes(decompress(header.attributes & CODEC_MASK, payload, bytes_max))
    if len(payload) > bytes_max:
        raise MalformedBatch(f"the batch has more than {bytes_max} bytes of records")
    return bytes(payload)


def repack(batch: Buffer, payload: bytes, codec: int, *, level: int | None = None) -> bytes:
    """Returns the batch with another codec; `payload` is the result of `unpack_records`."""
    payload_packed = compress(codec, payload, level=level)
    changed = bytearray(batch[:HEADER_SIZE]) + payload_packed
    (attributes,) = _ATTRIBUTES.unpack_from(changed, CRC_START)
    _ATTRIBUTES.pack_into(changed, CRC_START, attributes & ~CODEC_MASK | codec)
    _LENGTH.pack_into(changed, 8, len(changed) - LENGTH_OVERHEAD)
    patch_crc(changed, 0, len(changed))
    return bytes(changed)


def parse_records(data: bytes, header: BatchHeader) -> Iterator[Record]:
    if header.record_count < 0 or header.record_count * 7 > len(data):
        raise MalformedBatch(f"{header.record_count} records do not fit in {len(data)} bytes")
    log_append_time = header.timestamp_type_log_append
    position = 0
    try:
        for _ in range(header.record_count):
            length, position = _read_varint(data, position)
            end = position + length
            if length < 6 or end > len(data):
                raise MalformedBatch("a record has an invalid length")
            delta, position = _read_varint(data, position + 1)
            offset_delta, position = _read_varint(data, position)
            key, position = _read_bytes(data, position, end)
            value, position = _read_bytes(data, position, end)
            count, position = _read_varint(data, position)
            headers: tuple[RecordHeader, ...] = ()
            if count:
                headers, position = _read_record_headers(data, position, end, count)
            if position != end:
                raise MalformedBatch("the length of a record does not match its content")
            timestamp = header.max_timestamp if log_append_time else header.base_timestamp + delta
            yield Record(header.base_offset + offset_delta, timestamp, key, value, headers)
    except IndexError:
        raise MalformedBatch("the records are incomplete") from None
    if position != len(data):
        raise MalformedBatch("there are bytes after the last record")


def _read_varint(data: bytes, position: int) -> tuple[int, int]:
    """Reads a zigzag varint of at most ten bytes."""
    byte = data[position]
    if byte < 0x80:
        return (byte >> 1) ^ -(byte & 1), position + 1
    value = byte & 0x7F
    shift = 7
    while True:
        position += 1
        byte = data[position]
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return (value >> 1) ^ -(value & 1), position + 1
        shift += 7
        if shift > 63:
            raise MalformedBatch("a varint has more than ten bytes")


def _read_bytes(data: bytes, position: int, end: int) -> tuple[bytes | None, int]:
    length, position = _read_varint(data, position)
    if length < 0:
        if length != -1:
            raise MalformedBatch("a length is negative")
        return None, position
    stop = position + length
    if stop > end:
        raise MalformedBatch("a key or value is longer than its record")
    return data[position:stop], stop


def _read_record_headers(
    data: bytes, position: int, end: int, count: int
) -> tuple[tuple[RecordHeader, ...], int]:
    if count < 0 or count * 2 > end - position:
        raise MalformedBatch(f"{count} headers do not fit in their record")
    headers = []
    for _ in range(count):
        key, position = _read_bytes(data, position, end)
        value, position = _read_bytes(data, position, end)
        if key is None:
            raise MalformedBatch("a record header has no key")
        try:
            headers.append(RecordHeader(key.decode(), value))
        except UnicodeDecodeError:
            raise MalformedBatch("the key of a record header is not UTF-8") from None
    return tuple(headers), position


def build_batch(
    records: Sequence[Record],
    *,
    base_offset: int | None = None,
    last_offset: int | None = None,
    leader_epoch: int = -1,
    producer_id: int = NO_PRODUCER_ID,
    producer_epoch: int = NO_PRODUCER_EPOCH,
    base_sequence: int = NO_SEQUENCE,
    compression: int = Codec.NONE,
    level: int | None = None,
    transactional: bool = False,
    control: bool = False,
    log_append_time_ms: int | None = None,
    delete_horizon_ms: int | None = None,
    max_timestamp: int | None = None,
) -> bytes:
    """Returns a batch of the records, whose offsets determine their positions in it.

    `base_offset` and `last_offset` default to those of the records; a compacted batch keeps its own
    even if its first and last records were removed. A batch without records needs both.
    """
    if base_offset is None:
        base_offset = records[0].offset
    if last_offset is None:
        last_offset = records[-1].offset
    base_timestamp = NO_TIMESTAMP
    if records:
        base_timestamp = records[0].timestamp
    if max_timestamp is None:
        max_timestamp = base_timestamp
        if len(records) > 1:
            max_timestamp = max(record.timestamp for record in records)
    attributes = compression
    if transactional:
        attributes |= TRANSACTIONAL_FLAG
    if control:
        attributes |= CONTROL_FLAG
    if log_append_time_ms is not None:
        attributes |= LOG_APPEND_TIME_FLAG
        max_timestamp = log_append_time_ms
    if delete_horizon_ms is not None:
        attributes |= DELETE_HORIZON_FLAG
        base_timestamp = delete_horizon_ms
    payload = _write_records(records, base_offset, base_timestamp) if records else b""
    if compression and records:
        payload = compress(compression, payload, level=level)
    head = HEADER.pack(
        base_offset,
        HEADER_SIZE - LENGTH_OVERHEAD + len(payload),
        leader_epoch,
        MAGIC,
        0,
        attributes,
        last_offset - base_offset,
        base_timestamp,
        max_timestamp,
        producer_id,
        producer_epoch,
        base_sequence,
        len(records),
    )
    crc = crc32c(payload, crc32c(head[CRC_START:]))
    return b"".join((head[:17], _CRC.pack(crc), head[CRC_START:], payload))


def _write_records(records: Iterable[Record], base_offset: int, base_timestamp: int) -> bytes:
    data: list[bytes] = []
    for offset, timestamp, key, value, headers in records:
        # A record starts with its attributes, of which none are defined.
        parts = [b"\0", _varint(timestamp - base_timestamp), _varint(offset - base_offset)]
        parts += _encode_sized(key)
        parts += _encode_sized(value)
        parts.append(_varint(len(headers)))
        for header_key, header_value in headers:
            parts += _encode_sized(header_key.encode())
            parts += _encode_sized(header_value)
        body = b"".join(parts)
        data += (_varint(len(body)), body)
    return b"".join(data)


def _encode_sized(value: bytes | None) -> tuple[bytes, bytes]:
    return _NULL if value is None else (_varint(len(value)), value)


def _varint(value: int) -> bytes:
    """Encodes a signed number in zigzag encoding."""
    if 0 <= value < len(_SMALL_VARINTS):
        return _SMALL_VARINTS[value]
    return uvarint(((value << 1) ^ (value >> 63)) & 0xFFFF_FFFF_FFFF_FFFF)


#: Most sizes and deltas in a batch.
_SMALL_VARINTS: Final = tuple(uvarint(value << 1) for value in range(512))
_NULL: Final = (b"\x01", b"")
