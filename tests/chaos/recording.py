"""The history of a run that many threads write, and what the run has to tell afterwards."""

import threading
import time
from dataclasses import dataclass, field
from typing import Any

from lograft.simulation.history import EventType, History


class SharedHistory(History):
    """A history that threads may write at the same time."""

    def __init__(self) -> None:
        super().__init__(time.monotonic_ns)
        self._lock = threading.Lock()

    def record(self, proc: str, type: EventType, f: str, **v: Any) -> None:
        with self._lock:
            super().record(proc, type, f, **v)


@dataclass
class Run:
    """What all clients of a run share."""

    port: int
    seed: int
    history: SharedHistory = field(default_factory=SharedHistory)
    stop: threading.Event = field(default_factory=threading.Event)
    #: What no client should ever have met; each is a failure of the run.
    troubles: list[str] = field(default_factory=list)

    @property
    def bootstrap(self) -> str:
        return f"127.0.0.1:{self.port}"

    def trouble(self, who: str, what: object) -> None:
        self.troubles.append(f"{who}: {what}")
