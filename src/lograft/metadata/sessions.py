"""Which brokers the active controller has heard of lately.

Not part of the image: every controller learns it anew from the heartbeats that it gets. A broker
that was never heard of by this controller has no session, and is given one timeout's time from
the moment the controller became active.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from lograft.model.metrics import Gauge, Sample

#: Later than any clock shows.
NEVER_MS: Final = 1 << 62

SESSIONS: Final = Gauge(
    "lograft_broker_sessions", "Brokers whose heartbeats this node tracks as the active controller."
)


@dataclass(slots=True)
class Session:
    epoch: int
    heard_ms: int
    #: How far the broker has read the metadata log.
    metadata_offset: int
    #: Whether the connection of its last heartbeat stands; not (yet) if there was none.
    connected: bool


class BrokerSessions:
    __slots__ = ("_sessions", "_timeout_ms")

    def __init__(self, timeout_ms: int) -> None:
        self._timeout_ms = timeout_ms
        self._sessions: dict[int, Session] = {}

    def heard(self, broker_id: int, *, epoch: int, metadata_offset: int, now_ms: int) -> None:
        self._sessions[broker_id] = Session(epoch, now_ms, metadata_offset, True)

    def expect(self, broker_id: int, *, epoch: int, now_ms: int) -> None:
        """A controller that has just become active waits for those that it knows to be up."""
        self._sessions.setdefault(broker_id, Session(epoch, now_ms, -1, False))

    def disconnected(self, broker_id: int, *, epoch: int) -> None:
        """The connection on which it spoke has ended: its process may have, too."""
        session = self._sessions.get(broker_id)
        if session is not None and session.epoch == epoch:
            session.connected = False

    def is_suspect(self, broker_id: int, *, epoch: int, heard_before_ms: int) -> bool:
        """Whether it is expected to speak, but has no connection or was not heard since then."""
        session = self._sessions.get(broker_id)
        return (
            session is not None
            and session.epoch == epoch
            and (not session.connected or session.heard_ms < heard_before_ms)
        )

    def suspects(self, heard_before_ms: int) -> list[tuple[int, int]]:
        """With their epochs."""
        return [
            (broker_id, session.epoch)
            for broker_id, session in self._sessions.items()
            if not session.connected or session.heard_ms < heard_before_ms
        ]

    def forget(self, broker_id: int, *, epoch: int) -> None:
        session = self._sessions.get(broker_id)
        if session is not None and session.epoch == epoch:
            del self._sessions[broker_id]

    def is_alive(self, broker_id: int, *, epoch: int, now_ms: int) -> bool:
        """Whether this very registration of the broker spoke to us within the timeout, and its
        connection stands."""
        session = self._sessions.get(broker_id)
        return (
            session is not None
            and session.epoch == epoch
            and session.connected
            and session.metadata_offset >= 0
            and now_ms - session.heard_ms <= self._timeout_ms
        )

    def expired(self, now_ms: int) -> list[tuple[int, int]]:
        """With their epochs."""
        return [
            (broker_id, session.epoch)
            for broker_id, session in self._sessions.items()
            if now_ms - session.heard_ms > self._timeout_ms
        ]

    def next_expiry_ms(self) -> int:
        """When `expired` will find the next one, if none of them is heard before."""
        heard_ms = (session.heard_ms for session in self._sessions.values())
        return min(heard_ms, default=NEVER_MS) + self._timeout_ms + 1

    def excuse(self, late_ms: int) -> None:
        """Nobody could have been heard for so long: it counts for no session."""
        if late_ms > 0:
            for session in self._sessions.values():
                session.heard_ms += late_ms

    def collect_samples(self) -> Iterator[Sample]:
        yield SESSIONS.sample(len(self._sessions))
