"""Rung when there is something to see to; whoever waits looks, and may wait again."""

import asyncio

from lograft.model.seams import Clock


class Bell:
    """For one listener."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._has_rung = False
        self._waiter: asyncio.Future[None] | None = None

    def ring(self) -> None:
        self._has_rung = True
        self._end_waiting()

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
        self._waiter = loop.create_future()
        try:
            await self._waiter
        finally:
            self._waiter = None
            if timer is not None:
                timer.cancel()
        return self._has_rung

    def _end_waiting(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)
