"""Measures the cost of writing files into memory that was used recently, and into other memory.

    python -m bench.micro.memory [FOLDER]

On a physical machine both cost the same. In a virtual machine the host has to allocate a page when
it is touched for the first time, or again after the guest has returned it.
"""

import os
import sys
import tempfile
from pathlib import Path
from typing import Final

BATCH: Final = bytes(512 << 10)
FILE_BYTES: Final = 512 << 20
FILES: Final = 12
GIGABYTE: Final = 1e9


def write(path: Path) -> float:
    """CPU seconds per GB."""
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC)
    before = os.times()
    for position in range(0, FILE_BYTES, len(BATCH)):
        os.pwrite(descriptor, BATCH, position)
    after = os.times()
    os.close(descriptor)
    used = after.user - before.user + after.system - before.system
    return used / FILE_BYTES * GIGABYTE


def main() -> None:
    with tempfile.TemporaryDirectory(dir=sys.argv[1] if len(sys.argv) > 1 else None) as folder:
        path = Path(folder, "same")
        reused = []
        for _ in range(FILES):
            reused.append(write(path))
            path.unlink()
        kept = [write(Path(folder, f"kept-{number}")) for number in range(FILES)]
    for name, figures in (("one file after another", reused), ("all of them kept", kept)):
        print(f"{name}:", " ".join(f"{figure:.2f}" for figure in figures), "CPU-s/GB")


if __name__ == "__main__":
    main()
