"""Encodes the pieces of a record: varints, lengths, offset deltas, headers."""

from collections.abc import Sequence
from typing import Final, TypeAlias

Headers: TypeAlias = Sequence[tuple[str, bytes | None]]

NULL: Final = b"\x01"  # length -1
NO_HEADERS: Final = b"\x00"


def _varint(value: int) -> bytes:
    """Encodes a zigzag varint."""
    value = ((value << 1) ^ (value >> 63)) & 0xFFFF_FFFF_FFFF_FFFF
    data = bytearray()
    while value > 0x7F:
        data.append((value & 0x7F) | 0x80)
        value >>= 7
    data.append(value)
    return bytes(data)


#: The varints in nearly all records: lengths and deltas.
_SMALL: Final = tuple(_varint(value) for value in range(16_384))
SMALL_COUNT: Final = len(_SMALL)
#: The offset delta of a record, followed by the length of a null key.
DELTA_NO_KEY: Final = tuple(delta + NULL for delta in _SMALL)
#: Where the varint of an offset delta becomes one byte longer, up to the end of the table.
DELTA_STEPS: Final = (1 << 6, 1 << 13, SMALL_COUNT)


#: Upper bound of the bytes of a record besides its key, value and headers.
RECORD_OVERHEAD_MAX: Final = 32


def varint(value: int) -> bytes:
    return _SMALL[value] if 0 <= value < SMALL_COUNT else _varint(value)


def record_size_max(key: bytes | None, value: bytes | None, headers: Headers) -> int:
    """Returns an upper bound of the bytes that a record adds to a batch."""
    size = RECORD_OVERHEAD_MAX + (len(key) if key else 0) + (len(value) if value else 0)
    for name, content in headers:
        size += 10 + 4 * len(name) + (len(content) if content else 0)
    return size


def header_bytes(headers: Headers) -> bytes:
    parts = [varint(len(headers))]
    for name, content in headers:
        raw = name.encode()
        parts += (varint(len(raw)), raw)
        parts += (NULL,) if content is None else (varint(len(content)), content)
    return b"".join(parts)
