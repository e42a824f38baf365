"""Bounds the memory that all connections together spend on frames that are still coming in.

A single frame is bounded by its connection. But a thousand peers that each send most of a large
frame and then stop would hold a thousand times that. Beyond the budget, buffers that only wait for
the next frame are given back first; then the frames that have been incomplete for longest go, with
their connections: an honest frame is on its way for milliseconds, a hostile one stays.
"""

from typing import Final, Protocol

FRAME_BYTES_TOTAL_MAX: Final = 512 << 20


class FrameHolder(Protocol):
    @property
    def incomplete_since_ms(self) -> int | None:
        """None while no part of a frame is there."""

    def give_back_memory(self) -> None:
        """Reports its new size by `changed`."""

    def give_up_frame(self) -> None:
        """Closes; nothing may be held afterwards."""


class FrameBudget:
    __slots__ = ("_held", "_total", "bytes_max")

    def __init__(self, bytes_max: int = FRAME_BYTES_TOTAL_MAX) -> None:
        self.bytes_max = bytes_max
        self._held: dict[FrameHolder, int] = {}
        self._total = 0

    @property
    def total(self) -> int:
        return self._total

    def changed(self, holder: FrameHolder, capacity: int) -> None:
        """`holder` has a buffer of that many bytes now; 0 when it ends."""
        self._total += capacity - self._held.pop(holder, 0)
        if capacity:
            self._held[holder] = capacity
        if self._total > self.bytes_max:
            self._make_room(holder)

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
