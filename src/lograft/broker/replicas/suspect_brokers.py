"""Brokers whose connection to this one has just broken, so that their leaderships may be outdated.

A client whose leader terminated requests metadata from another broker within a millisecond, and
some clients (librdkafka) do not repeat that for two seconds. The terminated process has closed its
connections to the brokers within a few milliseconds, in any order. So a metadata request waits for
that time, and if the connection to a leader broke, until the controller has decided, up to a limit.
"""

import asyncio
from collections.abc import Callable
from typing import Final

from lograft.model.seams import Clock
from lograft.model.types import NodeId

#: A terminated process is fenced in less time; after it the suspicion was wrong.
SUSPICION_MS_MAX: Final = 500
#: The connections of a terminated process are not all closed at the same moment.
NOTICE_MS: Final = 5
#: Minimum time between two suspicions of a broker, so that clients do not wait repeatedly.
QUIET_MS: Final = 5_000


class SuspectBrokers:
    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._until_ms: dict[NodeId, int] = {}
        self._changed = asyncio.Event()

    def on_lost(self, node_id: NodeId) -> None:
        """The connection to the broker broke."""
        now_ms = self._clock.mono_ms()
        if now_ms >= self._until_ms.get(node_id, -QUIET_MS) + QUIET_MS:
            self._until_ms[node_id] = now_ms + SUSPICION_MS_MAX

    def on_contact(self, node_id: NodeId) -> None:
        """The broker has responded."""
        now_ms = self._clock.mono_ms()
        if self._until_ms.get(node_id, 0) > now_ms:
            self._until_ms[node_id] = now_ms
            self._changed.set()

    def on_image(self) -> None:
        """The metadata changed."""
        if self._until_ms:
            self._changed.set()

    def has_suspect_leader(self, leads: Callable[[NodeId], bool]) -> bool:
        """Whether a suspect broker leads any of the requested partitions."""
        if not self._until_ms:
            return False
        now_ms = self._clock.mono_ms()
        return any(until > now_ms and leads(node) for node, until in self._until_ms.items())

    async def wait_resolved(self, leads: Callable[[NodeId], bool]) -> None:
        await asyncio.sleep(NOTICE_MS / 1000)
        try:
            async with asyncio.timeout(SUSPICION_MS_MAX / 1000):
                while self.has_suspect_leader(leads):
                    self._changed.clear()
                    await self._changed.wait()
        except TimeoutError:
            pass
