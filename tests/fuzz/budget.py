"""The duration and the seeds of the fuzz tests: the same seeds in every run, as many as time
allows."""

import os
import time
from collections.abc import Iterator
from typing import Final

SECONDS_DEFAULT: Final = 20.0


def seconds() -> float:
    return float(os.environ.get("LOGRAFT_FUZZ_SECONDS", SECONDS_DEFAULT))


def seeds(share: float = 1.0) -> Iterator[int]:
    """Yields 0, 1, 2, … until this test's share of the time is used; at least one seed.
    LOGRAFT_FUZZ_SEED replays a single one."""
    chosen = os.environ.get("LOGRAFT_FUZZ_SEED")
    if chosen is not None:
        yield int(chosen)
        return
    end = time.monotonic() + share * seconds()
    seed = 0
    yield seed
    while time.monotonic() < end:
        seed += 1
        yield seed
