"""Where the records of a batch begin.

That is a chain, as each record says how long it is. It is followed by leaps where many neighbours
are of equal length, else by a plain loop over the lengths alone. Lengths are taken at their word
here: whoever reads the records checks that each one ends where the next one begins, so a chain that
went astray is found out before anything of it is used.
"""

from typing import Any, Final, TypeAlias

import numpy as np

from lograft.model.seams import Buffer
from lograft.wire.batches import RECORD_BYTES_MIN, MalformedBatch

#: Positions have 32 bits, all else 64.
Ints: TypeAlias = np.ndarray[Any, np.dtype[np.signedinteger[Any]]]
Bytes: TypeAlias = np.ndarray[Any, np.dtype[np.uint8]]

#: A number of 64 bits takes at most ten bytes.
_VARINT_BYTES_MAX: Final = 10
#: Finding out that fewer neighbours are of equal length costs more than walking past them.
_RUN_MIN: Final = 256
#: The offset of the 64th record of a batch is the first that takes two bytes: it ends a run.
_SMALL_OFFSETS: Final = 64

#: From the first byte of a record to the next record, as far as that byte says: all of a length of
#: one byte, else the low bits. `_FAR` adds what the second byte says.
_NEAR: Final = [(byte & 0x7F) // 2 + (1 if byte < 0x80 else 2) for byte in range(256)]
_FAR: Final = [byte << 6 for byte in range(128)]


def record_starts(raw: Buffer, data: Bytes, begin: int, end: int, count: int) -> list[Ints]:
    """Where the records of a batch begin, in pieces: so many are said to lie between `begin` and
    `end`. `raw` and `data` are the same bytes. Raises MalformedBatch."""
    if count < 0 or count * RECORD_BYTES_MIN > end - begin:
        raise MalformedBatch(f"{count} records do not fit in {end - begin} bytes")
    found: list[Ints] = []
    walked, position = _walk(raw, begin, min(count, _SMALL_OFFSETS) if count >= _RUN_MIN else count)
    count -= len(walked)
    while count >= _RUN_MIN:
        run, stride = _equal_run(data, position, end, count)
        if run < _RUN_MIN:
            break  # the lengths vary
        found.append(np.array(walked, np.int32))
        found.append(np.arange(position, position + stride * run, stride, dtype=np.int32))
        walked = []
        position += stride * run
        count -= run
    if count:
        rest, position = _walk(raw, position, count)
        walked += rest
    if position != end:
        raise MalformedBatch("the records do not fill their batch")
    found.append(np.array(walked, np.int32))
    return found


def _equal_run(data: Bytes, position: int, end: int, count: int) -> tuple[int, int]:
    """How many records from here on are as long as the first (at least that one), and how long."""
    width, length = _length_at(data[position : min(position + _VARINT_BYTES_MAX, end)])
    stride = width + length
    if length < RECORD_BYTES_MIN - 1 or position + stride > end:
        raise MalformedBatch("a record's length is not possible")
    leap = min(count, (end - position) // stride)
    whole = data[position : position + leap * stride].reshape(leap, stride)
    is_same = whole[:, 0] == whole[0, 0]
    for byte in range(1, width):
        is_same &= whole[:, byte] == whole[0, byte]
    first_other = int(is_same.argmin())
    return (leap if is_same[first_other] else first_other), stride


def _length_at(data: Bytes) -> tuple[int, int]:
    """Of a varint: how many bytes it takes, and its value."""
    value = shift = 0
    for width, byte in enumerate(data.tolist(), 1):
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return width, (value >> 1) ^ -(value & 1)
        shift += 7
    raise MalformedBatch("the records are incomplete")


def _walk(raw: Buffer, position: int, count: int) -> tuple[list[int], int]:
    """Follows the chain one by one: where the records begin, and where the last one ends. The only
    loop over records, so it looks at their lengths only and checks nothing."""
    found = [0] * count
    near, far = _NEAR, _FAR
    try:
        for number in range(count):
            found[number] = position
            byte = raw[position]
            if byte < 0x80:
                position += near[byte]
                continue
            second = raw[position + 1]
            if second < 0x80:
                position += near[byte] + far[second]
                continue
            value, shift = byte & 0x7F | (second & 0x7F) << 7, 14
            position += 2
            while (byte := raw[position]) >= 0x80:
                value |= (byte & 0x7F) << shift
                shift += 7
                position += 1
            position += ((value | byte << shift) >> 1) + 1
    except IndexError:
        raise MalformedBatch("the records are incomplete") from None
    return found, position
