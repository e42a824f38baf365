"""Limits the memory that all connections together use for incomplete frames.

A single frame is limited by its connection. But a thousand peers that each send most of a large
frame and then stop would occupy a thousand times that. Beyond the budget, empty buffers are
released first; then the connections whose frames have been incomplete for longest are closed: a
regular frame is complete within milliseconds, a hostile one is not.

queued.max.request.bytes is a second, softer limit: while the requests that are being received or
wait to be handled have that many bytes, connections with a further request are not read, and
continue in the order in which they started to wait. As in Kafka's memory pool, the last admitted
request may exceed the limit, so that a large request is never blocked forever.
"""

from collections.abc import Iterator
from typing import Final, Protocol

from lograft.model.metrics import Gauge, Sample, enum_label

FRAME_BYTES_TOTAL_MAX: Final = 512 << 20

_ROLE: Final = enum_label("role", ("broker", "controller"))
BUFFER_BYTES: Final = Gauge(
    "lograft_frame_buffer_bytes", "Memory of the buffers into which requests are read.", _ROLE
)
QUEUED_BYTES: Final = Gauge(
    "lograft_queued_request_bytes",
    "Bytes of requests counted for queued.max.request.bytes; 0 if it is not set.",
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
        """None if the buffer has no part of a frame."""

    def release_memory(self) -> None:
        """Shrinks the buffer, and reports its new size with `report_capacity`."""

    def drop_frame(self) -> None:
        """Closes the connection and releases the buffer."""

    def on_memory_free(self) -> None:
        """A request that was not admitted may try again."""


class FrameBudget:
    __slots__ = (
        "_admitted",
        "_admitted_bytes",
        "_capacities",
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
        #: In the order in which they started to wait.
        self._waiting: dict[FrameHolder, None] = {}
        self._capacities: dict[FrameHolder, int] = {}
        self._total = 0

    @property
    def total(self) -> int:
        return self._total

    def collect_samples(self, role: str) -> Iterator[Sample]:
        yield BUFFER_BYTES.sample(self._total, role)
        yield QUEUED_BYTES.sample(self._admitted_bytes, role)
        yield CONNECTIONS_PAUSED.sample(len(self._waiting), role)

    def report_capacity(self, holder: FrameHolder, capacity: int) -> None:
        """`holder` now has a buffer of `capacity` bytes; 0 if its connection has ended."""
        self._total += capacity - self._capacities.pop(holder, 0)
        if capacity:
            self._capacities[holder] = capacity
        if self._total > self.bytes_max:
            self._free_memory(holder)

    def admit(self, holder: FrameHolder, size: int) -> bool:
        """Returns whether the holder may now read its request of `size` bytes. If not,
        `on_memory_free` is called later."""
        admitted = self._admitted.get(holder)
        if admitted is None and (
            self._admitted_bytes >= self.request_bytes_max
            or (self._waiting and next(iter(self._waiting)) is not holder)
        ):
            self._waiting[holder] = None
            return False
        self._waiting.pop(holder, None)
        self._admitted[holder] = size
        self._admitted_bytes += size - (admitted or 0)
        return True

    def dismiss(self, holder: FrameHolder) -> None:
        """The holder's request has been handled, or its connection has ended."""
        self._waiting.pop(holder, None)
        self._admitted_bytes -= self._admitted.pop(holder, 0)
        while self._waiting and self._admitted_bytes < self.request_bytes_max:
            first = next(iter(self._waiting))
            first.on_memory_free()
            # It has been admitted, or has no request anymore.
            self._waiting.pop(first, None)

    def _free_memory(self, requester: FrameHolder) -> None:
        incomplete: list[tuple[int, FrameHolder]] = []
        for holder in list(self._capacities):
            since_ms = holder.incomplete_since_ms
            if since_ms is None:
                holder.release_memory()
            elif holder is not requester:
                incomplete.append((since_ms, holder))
        incomplete.sort(key=lambda entry: entry[0])
        # The requesting connection comes last, because it is the one that makes progress.
        for holder in [*(holder for _, holder in incomplete), requester]:
            if self._total <= self.bytes_max:
                return
            if holder in self._capacities:
                holder.drop_frame()
                self._total -= self._capacities.pop(holder, 0)
