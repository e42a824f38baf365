"""Wakes the one task that waits for a condition. It checks the condition, and may wait again."""

import asyncio
from collections.abc import Callable
from contextvars import Context
from typing import Any

from lograft.model.seams import Clock


class Notifier:
    """An event with a single waiter."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._is_notified = False
        self._waiter: _Waiter | None = None

    def notify(self) -> None:
        """Wakes the waiter in the next iteration of the event loop."""
        self._is_notified = True
        self._wake()

    def notify_now(self) -> None:
        """Resumes the waiter inside this call, before any other event that the loop has already
        received, unless a task is running. It must be the last statement of the caller, because the
        waiter may call the same code again."""
        self._is_notified = True
        waiter = self._waiter
        if waiter is not None and not waiter.done():
            waiter.wake_now()

    def clear(self) -> None:
        """Called before the condition is checked: a later notification ends the next wait."""
        self._is_notified = False

    async def wait(self, deadline_ms: int | None) -> bool:
        """Returns True as soon as there was a notification since `clear`, False at the deadline."""
        if self._is_notified:
            return True
        loop = asyncio.get_running_loop()
        timer = None
        if deadline_ms is not None:
            timeout_ms = deadline_ms - self._clock.mono_ms()
            if timeout_ms <= 0:
                # An application that polls with a timeout of zero must not starve the other tasks.
                await asyncio.sleep(0)
                return False
            timer = loop.call_later(timeout_ms / 1000, self._wake)
        self._waiter = _Waiter(loop=loop)
        try:
            await self._waiter
        finally:
            self._waiter = None
            if timer is not None:
                timer.cancel()
        return self._is_notified

    def _wake(self) -> None:
        waiter = self._waiter
        if waiter is not None and not waiter.done():
            waiter.wake()


class _Waiter(asyncio.Future[None]):
    """A future with one waiting task, which `wake_now` resumes without an iteration of the event
    loop."""

    _resume: Callable[["_Waiter"], object]
    _context: Context

    def add_done_callback(self, resume: Any, /, *, context: Context | None = None) -> None:
        """Called by the task when it starts to wait."""
        assert context is not None
        self._resume, self._context = resume, context

    def wake(self) -> None:
        self.set_result(None)
        self._resume_soon()

    def wake_now(self) -> None:
        if asyncio.current_task() is not None:
            self.wake()
            return
        self.set_result(None)
        self._context.run(self._resume, self)

    def cancel(self, msg: Any | None = None) -> bool:
        is_cancelled = super().cancel(msg)
        if is_cancelled:
            self._resume_soon()
        return is_cancelled

    def _resume_soon(self) -> None:
        self.get_loop().call_soon(self._resume, self, context=self._context)
