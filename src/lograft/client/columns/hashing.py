"""murmur2 of whole columns of keys, identical to that of single keys and so to Java's."""

from typing import Any, Final, TypeAlias

import numpy as np
import pyarrow as pa

from lograft.client.columns.varints import Ints
from lograft.client.producing.partitioner import MURMUR2_M, MURMUR2_SEED, murmur2

_Words: TypeAlias = np.ndarray[Any, np.dtype[np.uint32]]

_M: Final = np.uint32(MURMUR2_M)
#: Longer keys are hashed one by one: they are rare, and the longest key determines the number of
#: passes over the column.
_LENGTH_MAX: Final = 128


def murmur2_column(keys: pa.Array) -> Ints:
    """Returns the hashes of an array of type binary; those of nulls are undefined."""
    count = len(keys)
    _, offsets_buffer, data_buffer = keys.buffers()
    if not count or data_buffer is None:
        return np.full(count, murmur2(b""), np.int64)
    offsets = np.frombuffer(offsets_buffer, np.int32)[keys.offset : keys.offset + count + 1]
    first, last = int(offsets[0]), int(offsets[-1])
    begins, lengths = offsets[:-1].astype(np.int64) - first, np.diff(offsets)
    # Three more bytes, so that a word can be read where only one byte of a key is left.
    data = np.zeros(last - first + 3, np.uint8)
    data[:-3] = np.frombuffer(data_buffer, np.uint8)[first:last]
    is_long = lengths > _LENGTH_MAX
    lengths = np.where(is_long, 0, lengths)

    hashes = np.uint32(MURMUR2_SEED) ^ lengths.astype(np.uint32)
    words = lengths >> 2
    for at in range(int(words.max())):
        rows = np.flatnonzero(words > at)
        word = _words(data, begins[rows] + 4 * at) * _M
        word = (word ^ word >> np.uint32(24)) * _M
        hashes[rows] = (hashes[rows] * _M) ^ word
    rest = lengths & 3
    rows = np.flatnonzero(rest)
    word = _words(data, begins[rows] + 4 * words[rows])
    word &= (np.uint32(1) << (8 * rest[rows]).astype(np.uint32)) - np.uint32(1)
    hashes[rows] = (hashes[rows] ^ word) * _M
    hashes = (hashes ^ hashes >> np.uint32(13)) * _M
    hashes = (hashes ^ hashes >> np.uint32(15)) & np.uint32(0x7FFF_FFFF)

    result = hashes.astype(np.int64)
    for row in np.flatnonzero(is_long).tolist():
        result[row] = murmur2(keys[row].as_py() or b"")
    return result


def _words(data: Any, positions: Ints) -> _Words:
    """Returns the little-endian words at the positions."""
    word: _Words = data[positions].astype(np.uint32)
    for byte in range(1, 4):
        word |= data[positions + byte].astype(np.uint32) << np.uint32(8 * byte)
    return word
