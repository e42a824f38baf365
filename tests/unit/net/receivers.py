"""Receivers that record the events of a channel."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

from lograft.model.seams import Channel

RunOnLoop = Callable[[Callable[[], Coroutine[Any, Any, None]]], None]


class Collector:
    """A Receiver that stores what it receives and lets a test wait for it."""

    def __init__(self, *, buffer_bytes: int = 65536) -> None:
        self.received = bytearray()
        self.closed_with: list[Exception | None] = []
        self.drained = 0
        self.reads = 0
        self._buffer = memoryview(bytearray(buffer_bytes))
        self._changed = asyncio.Event()

    def get_buffer(self) -> memoryview:
        return self._buffer

    def on_received(self, count: int) -> None:
        self.reads += 1
        self.received += self._buffer[:count]
        self._changed.set()

    def on_drained(self) -> None:
        self.drained += 1
        self._changed.set()

    def on_closed(self, error: Exception | None) -> None:
        self.closed_with.append(error)
        self._changed.set()

    async def wait_until(self, condition: Callable[[], bool]) -> None:
        while not condition():
            self._changed.clear()
            await self._changed.wait()

    async def wait_bytes(self, count: int) -> None:
        await self.wait_until(lambda: len(self.received) >= count)

    async def wait_closed(self) -> None:
        await self.wait_until(lambda: bool(self.closed_with))


class Accepted:
    """Collects the channels of a listener."""

    def __init__(self) -> None:
        self.channels: list[Channel] = []
        self._arrived = asyncio.Event()

    def __call__(self, channel: Channel) -> None:
        self.channels.append(channel)
        self._arrived.set()

    async def wait(self, count: int = 1) -> Channel:
        while len(self.channels) < count:
            self._arrived.clear()
            await self._arrived.wait()
        return self.channels[count - 1]
