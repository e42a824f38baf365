"""Replays a seed in a separate process."""

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def trace_in_new_process(kind: str, seed: int, hash_seed: str) -> str:
    """Returns the line with the trace hash from `python -m campaigns replay`."""
    result = subprocess.run(
        [sys.executable, "-m", "campaigns", "replay", str(seed), "--kind", kind],
        env={**os.environ, "PYTHONHASHSEED": hash_seed},
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    return result.stdout.splitlines()[0]
