"""Encodes plain values for the network and the log of this example.

The first byte is the type: nothing, a number, bytes, a text, or a tuple of such values. All input
is validated here, so that other modules only check the meaning of values.
"""

from struct import Struct
from typing import Final, TypeAlias

from lograft.model.errors import LograftError
from lograft.model.seams import Buffer

Value: TypeAlias = "int | bytes | str | tuple[Value, ...] | None"

_NOTHING: Final = 0
_INT: Final = 1
_BYTES: Final = 2
_TEXT: Final = 3
_TUPLE: Final = 4
_INT64: Final = Struct(">q")
_SIZE: Final = Struct(">I")
#: Maximum nesting of tuples; no message needs more.
DEPTH_MAX: Final = 6


class Malformed(LograftError):
    """The bytes are not an encoded value, or the value has an unexpected type."""


def pack(value: Value) -> bytes:
    out = bytearray()
    _write(out, value)
    return bytes(out)


def _write(out: bytearray, value: Value) -> None:
    if value is None:
        out.append(_NOTHING)
    elif isinstance(value, int):
        out.append(_INT)
        out += _INT64.pack(value)
    elif isinstance(value, bytes):
        out.append(_BYTES)
        out += _SIZE.pack(len(value))
        out += value
    elif isinstance(value, str):
        data = value.encode()
        out.append(_TEXT)
        out += _SIZE.pack(len(data))
        out += data
    else:
        out.append(_TUPLE)
        out += _SIZE.pack(len(value))
        for each in value:
            _write(out, each)


def unpack(data: Buffer) -> Value:
    """Decodes `data`, which must contain one value and nothing else."""
    value, position = _read(memoryview(data), 0, 0)
    if position != len(data):
        raise Malformed(f"{len(data) - position} bytes after the value")
    return value


def unpack_tuple(data: Buffer) -> tuple[Value, ...]:
    value = unpack(data)
    if not isinstance(value, tuple):
        raise Malformed("not a tuple")
    return value


def _read(data: memoryview, position: int, depth: int) -> tuple[Value, int]:
    if position >= len(data):
        raise Malformed("truncated")
    kind = data[position]
    position += 1
    if kind == _NOTHING:
        return None, position
    if kind == _INT:
        if position + 8 > len(data):
            raise Malformed("truncated number")
        return int(_INT64.unpack_from(data, position)[0]), position + 8
    if kind not in (_BYTES, _TEXT, _TUPLE):
        raise Malformed(f"unknown type {kind}")
    if position + 4 > len(data):
        raise Malformed("truncated size")
    size = int(_SIZE.unpack_from(data, position)[0])
    position += 4
    if size > len(data) - position:
        raise Malformed(f"{size} bytes or values expected, {len(data) - position} bytes left")
    if kind == _TUPLE:
        return _read_tuple(data, position, size, depth + 1)
    content = bytes(data[position : position + size])
    if kind == _BYTES:
        return content, position + size
    try:
        return content.decode(), position + size
    except UnicodeDecodeError:
        raise Malformed("a text that is not UTF-8") from None


def _read_tuple(data: memoryview, position: int, size: int, depth: int) -> tuple[Value, int]:
    if depth > DEPTH_MAX:
        raise Malformed(f"more than {DEPTH_MAX} nested tuples")
    values: list[Value] = []
    for _ in range(size):
        value, position = _read(data, position, depth)
        values.append(value)
    return tuple(values), position


# ── what a value should be ───────────────────────────────────────────────────────────────────


def number(value: Value) -> int:
    if not isinstance(value, int):
        raise Malformed("not a number")
    return value


def content(value: Value) -> bytes:
    if not isinstance(value, bytes):
        raise Malformed("not bytes")
    return value


def text(value: Value) -> str:
    if not isinstance(value, str):
        raise Malformed("not a text")
    return value


def values(value: Value, count: int | None = None) -> tuple[Value, ...]:
    if not isinstance(value, tuple) or (count is not None and len(value) != count):
        raise Malformed("not a tuple" if count is None else f"not a tuple of {count}")
    return value
