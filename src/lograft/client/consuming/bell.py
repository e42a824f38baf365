"""Rung when there is something to see to; whoever waits looks, and may wait again."""

import asyncio

from lograft.model.seams import Clock


class Bell:
    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._rung = asyncio.Event()

    def ring(self) -> None:
        self._rung.set()

    def look(self) -> None:
        """Before looking: what happens from now on rings again."""
        self._rung.clear()

    async def wait(self, deadline_ms: int | None) -> bool:
        """Whether it has rung since the last look, before the deadline."""
        if self._rung.is_set():
            return True
        if deadline_ms is None:
            return await self._rung.wait()
        rest_ms = deadline_ms - self._clock.mono_ms()
        if rest_ms <= 0:
            # Others get their turn even if the program does nothing but poll with no time to wait.
            await asyncio.sleep(0)
            return False
        try:
            async with asyncio.timeout(rest_ms / 1000):
                return await self._rung.wait()
        except TimeoutError:
            return False
