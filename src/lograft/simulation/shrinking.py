"""Makes a failing run of a cluster smaller while the same invariant stays violated."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Final, TypeVar

from lograft.simulation.cluster_plan import ClusterOptions

T = TypeVar("T")

#: Runs that a shrinking may cost.
ATTEMPTS_MAX: Final = 60


class Budget:
    def __init__(self, attempts: int = ATTEMPTS_MAX) -> None:
        self.left = attempts

    def take(self) -> bool:
        self.left -= 1
        return self.left >= 0


def minimised(items: Sequence[T], fails: Callable[[list[T]], bool], budget: Budget) -> list[T]:
    """Delta debugging: leaves out ever smaller parts as long as the rest still fails."""
    kept = list(items)
    size = len(kept)
    while kept and size >= 1:
        start = 0
        while start < len(kept):
            fewer = kept[:start] + kept[start + size :]
            if not budget.take():
                return kept
            if fails(fewer):
                kept = fewer
            else:
                start += size
        size //= 2
    return kept


def shrink_options(
    options: ClusterOptions, fails: Callable[[ClusterOptions], bool]
) -> ClusterOptions:
    """Fewer faults, fewer steps, a calmer schedule, less time; in this order."""
    budget = Budget()
    best = options
    faults = minimised(best.faults, lambda fewer: fails(replace(options, faults=fewer)), budget)
    best = replace(best, faults=faults)
    kept = best
    steps = minimised(best.steps, lambda fewer: fails(replace(kept, steps=fewer)), budget)
    best = replace(best, steps=steps)
    for changes in ({"policy": "fifo"}, {"nodes": 3}, {"seconds": 6}, {"seconds": 3}):
        attempt = replace(best, **changes)
        if attempt != best and budget.take() and fails(attempt):
            best = attempt
    return best
