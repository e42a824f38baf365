"""The files of this repository, for the tests of its rules."""

import subprocess
from functools import cache
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[2]


@cache
def tracked_files() -> tuple[Path, ...]:
    """The files that git tracks, without those that a run of the project creates."""
    listing = subprocess.run(
        ["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, check=True
    ).stdout
    return tuple(ROOT / name for name in listing.decode().split("\0") if name)
