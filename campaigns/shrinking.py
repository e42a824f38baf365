"""Makes a failing run of a cluster smaller while the same invariant stays violated."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, Final, TypeVar

from campaigns.cluster_plan import ClusterOptions
from campaigns.groups.plan import GroupsOptions

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


Options = TypeVar("Options", bound=ClusterOptions)


def shrink_groups_options(
    options: GroupsOptions, fails: Callable[[GroupsOptions], bool]
) -> GroupsOptions:
    """No late requests, fewer clients, less that befalls them; then as a cluster."""
    budget = Budget()
    best = options
    punctual = replace(best, late_permille=0)
    if punctual != best and budget.take() and fails(punctual):
        best = punctual
    kept = best
    actors = minimised(best.actors, lambda fewer: fails(replace(kept, actors=fewer)), budget)
    best = replace(best, actors=actors)
    fewest = best
    events = minimised(best.events, lambda fewer: fails(replace(fewest, events=fewer)), budget)
    best = replace(best, events=events)
    calmest = best
    resets = minimised(best.resets, lambda fewer: fails(replace(calmest, resets=fewer)), budget)
    return shrink_options(replace(best, resets=resets), fails)


def shrink_options(options: Options, fails: Callable[[Options], bool]) -> Options:
    """Fewer faults, fewer steps, a calmer schedule, less time; in this order."""
    budget = Budget()
    best = options
    faults = minimised(best.faults, lambda fewer: fails(replace(options, faults=fewer)), budget)
    best = replace(best, faults=faults)
    kept = best
    steps = minimised(best.steps, lambda fewer: fails(replace(kept, steps=fewer)), budget)
    best = replace(best, steps=steps)
    calmer: tuple[dict[str, Any], ...] = (
        {"policy": "fifo"}, {"nodes": 3}, {"seconds": 6}, {"seconds": 3},
    )  # fmt: skip
    for changes in calmer:
        attempt = replace(best, **changes)
        if attempt != best and budget.take() and fails(attempt):
            best = attempt
    return best
