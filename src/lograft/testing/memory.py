"""The disk of a node under test: in memory, and it can fill up or lose what was not fsynced."""

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
        # Whoever would use sendfile reads instead.
        raise OSError(errno.EOPNOTSUPP, os.strerror(errno.EOPNOTSUPP), self.path)


class NoTrace(Trace):
    """Nobody compares two runs in real time."""

    __slots__ = ()

    def step(self, line: str) -> None:
        pass


class MemoryDisk(SimulatedDisk):
    """What one life of a node sees of its platter."""

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
    """Memory never blocks: a job is done where it is asked for. Others have their turn first."""

    async def run(self, job: Callable[[], T], *, lane: str = "") -> T:
        await asyncio.sleep(0)
        return job()
