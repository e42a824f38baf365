"""The recorded data folders of Apache Kafka, and the text of its DumpLogSegments for each file."""

import re
import tarfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

FILES: Final = Path(__file__).parent / "files"
_FIELD: Final = re.compile(r"(\w+): (\S+)")


@dataclass(frozen=True, slots=True)
class Folder:
    """`data` is a log dir written by Kafka; `dump(name)` is its tool's output for a file in it."""

    root: Path

    @property
    def data(self) -> Path:
        return self.root / "data"

    def dump(self, name: str) -> list[str]:
        return (self.root / "dumps" / f"{name}.txt").read_text().splitlines()

    def entries(self, name: str) -> list[dict[str, str]]:
        """Returns the lines of an index or snapshot: `key: value key: value`."""
        return [dict(_FIELD.findall(line)) for line in self.dump(name)[1:]]

    def batches(self, name: str) -> list[dict[str, str]]:
        return [
            dict(_FIELD.findall(line))
            for line in self.dump(name)
            if line.startswith("baseOffset: ")
        ]

    def records(self, name: str) -> list[str]:
        """Returns the lines of single records."""
        return [line for line in self.dump(name) if line.startswith("| offset: ")]

    def files(self, pattern: str) -> Iterator[str]:
        """Yields the names, relative to the log dir, of files that have a dump."""
        for file in sorted(self.data.glob(pattern)):
            name = str(file.relative_to(self.data))
            if (self.root / "dumps" / f"{name}.txt").exists():
                yield name


def unpack(ending: str, target: Path) -> Folder:
    """`ending`: how the server was terminated (stopped or killed), or kept-state
    (tools/golden_files.py)."""
    (archive,) = FILES.glob(f"*-{ending}.tar.gz")
    with tarfile.open(archive) as tar:
        tar.extractall(target, filter="data")
    return Folder(target)
