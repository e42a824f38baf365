"""The timers of one shard, in a heap. Most are postponed long before they expire (by a member's
heartbeats). Postponing a deadline therefore changes only the deadline itself; its heap entry is
updated when the earlier time is reached.
"""

import heapq
from collections.abc import Callable
from typing import Final, Generic, TypeVar

R = TypeVar("R")

#: Outdated entries may make up half of the heap, plus this many.
OUTDATED_MAX: Final = 64


class Deadline(Generic[R]):
    """A handle for moving or canceling the deadline."""

    __slots__ = ("_queued_ms", "action", "at_ms")

    def __init__(self, at_ms: int, action: Callable[[int], R]) -> None:
        #: None once canceled or expired.
        self.at_ms: int | None = at_ms
        #: Called with the current time when the deadline expires.
        self.action = action
        #: The time of its heap entry. Invariant while it is active: not after `at_ms`.
        self._queued_ms = at_ms

    @property
    def is_active(self) -> bool:
        return self.at_ms is not None


class Deadlines(Generic[R]):
    def __init__(self) -> None:
        #: Ordered by time, then by insertion.
        self._heap: list[tuple[int, int, Deadline[R]]] = []
        self._pushed = 0
        self._active = 0

    def __len__(self) -> int:
        return self._active

    def add(self, at_ms: int, action: Callable[[int], R]) -> Deadline[R]:
        deadline = Deadline(at_ms, action)
        self._active += 1
        self._push(deadline, at_ms)
        return deadline

    def move(self, deadline: Deadline[R], at_ms: int) -> None:
        """Moves the deadline earlier or later; an expired or canceled one becomes active again."""
        if deadline.at_ms is None:
            self._active += 1
        elif deadline._queued_ms <= at_ms:
            deadline.at_ms = at_ms
            return
        deadline.at_ms = at_ms
        self._push(deadline, at_ms)

    def cancel(self, deadline: Deadline[R] | None) -> None:
        if deadline is not None and deadline.at_ms is not None:
            deadline.at_ms = None
            self._active -= 1

    def next_ms(self) -> int | None:
        """When to call `take_due`; never later than the first deadline."""
        heap = self._heap
        while heap and self._is_outdated(heap[0]):
            heapq.heappop(heap)
        return heap[0][0] if heap else None

    def take_due(self, now_ms: int) -> Deadline[R] | None:
        """The first expired deadline, which becomes inactive; None if no deadline has expired."""
        heap = self._heap
        while heap and heap[0][0] <= now_ms:
            entry = heapq.heappop(heap)
            deadline = entry[2]
            at_ms = deadline.at_ms
            if at_ms is None or self._is_outdated(entry):
                continue
            if at_ms > now_ms:
                self._push(deadline, at_ms)
                continue
            deadline.at_ms = None
            self._active -= 1
            return deadline
        return None

    def _push(self, deadline: Deadline[R], at_ms: int) -> None:
        deadline._queued_ms = at_ms
        self._pushed += 1
        heapq.heappush(self._heap, (at_ms, self._pushed, deadline))
        if len(self._heap) > 2 * self._active + OUTDATED_MAX:
            self._heap = [entry for entry in self._heap if not self._is_outdated(entry)]
            heapq.heapify(self._heap)

    @staticmethod
    def _is_outdated(entry: tuple[int, int, Deadline[R]]) -> bool:
        return entry[2].at_ms is None or entry[0] != entry[2]._queued_ms
