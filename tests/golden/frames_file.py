"""The format of recorded frames in `frames/`: one gzip file per API.

An entry is a header (version, direction, size of the source's name, size of the frame), the name of
the client that sent or received it, and the frame without its length prefix.
"""

import gzip
import struct
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final, Literal, NamedTuple

FOLDER: Final = Path(__file__).parent / "frames"
HEAD: Final = struct.Struct(">hBBI")
Direction = Literal["request", "response"]
DIRECTIONS: Final[tuple[Direction, Direction]] = ("request", "response")


class Frame(NamedTuple):
    api_key: int
    version: int
    direction: Direction
    source: str
    data: bytes

    def __str__(self) -> str:
        return f"{self.api_key} v{self.version} {self.direction} ({self.source})"


def write_frames(api_key: int, name: str, frames: Iterable[Frame]) -> Path:
    entries = bytearray()
    for frame in frames:
        source = frame.source.encode()
        direction = DIRECTIONS.index(frame.direction)
        entries += HEAD.pack(frame.version, direction, len(source), len(frame.data))
        entries += source + frame.data
    path = FOLDER / f"{api_key:02}-{name}.gz"
    # Without a timestamp, so that equal frames result in equal files.
    path.write_bytes(gzip.compress(bytes(entries), mtime=0))
    return path


def read_frames(path: Path) -> Iterator[Frame]:
    api_key = int(path.name.partition("-")[0])
    data = gzip.decompress(path.read_bytes())
    position = 0
    while position < len(data):
        version, direction, source_size, size = HEAD.unpack_from(data, position)
        position += HEAD.size
        source = data[position : position + source_size].decode()
        position += source_size
        yield Frame(
            api_key, version, DIRECTIONS[direction], source, data[position : position + size]
        )
        position += size


def all_frames() -> Iterator[Frame]:
    for path in sorted(FOLDER.glob("*.gz")):
        yield from read_frames(path)
