"""Replays of a seed in a process of their own."""

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def trace_in_new_process(kind: str, seed: int, hash_seed: str) -> str:
    """The line with the trace hash that `python -m campaigns replay` prints."""
    done = subprocess.run(
        [sys.executable, "-m", "campaigns", "replay", str(seed), "--kind", kind],
        env={**os.environ, "PYTHONHASHSEED": hash_seed},
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout.splitlines()[0]
