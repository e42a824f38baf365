"""Reads small requests between the pieces of large ones.

A client that writes at full speed keeps the loop busy with one piece of work after another, each
some tenths of a millisecond long, and there may be many such clients. Before each of these pieces
the bulk channels check whether other channels are readable, and read those first. A client with
small requests then waits for one piece instead of a whole iteration of the loop.
"""

import select
from collections.abc import Callable
from typing import Final

_READS_MAX: Final = 32
#: For this many pieces after a priority read, pieces are kept small.
_PIECES_REMEMBERED: Final = 256


class PriorityReads:
    """The channels of a transport that are not bulk channels. Watched level-triggered, in addition
    to the loop's own watch: once a channel has been read here, the loop finds nothing to read."""

    __slots__ = ("_is_running", "_readers", "_remembered", "_watch")

    def __init__(self) -> None:
        # Only on Linux.
        self._watch = select.epoll() if hasattr(select, "epoll") else None
        self._readers: dict[int, Callable[[], None]] = {}
        self._is_running = False
        self._remembered = 0

    def admit(self, descriptor: int, read: Callable[[], None]) -> None:
        if self._watch is not None and descriptor not in self._readers:
            self._readers[descriptor] = read
            self._watch.register(descriptor, select.EPOLLIN)

    def dismiss(self, descriptor: int) -> None:
        """Must be called before the descriptor is closed."""
        if self._readers.pop(descriptor, None) is not None:
            assert self._watch is not None
            self._watch.unregister(descriptor)

    def read_waiting(self) -> bool:
        """Reads all readable channels; returns whether there have been any recently."""
        if self._is_running or not self._readers:
            return False
        assert self._watch is not None
        ready = self._watch.poll(0, _READS_MAX)
        if not ready:
            if self._remembered:
                self._remembered -= 1
            return self._remembered > 0
        self._remembered = _PIECES_REMEMBERED
        self._is_running = True
        try:
            for descriptor, _ in ready:
                # The read of another channel may have closed this one.
                read = self._readers.get(descriptor)
                if read is not None:
                    read()
        finally:
            self._is_running = False
        return True
