"""Zigzag numbers of variable length as whole columns of bytes."""

from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa

Ints: TypeAlias = np.ndarray[Any, np.dtype[np.signedinteger[Any]]]
_Unsigned: TypeAlias = np.ndarray[Any, np.dtype[np.uint64]]


class Varints:
    """A column of numbers as records hold them; `widths` is how many bytes each takes."""

    __slots__ = ("_zigzag", "width_max", "widths")

    def __init__(self, numbers: Ints) -> None:
        numbers = numbers.astype(np.int64, copy=False)
        self._zigzag: _Unsigned = ((numbers << 1) ^ (numbers >> 63)).view(np.uint64)
        self.width_max = varint_width(int(self._zigzag.max())) if len(numbers) else 1
        self.widths = np.ones(len(numbers), np.int64)
        for width in range(1, self.width_max):
            self.widths += self._zigzag >= np.uint64(1 << 7 * width)

    def write(self, cells: np.ndarray[Any, Any], is_used: np.ndarray[Any, Any]) -> None:
        """A row for the first bytes of all numbers, one for their second bytes, and so on; not all
        numbers use all of them."""
        for at in range(self.width_max):
            byte = (self._zigzag >> np.uint64(7 * at)).astype(np.uint8) & 0x7F
            goes_on = self.widths > at + 1
            cells[at] = byte | goes_on.astype(np.uint8) << 7
            is_used[at] = True if not at else self.widths > at


def varint_width(zigzag: int) -> int:
    return max(1, (zigzag.bit_length() + 6) // 7)


def packed(columns: Sequence[Varints | bytes]) -> pa.Array:
    """An Arrow array with the bytes of each row's numbers one after the other; bytes stand for
    themselves in every row."""
    count = next(len(one.widths) for one in columns if isinstance(one, Varints))
    height = sum(one.width_max if isinstance(one, Varints) else len(one) for one in columns)
    cells = np.empty((height, count), np.uint8)
    is_used = np.ones((height, count), np.bool_)
    widths = np.zeros(count, np.int64)
    at = 0
    for one in columns:
        if isinstance(one, Varints):
            one.write(cells[at : at + one.width_max], is_used[at : at + one.width_max])
            at += one.width_max
            widths += one.widths
            continue
        for byte in one:
            cells[at] = byte
            at += 1
        widths += len(one)
    # Read by rows, the cells in use are the rows' bytes in order.
    data = cells.T[is_used.T]
    return binary_array(data, widths)


def binary_array(data: Any, widths: Ints) -> pa.Array:
    """An Arrow array over bytes that lie one after the other."""
    offsets = np.zeros(len(widths) + 1, np.int32)
    np.cumsum(widths, out=offsets[1:])
    return pa.Array.from_buffers(
        pa.binary(), len(widths), [None, pa.py_buffer(offsets), pa.py_buffer(data)]
    )
