"""Unsigned varints (7 bits per byte, low bits first), and functions that the compiled code calls.

Not used on the fast path: the compiled readers and writers handle one-byte varints inline.
"""

from typing import Final
from uuid import UUID

from lograft.model.seams import Buffer
from lograft.wire.errors import MalformedMessage

#: The one-byte varints.
SMALL: Final = tuple(bytes((n,)) for n in range(128))


def uvarint(value: int) -> bytes:
    if value < 128:
        return SMALL[value]
    out = bytearray()
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    out.append(value)
    return bytes(out)


def continue_uvarint(data: Buffer, position: int, first: int) -> tuple[int, int]:
    """Reads the rest of a varint whose first byte is above 127. 32 bits at most."""
    value, shift = first & 127, 7
    while True:
        byte = data[position]
        position += 1
        value |= (byte & 127) << shift
        if byte < 128:
            break
        shift += 7
        if shift > 28:
            raise MalformedMessage("varint of more than 32 bits")
    if value > 0xFFFFFFFF:
        raise MalformedMessage("varint of more than 32 bits")
    return value, position


def read_uvarint(data: Buffer, position: int) -> tuple[int, int]:
    first = data[position]
    if first < 128:
        return first, position + 1
    return continue_uvarint(data, position + 1, first)


def skip_tags(data: Buffer, position: int, end: int, count: int) -> int:
    """Skips `count` unknown tagged fields."""
    if count > (end - position) // 2:
        raise MalformedMessage(f"{count} tagged fields in {end - position} bytes")
    last = -1
    for _ in range(count):
        tag, position = read_uvarint(data, position)
        size, position = read_uvarint(data, position)
        if tag <= last:
            raise MalformedMessage(f"tag {tag} after tag {last}")
        last = tag
        position += size
        if position > end:
            raise MalformedMessage(f"tagged field {tag} of {size} bytes ends after the message")
    return position


class _Uuids(dict[bytes, UUID]):
    """UUIDs by their 16 bytes. The constructor of UUID takes a microsecond, and the same few topic
    ids occur again and again. Cleared when full, so that no peer can make it grow."""

    LIMIT: Final = 4096

    def __missing__(self, raw: bytes) -> UUID:
        if len(self) >= self.LIMIT:
            self.clear()
        value = self[raw] = UUID(bytes=raw)
        return value


UUIDS: Final = _Uuids()
