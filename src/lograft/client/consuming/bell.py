"""Rung when there is something to see to; whoever waits looks, and may wait again."""

import asyncio
from collections.abc import Callable
from contextvars import Context
from typing import Any

from lograft.model.seams import Clock


class Bell:
    """For one listener."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._has_rung = False
        self._waiter: _Waiter | None = None

    def ring(self) -> None:
        """The listener hears it in the loop's next turn."""
        self._has_rung = True
        self._end_waiting()

    def ring_now(self) -> None:
        """The listener goes on inside this call, if no task is running: before whatever else has
        come to the loop meanwhile. The last that the caller does, as the listener may call it."""
        self._has_rung = True
        waiter = self._waiter
        if waiter is not None and not waiter.done():
            waiter.end_now()

    def look(self) -> None:
        """Before looking: what happens from now on rings again."""
        self._has_rung = False

    async def wait(self, deadline_ms: int | None) -> bool:
        """Whether it has rung since the last look, before the deadline."""
        if self._has_rung:
            return True
        loop = asyncio.get_running_loop()
        timer = None
        if deadline_ms is not None:
            rest_ms = deadline_ms - self._clock.mono_ms()
            if rest_ms <= 0:
                # Others get their turn even if the program does nothing but poll with no time to
                # wait.
                await asyncio.sleep(0)
                return False
            timer = loop.call_later(rest_ms / 1000, self._end_waiting)
        self._waiter = _Waiter(loop=loop)
        try:
            await self._waiter
        finally:
            self._waiter = None
            if timer is not None:
                timer.cancel()
        return self._has_rung

    def _end_waiting(self) -> None:
        waiter = self._waiter
        if waiter is not None and not waiter.done():
            waiter.end()


class _Waiter(asyncio.Future[None]):
    """A future of one task, which may also go on at once."""

    _resume: Callable[["_Waiter"], object]
    _context: Context

    def add_done_callback(self, resume: Any, /, *, context: Context | None = None) -> None:
        """Called by the task that begins to wait."""
        assert context is not None
        self._resume, self._context = resume, context

    def end(self) -> None:
        self.set_result(None)
        self._resume_soon()

    def end_now(self) -> None:
        if asyncio.current_task() is not None:
            self.end()
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
