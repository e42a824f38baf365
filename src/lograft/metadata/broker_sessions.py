"""Sessions of the brokers at the active controller, extended by their heartbeats.

They are not part of the image: every new controller learns them from the heartbeats that it
receives. A broker that is expected but has not sent a heartbeat to this controller yet has one
session timeout from the time when the controller became active.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from lograft.model.metrics import Gauge, Sample

#: Beyond any value of the clock.
NEVER_MS: Final = 1 << 62

SESSIONS: Final = Gauge(
    "lograft_broker_sessions", "Brokers whose heartbeats this node tracks as the active controller."
)


@dataclass(slots=True)
class Session:
    epoch: int
    last_heartbeat_ms: int
    #: The broker's last offset in the metadata log.
    metadata_offset: int
    #: Whether the connection of its last heartbeat is still open; False before the first heartbeat.
    connected: bool


class BrokerSessions:
    __slots__ = ("_sessions", "_timeout_ms")

    def __init__(self, timeout_ms: int) -> None:
        self._timeout_ms = timeout_ms
        self._sessions: dict[int, Session] = {}

    def on_heartbeat(
        self, broker_id: int, *, epoch: int, metadata_offset: int, now_ms: int
    ) -> None:
        self._sessions[broker_id] = Session(epoch, now_ms, metadata_offset, True)

    def expect(self, broker_id: int, *, epoch: int, now_ms: int) -> None:
        """Starts the session of a broker that a newly active controller expects to be running."""
        self._sessions.setdefault(broker_id, Session(epoch, now_ms, -1, False))

    def on_disconnected(self, broker_id: int, *, epoch: int) -> None:
        """The connection of its heartbeats was closed, so the broker may have failed."""
        session = self._sessions.get(broker_id)
        if session is not None and session.epoch == epoch:
            session.connected = False

    def is_suspect(self, broker_id: int, *, epoch: int, last_heartbeat_before_ms: int) -> bool:
        """Whether its connection is closed or it has not sent a heartbeat since then."""
        session = self._sessions.get(broker_id)
        return (
            session is not None
            and session.epoch == epoch
            and (not session.connected or session.last_heartbeat_ms < last_heartbeat_before_ms)
        )

    def suspects(self, last_heartbeat_before_ms: int) -> list[tuple[int, int]]:
        """The suspect brokers, with their epochs."""
        return [
            (broker_id, session.epoch)
            for broker_id, session in self._sessions.items()
            if not session.connected or session.last_heartbeat_ms < last_heartbeat_before_ms
        ]

    def forget(self, broker_id: int, *, epoch: int) -> None:
        session = self._sessions.get(broker_id)
        if session is not None and session.epoch == epoch:
            del self._sessions[broker_id]

    def is_alive(self, broker_id: int, *, epoch: int, now_ms: int) -> bool:
        """Whether this registration of the broker sent a heartbeat within the timeout and its
        connection is still open."""
        session = self._sessions.get(broker_id)
        return (
            session is not None
            and session.epoch == epoch
            and session.connected
            and session.metadata_offset >= 0
            and now_ms - session.last_heartbeat_ms <= self._timeout_ms
        )

    def find_expired(self, now_ms: int) -> list[tuple[int, int]]:
        """The brokers whose sessions have expired, with their epochs."""
        return [
            (broker_id, session.epoch)
            for broker_id, session in self._sessions.items()
            if now_ms - session.last_heartbeat_ms > self._timeout_ms
        ]

    def next_expiry_ms(self) -> int:
        """When the next session expires, unless heartbeats extend it."""
        last_heartbeat_ms = (session.last_heartbeat_ms for session in self._sessions.values())
        return min(last_heartbeat_ms, default=NEVER_MS) + self._timeout_ms + 1

    def extend_all(self, late_ms: int) -> None:
        """Extends all sessions by a time during which no heartbeat could be processed."""
        if late_ms > 0:
            for session in self._sessions.values():
                session.last_heartbeat_ms += late_ms

    def collect_samples(self) -> Iterator[Sample]:
        yield SESSIONS.sample(len(self._sessions))
