"""Corrupts bytes, for the tests of everything that reads bytes from outside."""

import random

#: Boundary values of counts and lengths: int32, int16, varints.
EDGES = (
    b"\x7f\xff\xff\xff",
    b"\xff\xff\xff\xff",
    b"\x80\0\0\0",
    b"\x7f\xff",
    b"\x80\0",
    b"\xff\xff\xff\xff\x0f",
    b"\xff\xff\xff\xff\x07",
    b"\x80\x80\x80\x80\x01",
    b"\xff\xff\xff\xff\xff\xff",
    b"\xff\xff\x03",
    b"\0",
)


def mutate(data: bytes, chance: random.Random) -> bytes:
    """Applies one or two changes: a byte or boundary value overwritten, bytes removed or
    inserted."""
    changed = bytearray(data)
    for _ in range(chance.randint(1, 2)):
        at = chance.randrange(len(changed) + 1)
        match chance.randrange(4):
            case 0:
                changed[at : at + 1] = bytes([chance.randrange(256)])
            case 1:
                edge = chance.choice(EDGES)
                changed[at : at + len(edge)] = edge
            case 2:
                del changed[at : at + chance.randint(1, 8)]
            case _:
                changed[at:at] = chance.randbytes(chance.randint(1, 8))
    return bytes(changed)
