"""Work that is looked at again whenever something has changed, in turns of the event loop.

A task that waits for an event with a timeout does the same at several times the cost.
"""

import asyncio
from collections.abc import Callable
from typing import Final

#: Nothing will change by itself.
FOREVER_MS: Final = 1 << 60


class Turns:
    """Calls `work` in the loop's next turn after `wake`, however often that is called, and when the
    time is up that it returned: milliseconds until something changes by itself. What it raises
    ends the turns and goes to `on_failure`."""

    def __init__(
        self, work: Callable[[], int], on_failure: Callable[[BaseException], None]
    ) -> None:
        self._work = work
        self._on_failure = on_failure
        self._loop = asyncio.get_running_loop()
        self._turn: asyncio.Handle | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at = 0.0
        self._is_stopped = False
        self._is_in_turn = False

    def wake(self) -> None:
        if self._turn is None and not self._is_stopped:
            self._turn = self._loop.call_soon(self._take)

    def take_now(self) -> None:
        """Inside the caller's turn, unless there is one to come, or this is one."""
        if self._is_in_turn:
            self.wake()
        elif self._turn is None and not self._is_stopped:
            self._take()

    def stop(self) -> None:
        self._is_stopped = True
        for handle in (self._turn, self._timer):
            if handle is not None:
                handle.cancel()

    def _take(self) -> None:
        self._turn = None
        self._is_in_turn = True
        try:
            wait_ms = self._work()
        except BaseException as error:
            self.stop()
            self._on_failure(error)
            raise
        finally:
            self._is_in_turn = False
        if wait_ms < FOREVER_MS:
            self._set_timer(wait_ms)

    def _set_timer(self, wait_ms: int) -> None:
        """A turn after that time at the latest. A timer that comes earlier is left as it is: the
        turn it leads to finds nothing and sets the next."""
        at = self._loop.time() + wait_ms / 1000
        if self._timer is not None:
            if self._timer_at <= at:
                return
            self._timer.cancel()
        self._timer_at = at
        self._timer = self._loop.call_at(at, self._on_timer)

    def _on_timer(self) -> None:
        self._timer = None
        self.wake()
