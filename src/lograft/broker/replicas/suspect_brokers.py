"""Brokers whose connection to this one has just broken: what the image says of them may be old.

A client whose leader died asks another broker within a millisecond who leads now, and some
(librdkafka) not again for two seconds. The dead process has closed its connections to the brokers
within a few milliseconds, in any order. So whoever asks waits that long, and if the connection to a
leader broke, until the controller has decided, or for a short time.
"""

import asyncio
from collections.abc import Callable
from typing import Final

from lograft.model.seams import Clock
from lograft.model.types import NodeId

#: A process that is gone is fenced in less; a doubt that lasts longer was wrong.
DOUBT_MS_MAX: Final = 500
#: A process that dies does not end all its connections in one moment.
NOTICE_MS: Final = 5
#: Connections that break again and again are no reason to let clients wait again and again.
PEACE_MS: Final = 5_000


class SuspectBrokers:
    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._until_ms: dict[NodeId, int] = {}
        self._news = asyncio.Event()

    def on_lost(self, node_id: NodeId) -> None:
        """The connection broke off."""
        now_ms = self._clock.mono_ms()
        if now_ms >= self._until_ms.get(node_id, -PEACE_MS) + PEACE_MS:
            self._until_ms[node_id] = now_ms + DOUBT_MS_MAX

    def on_heard(self, node_id: NodeId) -> None:
        """It is there after all."""
        now_ms = self._clock.mono_ms()
        if self._until_ms.get(node_id, 0) > now_ms:
            self._until_ms[node_id] = now_ms
            self._news.set()

    def on_image(self) -> None:
        """The metadata changed."""
        if self._until_ms:
            self._news.set()

    def concern(self, leads: Callable[[NodeId], bool]) -> bool:
        """Whether one that may be gone leads something."""
        if not self._until_ms:
            return False
        now_ms = self._clock.mono_ms()
        return any(until > now_ms and leads(node) for node, until in self._until_ms.items())

    async def wait_settled(self, leads: Callable[[NodeId], bool]) -> None:
        await asyncio.sleep(NOTICE_MS / 1000)
        try:
            async with asyncio.timeout(DOUBT_MS_MAX / 1000):
                while self.concern(leads):
                    self._news.clear()
                    await self._news.wait()
        except TimeoutError:
            pass
