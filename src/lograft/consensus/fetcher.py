"""Fetching: one request at a time, to the leader or to a replica that may know the leader."""

from lograft.consensus.messages import FetchSnapshotResponse
from lograft.consensus.types import RaftSettings, SnapshotChunk, SnapshotId
from lograft.model.types import NodeId


class SnapshotDownload:
    """Progress of a snapshot that is fetched in chunks."""

    __slots__ = ("is_complete", "position", "snapshot")

    def __init__(self, snapshot: SnapshotId) -> None:
        self.snapshot = snapshot
        self.position = 0
        self.is_complete = False

    def on_chunk(self, response: FetchSnapshotResponse) -> SnapshotChunk | None:
        """Returns the chunk, or None if it is not the requested one."""
        if response.snapshot != self.snapshot or response.position != self.position:
            return None
        if not response.data and response.size_bytes > self.position:
            return None
        self.position += len(response.data)
        self.is_complete = self.position >= response.size_bytes
        return SnapshotChunk(self.snapshot, response.position, response.data)


class Fetcher:
    """State of fetching from one target. Each leader and epoch gets a new object, so that no state
    of an earlier one remains."""

    __slots__ = (
        "_settings",
        "_timeout_ms",
        "contact_deadline_ms",
        "download",
        "has_contact",
        "has_election_turn",
        "in_flight",
        "next_ms",
        "request_deadline_ms",
        "target",
    )

    def __init__(
        self, target: NodeId, settings: RaftSettings, *, timeout_ms: int, now_ms: int
    ) -> None:
        self._settings = settings
        self._timeout_ms = timeout_ms
        self.target = target
        #: Id of the request in flight.
        self.in_flight: int | None = None
        self.request_deadline_ms = 0
        #: Earliest time of the next request.
        self.next_ms = now_ms
        #: Whether this leader has responded. A follower in contact with its leader grants no
        #: pre-votes.
        self.has_contact = False
        self.contact_deadline_ms = now_ms + timeout_ms
        #: Whether the leader resigned and named the order in which the voters start elections.
        self.has_election_turn = False
        self.download: SnapshotDownload | None = None

    def on_sent(self, request_id: int, now_ms: int) -> None:
        self.in_flight = request_id
        self.request_deadline_ms = now_ms + self._settings.request_timeout_ms

    def on_response(self, now_ms: int) -> None:
        self.in_flight = None
        self.next_ms = now_ms

    def on_contact(self, now_ms: int) -> None:
        if self.has_election_turn:
            return  # The response was sent before the resignation, although it arrived later.
        self.has_contact = True
        self.contact_deadline_ms = now_ms + self._timeout_ms

    def on_failure(self, now_ms: int) -> None:
        self.in_flight = None
        self.next_ms = now_ms + self._settings.retry_backoff_ms

    def can_fetch(self, now_ms: int) -> bool:
        return self.in_flight is None and now_ms >= self.next_ms

    @property
    def deadline_ms(self) -> int:
        return self.next_ms if self.in_flight is None else self.request_deadline_ms
