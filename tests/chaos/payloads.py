"""Values that identify themselves: a unique uid, filler, and a checksum over both.

A record can be matched with its send, and a changed byte is detected even if the CRC of the batch
was recomputed."""

import zlib

SEPARATOR = b"|"


class DamagedValue(Exception):
    """The value was not sent by a client of these tests."""


def value_of(uid: str, size: int = 0) -> bytes:
    """Returns a value of at least `size` bytes, derived from the uid."""
    head = uid.encode() + SEPARATOR
    filler = (head * (size // len(head) + 1))[: max(0, size - len(head) - 8)]
    body = head + filler
    return body + b"%08x" % zlib.crc32(body)


def uid_in(value: bytes | None) -> str:
    if value is None or len(value) < 9 or value[-8:] != b"%08x" % zlib.crc32(value[:-8]):
        raise DamagedValue(repr(value[:80] if value else value))
    return value.partition(SEPARATOR)[0].decode()
