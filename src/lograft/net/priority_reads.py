"""Lets small requests pass between the pieces of big ones.

A client that writes at full speed keeps the loop busy with one piece of work after the other, each
some tenths of a millisecond long, and there may be many such clients. Before each of these pieces
the bulk channels ask here whether anybody else has sent something, and let them go first. So
whoever sends little waits for one piece, not for a whole turn of the loop.
"""

import select
from collections.abc import Callable
from typing import Final

_OVERTAKERS_MAX: Final = 32
#: For so many pieces after somebody has overtaken, smaller pieces are worth their price.
_PIECES_REMEMBERED: Final = 256


class PriorityReads:
    """All channels of a transport that may overtake: those that are not bulk themselves. Level
    triggered, beside the loop's own watch: whoever was read here finds nothing left there."""

    __slots__ = ("_is_running", "_readers", "_remembered", "_watch")

    def __init__(self) -> None:
        # Elsewhere than on Linux nobody overtakes.
        self._watch = select.epoll() if hasattr(select, "epoll") else None
        self._readers: dict[int, Callable[[], None]] = {}
        self._is_running = False
        self._remembered = 0

    def admit(self, descriptor: int, read: Callable[[], None]) -> None:
        if self._watch is not None and descriptor not in self._readers:
            self._readers[descriptor] = read
            self._watch.register(descriptor, select.EPOLLIN)

    def dismiss(self, descriptor: int) -> None:
        """Before the descriptor is closed."""
        if self._readers.pop(descriptor, None) is not None:
            assert self._watch is not None
            self._watch.unregister(descriptor)

    def let_pass(self) -> bool:
        """Says whether anybody came by lately."""
        if self._is_running or not self._readers:
            return False
        assert self._watch is not None
        ready = self._watch.poll(0, _OVERTAKERS_MAX)
        if not ready:
            if self._remembered:
                self._remembered -= 1
            return self._remembered > 0
        self._remembered = _PIECES_REMEMBERED
        self._is_running = True
        try:
            for descriptor, _ in ready:
                # An earlier one may have ended it.
                read = self._readers.get(descriptor)
                if read is not None:
                    read()
        finally:
            self._is_running = False
        return True
