"""How a replica pulls: one question at a time, to its leader or to whoever may know the leader."""

from lograft.consensus.messages import FetchSnapshotResponse
from lograft.consensus.types import RaftSettings, SnapshotChunk, SnapshotId
from lograft.model.types import NodeId


class SnapshotDownload:
    """A snapshot, fetched piece by piece."""

    __slots__ = ("is_complete", "position", "snapshot")

    def __init__(self, snapshot: SnapshotId) -> None:
        self.snapshot = snapshot
        self.position = 0
        self.is_complete = False

    def on_chunk(self, response: FetchSnapshotResponse) -> SnapshotChunk | None:
        """None: not the piece that was asked for."""
        if response.snapshot != self.snapshot or response.position != self.position:
            return None
        if not response.data and response.size_bytes > self.position:
            return None
        self.position += len(response.data)
        self.is_complete = self.position >= response.size_bytes
        return SnapshotChunk(self.snapshot, response.position, response.data)


class Fetcher:
    """Made anew for each leader and epoch, so that nothing of an older one is left in it."""

    __slots__ = (
        "_patience_ms",
        "_settings",
        "download",
        "has_turn",
        "heard",
        "in_flight",
        "next_ms",
        "request_deadline_ms",
        "silence_deadline_ms",
        "target",
    )

    def __init__(
        self, target: NodeId, settings: RaftSettings, *, patience_ms: int, now_ms: int
    ) -> None:
        self._settings = settings
        self._patience_ms = patience_ms
        self.target = target
        #: The number of the request that waits for its answer.
        self.in_flight: int | None = None
        self.request_deadline_ms = 0
        #: No request before this time.
        self.next_ms = now_ms
        #: Whether this leader ever answered; who hears from a leader helps nobody to replace it.
        self.heard = False
        self.silence_deadline_ms = now_ms + patience_ms
        #: Whether the leader resigned and named the order in which the voters stand.
        self.has_turn = False
        self.download: SnapshotDownload | None = None

    def on_sent(self, request_id: int, now_ms: int) -> None:
        self.in_flight = request_id
        self.request_deadline_ms = now_ms + self._settings.request_timeout_ms

    def on_answer(self, now_ms: int) -> None:
        self.in_flight = None
        self.next_ms = now_ms

    def on_heard(self, now_ms: int) -> None:
        if self.has_turn:
            return  # The answer is older than the resignation that it arrived after.
        self.heard = True
        self.silence_deadline_ms = now_ms + self._patience_ms

    def on_failure(self, now_ms: int) -> None:
        self.in_flight = None
        self.next_ms = now_ms + self._settings.retry_backoff_ms

    def may_ask(self, now_ms: int) -> bool:
        return self.in_flight is None and now_ms >= self.next_ms

    @property
    def deadline_ms(self) -> int:
        return self.next_ms if self.in_flight is None else self.request_deadline_ms
