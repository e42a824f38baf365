"""Bounds the memory that all connections together spend on frames that are still coming in.

A single frame is bounded by its connection. But a thousand peers that each send most of a large
frame and then stop would hold a thousand times that. Beyond the budget, buffers that only wait for
the next frame are given back first; then the frames that have been incomplete for longest go, with
their connections: an honest frame is on its way for milliseconds, a hostile one stays.

queued.max.request.bytes is a second, gentler bound: while the requests that are coming in or wait
to be handled have that many bytes, connections with a further request are not read, and continue
in the order in which they began to wait. As in Kafka's pool, the last request that is admitted may
exceed the bound, so that a large one is never kept out for good.
"""

from collections.abc import Iterator
from typing import Final, Protocol

from lograft.model.metrics import Gauge, Sample, enum_label

FRAME_BYTES_TOTAL_MAX: Final = 512 << 20

_ROLE: Final = enum_label("role", ("broker", "controller"))
BUFFER_BYTES: Final = Gauge(
    "lograft_frame_buffer_bytes", "Memory of the buffers that requests are read into.", _ROLE
)
QUEUED_BYTES: Final = Gauge(
    "lograft_queued_request_bytes",
    "Size of the requests that queued.max.request.bytes counts; 0 if it is not set.",
    _ROLE,
)
CONNECTIONS_PAUSED: Final = Gauge(
    "lograft_connections_paused",
    "Connections that are not read because queued.max.request.bytes is reached.",
    _ROLE,
)


class FrameHolder(Protocol):
    @property
    def incomplete_since_ms(self) -> int | None:
        """None while no part of a frame is there."""

    def give_back_memory(self) -> None:
        """Reports its new size by `changed`."""

    def give_up_frame(self) -> None:
        """Closes; nothing may be held afterwards."""

    def on_memory_free(self) -> None:
        """A request that could not be admitted may try again."""


class FrameBudget:
    __slots__ = (
        "_admitted",
        "_admitted_bytes",
        "_held",
        "_total",
        "_waiting",
        "bytes_max",
        "request_bytes_max",
    )

    def __init__(
        self, bytes_max: int = FRAME_BYTES_TOTAL_MAX, *, request_bytes_max: int = 0
    ) -> None:
        """`request_bytes_max`: queued.max.request.bytes; 0 means no limit."""
        self.bytes_max = bytes_max
        self.request_bytes_max = request_bytes_max
        self._admitted: dict[FrameHolder, int] = {}
        self._admitted_bytes = 0
        #: In the order in which they began to wait.
        self._waiting: dict[FrameHolder, None] = {}
        self._held: dict[FrameHolder, int] = {}
        self._total = 0

    @property
    def total(self) -> int:
        return self._total

    def collect_samples(self, role: str) -> Iterator[Sample]:
        yield BUFFER_BYTES.sample(self._total, role)
        yield QUEUED_BYTES.sample(self._admitted_bytes, role)
        yield CONNECTIONS_PAUSED.sample(len(self._waiting), role)

    def changed(self, holder: FrameHolder, capacity: int) -> None:
        """`holder` has a buffer of that many bytes now; 0 when it ends."""
        self._total += capacity - self._held.pop(holder, 0)
        if capacity:
            self._held[holder] = capacity
        if self._total > self.bytes_max:
            self._make_room(holder)

    def admit(self, holder: FrameHolder, size: int) -> bool:
        """Whether the holder may read its request of that many bytes now. If not, the holder hears
        of it by `on_memory_free`."""
        known = self._admitted.get(holder)
        if known is None and (
            self._admitted_bytes >= self.request_bytes_max
            or (self._waiting and next(iter(self._waiting)) is not holder)
        ):
            self._waiting[holder] = None
            return False
        self._waiting.pop(holder, None)
        self._admitted[holder] = size
        self._admitted_bytes += size - (known or 0)
        return True

    def dismiss(self, holder: FrameHolder) -> None:
        """The holder's request is handled, or its connection has ended."""
        self._waiting.pop(holder, None)
        self._admitted_bytes -= self._admitted.pop(holder, 0)
        while self._waiting and self._admitted_bytes < self.request_bytes_max:
            first = next(iter(self._waiting))
            first.on_memory_free()
            # It has been admitted, or it has no request any more.
            self._waiting.pop(first, None)

    def _make_room(self, asking: FrameHolder) -> None:
        incomplete: list[tuple[int, FrameHolder]] = []
        for holder in list(self._held):
            since_ms = holder.incomplete_since_ms
            if since_ms is None:
                holder.give_back_memory()
            elif holder is not asking:
                incomplete.append((since_ms, holder))
        incomplete.sort(key=lambda entry: entry[0])
        # The one that asks goes last: it is the one that makes progress.
        for holder in [*(holder for _, holder in incomplete), asking]:
            if self._total <= self.bytes_max:
                return
            if holder in self._held:
                holder.give_up_frame()
                self._total -= self._held.pop(holder, 0)
