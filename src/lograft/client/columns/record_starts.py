"""Finds where the records of a batch start.

The records form a chain, because each starts with its length. Runs of records of equal length are
found at once, all others by a plain loop over the lengths. Lengths are not validated here: the
decoder checks that each record ends where the next one starts, so a corrupt chain is detected
before any record of it is used.
"""

from typing import Any, Final, TypeAlias

import numpy as np

from lograft.model.seams import Buffer
from lograft.wire.batches import RECORD_BYTES_MIN, MalformedBatch

#: Positions have 32 bits, other numbers 64.
Ints: TypeAlias = np.ndarray[Any, np.dtype[np.signedinteger[Any]]]
Bytes: TypeAlias = np.ndarray[Any, np.dtype[np.uint8]]

#: A varint of 64 bits has at most ten bytes.
_VARINT_BYTES_MAX: Final = 10
#: Detecting a shorter run of equal lengths costs more than walking over its records.
_RUN_MIN: Final = 256
#: The offset delta of the 64th record is the first with two bytes, which ends a run.
_SMALL_OFFSETS: Final = 64

#: Distance from the start of a record to the next one, by its first byte: complete if the length
#: has one byte, otherwise the low bits. `_FAR` adds the bits of the second byte.
_NEAR: Final = [(byte & 0x7F) // 2 + (1 if byte < 0x80 else 2) for byte in range(256)]
_FAR: Final = [byte << 6 for byte in range(128)]


def find_record_starts(raw: Buffer, data: Bytes, begin: int, end: int, count: int) -> list[Ints]:
    """Returns the starts of the `count` records between `begin` and `end`, in several arrays. `raw`
    and `data` are the same bytes. Raises MalformedBatch."""
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
        raise MalformedBatch("the records do not end with their batch")
    found.append(np.array(walked, np.int32))
    return found


def _equal_run(data: Bytes, position: int, end: int, count: int) -> tuple[int, int]:
    """Returns how many records from `position` on have the same length, and that length."""
    width, length = _length_at(data[position : min(position + _VARINT_BYTES_MAX, end)])
    stride = width + length
    if length < RECORD_BYTES_MIN - 1 or position + stride > end:
        raise MalformedBatch("a record has an invalid length")
    leap = min(count, (end - position) // stride)
    whole = data[position : position + leap * stride].reshape(leap, stride)
    is_same = whole[:, 0] == whole[0, 0]
    for byte in range(1, width):
        is_same &= whole[:, byte] == whole[0, byte]
    first_other = int(is_same.argmin())
    return (leap if is_same[first_other] else first_other), stride


def _length_at(data: Bytes) -> tuple[int, int]:
    """Returns the width of a varint in bytes, and its value."""
    value = shift = 0
    for width, byte in enumerate(data.tolist(), 1):
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return width, (value >> 1) ^ -(value & 1)
        shift += 7
    raise MalformedBatch("the records are incomplete")


def _walk(raw: Buffer, position: int, count: int) -> tuple[list[int], int]:
    """Returns the starts of the next `count` records, and the end of the last. The only loop over
    records, so it reads only their lengths and validates nothing."""
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
