"""The history of a run that many threads write, and what the run has to tell afterwards."""

import threading
import time
from dataclasses import dataclass, field
from typing import Any, Final, Protocol

from lograft.model.errors import ErrorCode
from lograft.model.types import TopicPartition
from lograft.simulation.history import EventType, History
from tests.chaos.raw_client import Fetched, RawClient

#: A node that has just come back may say these for a moment.
PASSING: Final = frozenset(
    (
        ErrorCode.LEADER_NOT_AVAILABLE,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.REQUEST_TIMED_OUT,
    )
)


class Asking(Protocol):
    """What the clients of a run ask, of one node or of whoever leads in a cluster."""

    def producer_id(self) -> tuple[int, int]: ...

    def produce(self, tp: TopicPartition, batch: bytes) -> int: ...

    def fetch(
        self, tp: TopicPartition, offset: int, *, wait_ms: int = 500, bytes_max: int = 0
    ) -> Fetched: ...

    def offset_at(self, tp: TopicPartition, timestamp: int) -> int: ...

    def close(self) -> None: ...


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
    #: Refusals after which a client tries again.
    passing: frozenset[ErrorCode] = PASSING

    @property
    def bootstrap(self) -> str:
        return f"127.0.0.1:{self.port}"

    def client(self, name: str) -> "Asking":
        return RawClient(self.port, name=name)

    def trouble(self, who: str, what: object) -> None:
        self.troubles.append(f"{who}: {what}")
