"""Why a listener closes connections, and how often it pauses them."""

from collections.abc import Iterator
from typing import Final

from lograft.model.exchange import CloseConnection
from lograft.model.metrics import LISTENER, Counter, Sample, enum_label
from lograft.wire.errors import FrameTooLarge, WireError

#: A frame above the limit; a frame that cannot be decoded; a request without an error response; a
#: frame that was incomplete for too long; a failed TLS connection; no requests for a long time; a
#: bug.
FRAME_TOO_LARGE: Final = "frame_too_large"
MALFORMED: Final = "malformed"
REJECTED: Final = "rejected"
INCOMPLETE: Final = "incomplete"
TLS: Final = "tls"
IDLE: Final = "idle"
INTERNAL: Final = "internal_error"
CAUSES: Final = (FRAME_TOO_LARGE, MALFORMED, REJECTED, INCOMPLETE, TLS, IDLE, INTERNAL)

CLOSED: Final = Counter(
    "lograft_connections_closed_total",
    "Connections that this node closed: frame_too_large, malformed (it cannot be decoded), rejected"
    " (a request without an error response), incomplete (a frame that was not sent to its end),"
    " tls, idle, internal_error.",
    LISTENER,
    enum_label("cause", CAUSES),
)
THROTTLED: Final = Counter(
    "lograft_connections_throttled_total",
    "Number of times a connection was muted because its client exceeded a quota.",
    LISTENER,
)


class ClosedConnections:
    """The counts of one listener."""

    __slots__ = ("_causes", "throttled")

    def __init__(self) -> None:
        self._causes = dict.fromkeys(CAUSES, 0)
        self.throttled = 0

    def add(self, cause: str) -> None:
        self._causes[cause] += 1

    def collect_samples(self, listener: str) -> Iterator[Sample]:
        for cause, count in self._causes.items():
            yield CLOSED.sample(count, listener, cause)
        yield THROTTLED.sample(self.throttled, listener)


def cause_of(error: Exception) -> str:
    if isinstance(error, FrameTooLarge):
        return FRAME_TOO_LARGE
    if isinstance(error, WireError):
        return MALFORMED
    return REJECTED if isinstance(error, CloseConnection) else INTERNAL
