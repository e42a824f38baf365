"""The history of a run, recorded by several threads, and the unexpected errors of its clients."""

import threading
import time
from dataclasses import dataclass, field
from typing import Any, Final, Protocol

from lograft.model.errors import ErrorCode
from lograft.model.types import TopicPartition
from lograft.simulation.history import EventType, History
from tests.chaos.raw_client import Fetched, RawClient

#: Error codes that a node may return for a moment after its start.
TRANSIENT: Final = frozenset(
    (
        ErrorCode.LEADER_NOT_AVAILABLE,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.REQUEST_TIMED_OUT,
    )
)


class PartitionClient(Protocol):
    """A client of a single node, or of the partition leaders of a cluster."""

    def producer_id(self) -> tuple[int, int]: ...

    def produce(self, tp: TopicPartition, batch: bytes) -> int: ...

    def fetch(
        self, tp: TopicPartition, offset: int, *, wait_ms: int = 500, bytes_max: int = 0
    ) -> Fetched: ...

    def offset_at(self, tp: TopicPartition, timestamp: int) -> int: ...

    def close(self) -> None: ...


class SharedHistory(History):
    """A history to which several threads can add events."""

    def __init__(self) -> None:
        super().__init__(time.monotonic_ns)
        self._lock = threading.Lock()

    def record(self, proc: str, type: EventType, f: str, **v: Any) -> None:
        with self._lock:
            super().record(proc, type, f, **v)


@dataclass
class Run:
    """State shared by all clients of a run."""

    port: int
    seed: int
    history: SharedHistory = field(default_factory=SharedHistory)
    stop: threading.Event = field(default_factory=threading.Event)
    #: Unexpected errors of clients; each of them fails the run.
    troubles: list[str] = field(default_factory=list)
    #: Error codes after which a client retries.
    transient: frozenset[ErrorCode] = TRANSIENT

    @property
    def bootstrap(self) -> str:
        return f"127.0.0.1:{self.port}"

    def client(self, name: str) -> "PartitionClient":
        return RawClient(self.port, name=name)

    def trouble(self, client: str, error: object) -> None:
        self.troubles.append(f"{client}: {error}")
