"""An in-memory disk for nodes under test, which can be full or lose data that was not fsynced."""

import asyncio
import errno
import os
from collections.abc import Callable
from random import Random
from typing import TypeVar

from lograft.simulation.disk import SimulatedDisk, SimulatedFile
from lograft.simulation.platter import Platter
from lograft.simulation.trace import Trace

T = TypeVar("T")


class MemoryFile(SimulatedFile):
    __slots__ = ()

    def fileno(self) -> int:
        # Makes senders read the file instead of calling sendfile.
        raise OSError(errno.EOPNOTSUPP, os.strerror(errno.EOPNOTSUPP), self.path)


class NoTrace(Trace):
    """Records nothing: runs in real time are not compared."""

    __slots__ = ()

    def step(self, line: str) -> None:
        pass


class MemoryDisk(SimulatedDisk):
    """A node's view of its platter, from its start until it exits."""

    def __init__(
        self,
        platter: Platter | None = None,
        *,
        random: Random | None = None,
        wall_ms: Callable[[], int] = lambda: 0,
    ) -> None:
        super().__init__(
            platter or Platter(), random=random or Random(), trace=NoTrace(), wall_ms=wall_ms
        )

    def open(self, path: str, *, create: bool = False) -> MemoryFile:
        if create:
            super().open(path, create=True)
        return MemoryFile(self, path, self.platter.file(path))


class MemoryWorkers:
    """Runs jobs in the event loop, since memory never blocks; other tasks run first."""

    async def run(self, job: Callable[[], T], *, lane: str = "") -> T:
        await asyncio.sleep(0)
        return job()
