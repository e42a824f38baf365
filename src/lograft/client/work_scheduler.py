"""Runs a function in the event loop whenever its inputs have changed or a deadline has passed.

A task that waits for an event with a timeout does the same at several times the cost.
"""

import asyncio
from collections.abc import Callable
from typing import Final

#: Returned by `work` when only another `wake` can give it something to do.
NO_DEADLINE_MS: Final = 1 << 60


class WorkScheduler:
    """Runs `work` once in the next iteration of the event loop after any number of `wake` calls.
    `work` returns the number of milliseconds after which it must run again without a `wake`. If it
    raises, the scheduler stops and passes the exception to `on_failure`."""

    def __init__(
        self, work: Callable[[], int], on_failure: Callable[[BaseException], None]
    ) -> None:
        self._work = work
        self._on_failure = on_failure
        self._loop = asyncio.get_running_loop()
        self._pending: asyncio.Handle | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at = 0.0
        self._is_stopped = False
        self._is_running = False

    def wake(self) -> None:
        if self._pending is None and not self._is_stopped:
            self._pending = self._loop.call_soon(self._run)

    def run_now(self) -> None:
        """Runs the work synchronously, unless a run is already pending. Called from within the
        work, it schedules another run instead."""
        if self._is_running:
            self.wake()
        elif self._pending is None and not self._is_stopped:
            self._run()

    def stop(self) -> None:
        self._is_stopped = True
        for handle in (self._pending, self._timer):
            if handle is not None:
                handle.cancel()

    def _run(self) -> None:
        self._pending = None
        self._is_running = True
        try:
            wait_ms = self._work()
        except BaseException as error:
            self.stop()
            self._on_failure(error)
            raise
        finally:
            self._is_running = False
        if wait_ms < NO_DEADLINE_MS:
            self._set_timer(wait_ms)

    def _set_timer(self, wait_ms: int) -> None:
        """Ensures a run within that time. A timer that fires earlier stays as it is: its run finds
        nothing to do and sets the next timer."""
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
