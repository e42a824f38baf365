"""Values that say who they are: a unique uid, filler, and a checksum over both.

A record that comes back can be matched with its send, and a byte that changed on the way shows
even where the CRC of its batch was made anew.
"""

import zlib

SEPARATOR = b"|"


class DamagedValue(Exception):
    """A value that no client of these tests has sent."""


def value_of(uid: str, size: int = 0) -> bytes:
    """At least `size` bytes, made from the uid alone."""
    head = uid.encode() + SEPARATOR
    filler = (head * (size // len(head) + 1))[: max(0, size - len(head) - 8)]
    body = head + filler
    return body + b"%08x" % zlib.crc32(body)


def uid_in(value: bytes | None) -> str:
    if value is None or len(value) < 9 or value[-8:] != b"%08x" % zlib.crc32(value[:-8]):
        raise DamagedValue(repr(value[:80] if value else value))
    return value.partition(SEPARATOR)[0].decode()
