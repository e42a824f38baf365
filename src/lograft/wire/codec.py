"""Reads and writes messages. The code for a class and version is compiled on its first use."""

import struct
from collections.abc import Callable
from typing import Any, Final, TypeVar

from lograft.model.seams import Buffer, FileSlice, Part
from lograft.wire.errors import MalformedMessage, UnsupportedVersion, UnwritableMessage
from lograft.wire.message import Message
from lograft.wire.read_compiler import ReadCompiler
from lograft.wire.write_compiler import WriteCompiler

M = TypeVar("M", bound=Message)

#: What the compiled readers run into on input that is cut short, and on text that is not UTF-8.
_BROKEN_INPUT: Final = (struct.error, IndexError, ValueError)
#: What the compiled writers run into on values that do not fit their fields.
_UNFIT_VALUE: Final = (struct.error, AttributeError, TypeError, ValueError, OverflowError)


def read(kind: type[M], version: int, data: Buffer, position: int = 0) -> tuple[M, int]:
    """The message that begins at `position`, and the position after it.

    Fields of record batches are views into `data`, all else is copied. Raises MalformedMessage.
    """
    reader = kind.READERS.get(version) or _compile_reader(kind, version)
    try:
        result: tuple[M, int] = reader(data, position)
    except _BROKEN_INPUT as error:
        raise MalformedMessage(f"{kind.__name__} v{version}: {error}") from error
    return result


def read_all(kind: type[M], version: int, data: Buffer, position: int = 0) -> M:
    """The message that fills `data` from `position` to its end."""
    message, end = read(kind, version, data, position)
    if end != len(data):
        raise MalformedMessage(
            f"{kind.__name__} v{version} ends at {end}, {len(data) - end} bytes too early"
        )
    return message


def write(message: Message, version: int) -> bytes:
    """The message as bytes; record batches that lie in files are read."""
    parts: list[Part] = []
    tail = write_tail(message, version, parts)
    if not parts:
        return tail
    whole = [
        part.file.pread(part.size, part.position) if isinstance(part, FileSlice) else part
        for part in parts
    ]
    return b"".join([*whole, tail])


def write_parts(message: Message, version: int) -> list[Part]:
    """The message as parts to send: record batches in files and big buffers stay what they are."""
    parts: list[Part] = []
    tail = write_tail(message, version, parts)
    if tail:
        parts.append(tail)
    return parts


def write_tail(message: Message, version: int, parts: list[Part]) -> bytes:
    """The message as bytes, or, if it holds record batches that are not to be copied, the bytes
    after the last of them: what comes before and they themselves are appended to `parts`."""
    kind = type(message)
    writer = kind.WRITERS.get(version) or _compile_writer(kind, version)
    try:
        tail: bytes = writer(message, parts)
    except _UNFIT_VALUE as error:
        raise UnwritableMessage(f"{kind.__name__} v{version}: {error}") from error
    return tail


def _compile_reader(kind: type[Message], version: int) -> Callable[..., Any]:
    _check_version(kind, version)
    reader = kind.READERS[version] = ReadCompiler(kind, version).compile()
    return reader


def _compile_writer(kind: type[Message], version: int) -> Callable[..., bytes]:
    _check_version(kind, version)
    writer = kind.WRITERS[version] = WriteCompiler(kind, version).compile()
    return writer


def _check_version(kind: type[Message], version: int) -> None:
    first, last = kind.VERSIONS
    if not first <= version <= last:
        raise UnsupportedVersion(
            f"{kind.__name__} has the versions {first} to {last}, not {version}"
        )
