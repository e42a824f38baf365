"""Lines of standard input, read without blocking the event loop.

The producer keeps sending and signals are handled while standard input has no new line.
"""

import asyncio
import codecs
import io
import os
import stat
from collections.abc import AsyncIterator, Callable, Iterable
from itertools import islice
from typing import Final, TextIO

from lograft.cli.values import keep_raw

CHUNK_BYTES: Final = 64 * 1024
#: Lines of a file that are read before other tasks run.
LINES_AT_ONCE: Final = 1000


async def input_lines(
    stream: TextIO, *, before_wait: Callable[[], None] | None = None
) -> AsyncIterator[str]:
    """Yields lines without their line endings, with Python's universal newlines. Bytes that are not
    UTF-8 are kept for `raw_bytes`. `before_wait` is called whenever no complete line is left."""
    descriptor = _pollable(stream)
    if descriptor is None:
        keep_raw(stream)
        async for line in in_turns(line.removesuffix("\n") for line in stream):
            yield line
        return
    decoder = io.IncrementalNewlineDecoder(
        codecs.getincrementaldecoder("utf-8")("surrogateescape"), translate=True
    )
    rest = ""
    while True:
        if before_wait is not None:
            before_wait()
        await _readable(descriptor)
        data = os.read(descriptor, CHUNK_BYTES)
        *lines, rest = (rest + decoder.decode(data, final=not data)).split("\n")
        for line in lines:
            yield line
        if not data:
            if rest:
                yield rest
            return


async def in_turns(lines: Iterable[str]) -> AsyncIterator[str]:
    """Yields lines that can be read without waiting; other tasks run in between."""
    iterator = iter(lines)
    while some := list(islice(iterator, LINES_AT_ONCE)):
        for line in some:
            yield line
        await asyncio.sleep(0)


def _pollable(stream: TextIO) -> int | None:
    """The descriptor of a pipe, a socket or a terminal; None for files, which never block."""
    try:
        descriptor = stream.fileno()
    except (OSError, ValueError):
        return None
    mode = os.fstat(descriptor).st_mode
    if stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode) or os.isatty(descriptor):
        return descriptor
    return None


async def _readable(descriptor: int) -> None:
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
