"""Lines of standard input, from files, pipes and in-memory streams."""

import asyncio
import io
import os
from collections.abc import Iterator
from pathlib import Path
from typing import TextIO

import pytest

from lograft.cli.input_lines import input_lines, yield_in_turns
from lograft.cli.kafka import console_producer
from lograft.cli.line_producer import Line
from lograft.cli.values import raw_bytes


async def collect(stream: TextIO) -> list[bytes]:
    return [raw_bytes(line) async for line in input_lines(stream)]


@pytest.fixture
def pipe() -> Iterator[tuple[TextIO, int]]:
    reading, writing = os.pipe()
    with os.fdopen(reading, encoding="ascii") as stream:
        yield stream, writing


def test_bytes_that_are_not_utf8_are_preserved(tmp_path: Path) -> None:
    data = b"h:\xfd\tk\xff|v\xfe\nlast"
    lines = [b"h:\xfd\tk\xff|v\xfe", b"last"]
    assert asyncio.run(collect(io.TextIOWrapper(io.BytesIO(data), encoding="ascii"))) == lines
    (tmp_path / "lines").write_bytes(data)
    with open(tmp_path / "lines", encoding="ascii") as file:
        assert asyncio.run(collect(file)) == lines
    reader = {"parse.key": "true", "key.separator": "|", "parse.headers": "true"}
    parsed = console_producer._parse_line("h:\udcfd\tk\udcff|v\udcfe", 1, reader)
    assert parsed == Line(b"k\xff", b"v\xfe", (("h", b"\xfd"),), None, None)


def test_a_pipe_is_read_as_its_lines_arrive(pipe: tuple[TextIO, int]) -> None:
    """Characters and line endings may be split between two reads."""
    stream, writing = pipe
    waits = 0

    def count_wait() -> None:
        nonlocal waits
        waits += 1

    async def scenario() -> None:
        lines = input_lines(stream, before_wait=count_wait)
        os.write(writing, "grüße\r".encode()[:3])
        first = asyncio.ensure_future(anext(lines))
        await asyncio.sleep(0)
        os.write(writing, "grüße\r".encode()[3:])
        await asyncio.sleep(0)
        assert not first.done(), "the line may still end with a line feed"
        os.write(writing, b"\nsecond\xff\nrest")
        assert await first == "grüße"
        assert raw_bytes(await anext(lines)) == b"second\xff"
        os.close(writing)
        assert await anext(lines) == "rest"
        with pytest.raises(StopAsyncIteration):
            await anext(lines)

    asyncio.run(scenario())
    assert waits >= 2


def test_other_tasks_run_between_the_lines_of_a_file() -> None:
    turns = 0

    async def take_turns() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    async def scenario() -> int:
        other = asyncio.ensure_future(take_turns())
        count = 0
        async for _line in yield_in_turns(str(number) for number in range(5000)):
            count += 1
        other.cancel()
        return count

    assert asyncio.run(scenario()) == 5000
    assert turns >= 5
