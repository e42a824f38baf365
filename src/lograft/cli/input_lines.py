"""Reads lines of standard input without blocking the event loop.

While standard input has no new line, the producer keeps sending and signals are handled.
"""

import asyncio
import codecs
import io
import os
import stat
from collections.abc import AsyncIterator, Callable, Iterable
from itertools import islice
from typing import Final, TextIO

from lograft.cli.values import preserve_raw_bytes

CHUNK_BYTES: Final = 64 * 1024
#: Lines of a file that are read before other tasks run.
LINES_AT_ONCE: Final = 1000


async def input_lines(
    stream: TextIO, *, before_wait: Callable[[], None] | None = None
) -> AsyncIterator[str]:
    """Yields lines without their line endings, with Python's universal newlines. Bytes that are not
    UTF-8 are kept for `raw_bytes`. `before_wait` is called whenever no complete line is left."""
    descriptor = _pollable_descriptor(stream)
    if descriptor is None:
        preserve_raw_bytes(stream)
        async for line in yield_in_turns(line.removesuffix("\n") for line in stream):
            yield line
        return
    decoder = io.IncrementalNewlineDecoder(
        codecs.getincrementaldecoder("utf-8")("surrogateescape"), translate=True
    )
    rest = ""
    while True:
        if before_wait is not None:
            before_wait()
        await _wait_readable(descriptor)
        data = os.read(descriptor, CHUNK_BYTES)
        *lines, rest = (rest + decoder.decode(data, final=not data)).split("\n")
        for line in lines:
            yield line
        if not data:
            if rest:
                yield rest
            return


async def yield_in_turns(lines: Iterable[str]) -> AsyncIterator[str]:
    """Yields lines that can be read without waiting; other tasks run in between."""
    iterator = iter(lines)
    while chunk := list(islice(iterator, LINES_AT_ONCE)):
        for line in chunk:
            yield line
        await asyncio.sleep(0)


def _pollable_descriptor(stream: TextIO) -> int | None:
    """Returns the descriptor of a pipe, socket or terminal; None for files, which never block."""
    try:
        descriptor = stream.fileno()
    except (OSError, ValueError):
        return None
    mode = os.fstat(descriptor).st_mode
    if stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode) or os.isatty(descriptor):
        return descriptor
    return None


async def _wait_readable(descriptor: int) -> None:
    loop = asyncio.get_running_loop()
    ready = loop.create_future()

    def set_ready() -> None:
        if not ready.done():
            ready.set_result(None)

    loop.add_reader(descriptor, set_ready)
    try:
        await ready
    finally:
        loop.remove_reader(descriptor)
