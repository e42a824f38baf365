"""The pieces of a record: numbers of variable length, lengths, places, headers."""

from collections.abc import Sequence
from typing import Final, TypeAlias

Headers: TypeAlias = Sequence[tuple[str, bytes | None]]

NULL: Final = b"\x01"  # the length -1
NO_HEADERS: Final = b"\x00"


def _varint(value: int) -> bytes:
    """A zigzag number, as records hold them."""
    value = ((value << 1) ^ (value >> 63)) & 0xFFFF_FFFF_FFFF_FFFF
    data = bytearray()
    while value > 0x7F:
        data.append((value & 0x7F) | 0x80)
        value >>= 7
    data.append(value)
    return bytes(data)


#: The numbers that nearly all records are made of: lengths, deltas.
_SMALL: Final = tuple(_varint(value) for value in range(16_384))
SMALL_COUNT: Final = len(_SMALL)
#: The place of a record in its batch, and that it has no key.
PLACE_NO_KEY: Final = tuple(place + NULL for place in _SMALL)
#: Where the number of a place becomes a byte longer; none is looked up beyond the last.
PLACE_STEPS: Final = (1 << 6, 1 << 13, SMALL_COUNT)


#: Of a record without headers, beside its key and value.
RECORD_OVERHEAD_MAX: Final = 32


def varint(value: int) -> bytes:
    return _SMALL[value] if 0 <= value < SMALL_COUNT else _varint(value)


def record_size_max(key: bytes | None, value: bytes | None, headers: Headers) -> int:
    """An upper bound of what a record adds to a batch."""
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
