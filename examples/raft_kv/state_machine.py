"""The interface of a state machine that `driver.RaftDriver` replicates.

All replicas apply the same commands in the same order, so `apply` must depend on the state and the
command only: not on clocks, random numbers, files or the iteration order of sets.
"""

from collections.abc import Callable
from typing import Protocol


class StateMachine(Protocol):
    def apply(self, command: bytes) -> bytes:
        """Applies a committed command to the state; returns the response for its client.

        Called once for each command, in the order of the log. An invalid command must get a
        response, too, the same on every replica, because it is in the log.
        """

    def query(self, question: bytes) -> bytes:
        """Reads the state without changing it. The state contains all writes that were acknowledged
        before the request arrived."""

    def snapshot(self) -> Callable[[], bytes]:
        """Quickly captures the current state, and returns a function that serializes it. A worker
        calls this function later, while `apply` continues."""

    def restore(self, snapshot: bytes) -> None:
        """Replaces the state by a snapshot."""
