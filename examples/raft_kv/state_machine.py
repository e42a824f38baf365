"""What a state machine must offer to be replicated by `driver.RaftDriver`.

The driver hands every replica the same commands in the same order. So whatever `apply` does may
rest on the state and the command alone: no clock, no chance, no file, no iteration over sets.
"""

from collections.abc import Callable
from typing import Protocol


class StateMachine(Protocol):
    def apply(self, command: bytes) -> bytes:
        """Changes the state by a committed command; returns what the client who sent it is told.

        Called once for each command, in the order of the log. A command that makes no sense must
        get an answer too, the same on every replica: it is in the log for good.
        """

    def query(self, question: bytes) -> bytes:
        """Answers from the state and changes nothing. The driver has made sure that the state
        holds everything that was acknowledged before the question came."""

    def snapshot(self) -> Callable[[], bytes]:
        """Holds the state of this moment fast, quickly, and returns what makes bytes of it. That
        runs later in a worker, while `apply` goes on."""

    def restore(self, snapshot: bytes) -> None:
        """Becomes the state that `snapshot` once saw, whatever it was before."""
