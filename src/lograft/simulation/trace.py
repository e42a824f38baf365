"""The trace of a run, as a hash and its last events, and the random streams of a seed.

The hash covers every event, so two runs with the same hash took the same steps. Events contain only
numbers and names: a `repr` with an address, or the order of a set, would differ between runs.
"""

from collections import deque
from hashlib import sha256
from random import Random
from typing import Final

LAST_EVENTS: Final = 200
#: Lines per update of the hash: hashing each line separately costs more than the event itself.
LINES_PER_UPDATE: Final = 512


class Trace:
    """Hash of all events, and the last named events for the failure file."""

    __slots__ = ("_hash", "_lines", "count", "last")

    def __init__(self, *, keep: int = LAST_EVENTS) -> None:
        self._hash = sha256()
        self._lines: list[str] = []
        self.last: deque[str] = deque(maxlen=keep)
        self.count = 0

    def event(self, name: str, *fields: int | str) -> None:
        """Adds a named event, which is hashed and kept among the last events."""
        line = f"{name} {' '.join(map(str, fields))}" if fields else name
        self.last.append(line)
        self.step(line)

    def step(self, line: str) -> None:
        """Adds a line to the hash only, for the scheduler's many draws."""
        self.count += 1
        lines = self._lines
        lines.append(line)
        if len(lines) >= LINES_PER_UPDATE:
            self._fold()

    def _fold(self) -> None:
        if self._lines:
            self._lines.append("")
            self._hash.update("\n".join(self._lines).encode())
            self._lines.clear()

    def digest(self) -> str:
        self._fold()
        return self._hash.hexdigest()


class Streams:
    """Independent, named random streams of a seed.

    `Random(str)` seeds itself with SHA-512 of the text, so PYTHONHASHSEED has no effect.
    """

    __slots__ = ("_streams", "seed")

    def __init__(self, seed: int | str) -> None:
        self.seed = seed
        self._streams: dict[str, Random] = {}

    def stream(self, name: str) -> Random:
        found = self._streams.get(name)
        if found is None:
            found = self._streams[name] = Random(f"{self.seed}:{name}")
        return found
