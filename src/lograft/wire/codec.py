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

#: Errors of the compiled readers for truncated input and for text that is not UTF-8.
_INPUT_ERRORS: Final = (struct.error, IndexError, ValueError)
#: Errors of the compiled writers for values that do not fit their fields.
_VALUE_ERRORS: Final = (struct.error, AttributeError, TypeError, ValueError, OverflowError)


def read(kind: type[M], version: int, data: Buffer, position: int = 0) -> tuple[M, int]:
    """Returns the message that starts at `position`, and the position after it.

    `records` fields are views into `data`, everything else is copied. Raises MalformedMessage.
    """
    reader = kind.READERS.get(version) or _compile_reader(kind, version)
    try:
        result: tuple[M, int] = reader(data, position)
    except _INPUT_ERRORS as error:
        raise MalformedMessage(f"{kind.__name__} v{version}: {error}") from error
    return result


def read_all(kind: type[M], version: int, data: Buffer, position: int = 0) -> M:
    """Returns the message that extends from `position` to the end of `data`."""
    message, end = read(kind, version, data, position)
    if end != len(data):
        raise MalformedMessage(
            f"{kind.__name__} v{version} ends at {end}, {len(data) - end} bytes too early"
        )
    return message


def write(message: Message, version: int) -> bytes:
    """Returns the message as bytes; reads record batches that are in files."""
    parts: list[Part] = []
    tail = write_tail(message, version, parts)
    if not parts:
        return tail
    whole = [
        part.file.pread(part.size, part.position) if isinstance(part, FileSlice) else part
        for part in parts
    ]
    return b"".join([*whole, tail])


def write_tail(message: Message, version: int, parts: list[Part]) -> bytes:
    """Returns the message as bytes. If it has record batches that must not be copied, they and the
    bytes before them are appended to `parts`, and only the bytes after them are returned."""
    kind = type(message)
    writer = kind.WRITERS.get(version) or _compile_writer(kind, version)
    try:
        tail: bytes = writer(message, parts)
    except _VALUE_ERRORS as error:
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
            f"{kind.__name__} has versions {first} to {last}, but not {version}"
        )
