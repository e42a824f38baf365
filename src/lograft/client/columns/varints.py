"""Encodes whole columns of zigzag varints."""

from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa

Ints: TypeAlias = np.ndarray[Any, np.dtype[np.signedinteger[Any]]]
_Unsigned: TypeAlias = np.ndarray[Any, np.dtype[np.uint64]]


class Varints:
    """A column of numbers as varints; `widths` is the number of bytes of each."""

    __slots__ = ("_zigzag", "width_max", "widths")

    def __init__(self, numbers: Ints) -> None:
        numbers = numbers.astype(np.int64, copy=False)
        self._zigzag: _Unsigned = ((numbers << 1) ^ (numbers >> 63)).view(np.uint64)
        self.width_max = varint_width(int(self._zigzag.max())) if len(numbers) else 1
        self.widths = np.ones(len(numbers), np.int64)
        for width in range(1, self.width_max):
            self.widths += self._zigzag >= np.uint64(1 << 7 * width)

    def write(self, cells: np.ndarray[Any, Any], is_used: np.ndarray[Any, Any]) -> None:
        """Writes the first bytes of all numbers to the first row of `cells`, the second bytes to
        the second row, and so on; `is_used` marks the bytes that a number has."""
        for at in range(self.width_max):
            byte = (self._zigzag >> np.uint64(7 * at)).astype(np.uint8) & 0x7F
            has_more = self.widths > at + 1
            cells[at] = byte | has_more.astype(np.uint8) << 7
            is_used[at] = True if not at else self.widths > at


def varint_width(zigzag: int) -> int:
    return max(1, (zigzag.bit_length() + 6) // 7)


def pack_columns(columns: Sequence[Varints | bytes]) -> pa.Array:
    """Returns an Arrow array that contains, for each row, the bytes of all columns one after the
    other; a `bytes` column is repeated in every row."""
    count = next(len(column.widths) for column in columns if isinstance(column, Varints))
    height = sum(
        column.width_max if isinstance(column, Varints) else len(column) for column in columns
    )
    cells = np.empty((height, count), np.uint8)
    is_used = np.ones((height, count), np.bool_)
    widths = np.zeros(count, np.int64)
    at = 0
    for column in columns:
        if isinstance(column, Varints):
            rows = slice(at, at + column.width_max)
            column.write(cells[rows], is_used[rows])
            at += column.width_max
            widths += column.widths
            continue
        for byte in column:
            cells[at] = byte
            at += 1
        widths += len(column)
    # Read column by column, the used cells are the bytes of the records in order.
    data = cells.T[is_used.T]
    return binary_array(data, widths)


def binary_array(data: Any, widths: Ints) -> pa.Array:
    """Returns an Arrow array over consecutive values in `data`."""
    offsets = np.zeros(len(widths) + 1, np.int32)
    np.cumsum(widths, out=offsets[1:])
    return pa.Array.from_buffers(
        pa.binary(), len(widths), [None, pa.py_buffer(offsets), pa.py_buffer(data)]
    )
