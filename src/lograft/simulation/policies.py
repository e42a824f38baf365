"""Scheduling policies: they choose which of the ready callbacks runs next.

uniform   all equally likely: finds most races, given enough seeds
pct       random priorities with d-1 change points: finds a bug of depth d with a provable
          probability per run, even if uniform draws would need an unlikely sequence
fifo      asyncio's own order: the simplest schedule, the last step of shrinking
"""

from collections.abc import Sequence
from random import Random
from typing import Any, Final, Protocol

#: Depth of the bugs that a PCT run is meant to find.
PCT_DEPTH: Final = 3
#: The priority changes fall within this many draws.
PCT_DRAWS: Final = 20_000


class Policy(Protocol):
    def draw(self, ready: Sequence[Any]) -> int:
        """Returns the index of the callback to run. Called with at least two."""


class UniformPolicy:
    __slots__ = ("_random",)

    def __init__(self, random: Random) -> None:
        self._random = random

    def draw(self, ready: Sequence[Any]) -> int:
        return int(self._random.random() * len(ready))


class FifoPolicy:
    __slots__ = ()

    def draw(self, ready: Sequence[Any]) -> int:
        return 0


class PctPolicy:
    """Priorities belong to the owner of a callback: all steps of a task have the same priority."""

    __slots__ = ("_changes", "_draws", "_priorities", "_random")

    def __init__(self, random: Random, *, depth: int = PCT_DEPTH, draws: int = PCT_DRAWS) -> None:
        self._random = random
        self._changes = {random.randrange(draws) for _ in range(depth - 1)}
        self._draws = 0
        # Keyed by the owner object itself, which keeps it alive: an address could be reused.
        self._priorities: dict[int, tuple[object, float]] = {}

    def draw(self, ready: Sequence[Any]) -> int:
        best = 0
        best_priority = -1.0
        for index, handle in enumerate(ready):
            priority = self._priority(handle)
            if priority > best_priority:
                best, best_priority = index, priority
        self._draws += 1
        if self._draws in self._changes:
            owner = ready[best].owner
            if owner is not None:
                self._priorities[id(owner)] = (owner, self._random.random() * 1e-9)
        return best

    def _priority(self, handle: Any) -> float:
        owner = handle.owner
        if owner is None:
            return self._random.random()
        known = self._priorities.get(id(owner))
        if known is None:
            known = self._priorities[id(owner)] = (owner, self._random.random())
        return known[1]


def policy_of(name: str, random: Random) -> Policy:
    match name:
        case "uniform":
            return UniformPolicy(random)
        case "pct":
            return PctPolicy(random)
        case "fifo":
            return FifoPolicy()
        case _:
            raise ValueError(
                f"unknown scheduling policy {name!r}; known policies: uniform, pct, fifo"
            )
