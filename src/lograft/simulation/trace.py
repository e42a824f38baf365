"""What happened, as one hash and as the last few lines; and where chance comes from.

The hash covers every event of a run, so two runs with the same hash took the same steps. Only
numbers and names go in: a `repr` with an address, or a set's order, would change between runs.
"""

from collections import deque
from hashlib import sha256
from random import Random
from typing import Final

LAST_EVENTS: Final = 200
#: Lines gathered before they go through sha256: hashing each alone costs more than the event.
LINES_PER_UPDATE: Final = 512


class Trace:
    """Hash of all events, and a ring of the last named ones for the failure file."""

    __slots__ = ("_hash", "_lines", "count", "last")

    def __init__(self, *, keep: int = LAST_EVENTS) -> None:
        self._hash = sha256()
        self._lines: list[str] = []
        self.last: deque[str] = deque(maxlen=keep)
        self.count = 0

    def event(self, name: str, *fields: int | str) -> None:
        """Something worth reading later: hashed, and kept among the last events."""
        line = f"{name} {' '.join(map(str, fields))}" if fields else name
        self.last.append(line)
        self.step(line)

    def step(self, line: str) -> None:
        """Hashed only: the scheduler's draws, too many to be read."""
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
    """Independent random streams of one seed, by name.

    `Random(str)` seeds itself through SHA-512 of the text, so PYTHONHASHSEED has no say.
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
