"""Shrinks a failing run of a cluster as long as the same invariant is violated."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, Final, TypeVar

from campaigns.acls.plan import AclOptions
from campaigns.cluster_plan import ClusterOptions
from campaigns.groups.plan import GroupsOptions

T = TypeVar("T")

#: Limit of runs for shrinking.
ATTEMPTS_MAX: Final = 60


class Budget:
    def __init__(self, attempts: int = ATTEMPTS_MAX) -> None:
        self.remaining = attempts

    def take(self) -> bool:
        self.remaining -= 1
        return self.remaining >= 0


def minimize(items: Sequence[T], fails: Callable[[list[T]], bool], budget: Budget) -> list[T]:
    """Delta debugging: removes ever smaller parts as long as the rest still fails."""
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
    """Tries to remove late requests, clients, client faults and resets; then shrinks like a
    cluster."""
    budget = Budget()
    best = options
    without_late = replace(best, late_permille=0)
    if without_late != best and budget.take() and fails(without_late):
        best = without_late
    kept = best
    actors = minimize(best.actors, lambda fewer: fails(replace(kept, actors=fewer)), budget)
    best = replace(best, actors=actors)
    fewest = best
    events = minimize(best.events, lambda fewer: fails(replace(fewest, events=fewer)), budget)
    best = replace(best, events=events)
    with_few_events = best
    resets = minimize(
        best.resets, lambda fewer: fails(replace(with_few_events, resets=fewer)), budget
    )
    return shrink_options(replace(best, resets=resets), fails)


def shrink_acl_options(options: AclOptions, fails: Callable[[AclOptions], bool]) -> AclOptions:
    """Tries to remove changes of the ACLs; then shrinks like a cluster."""
    changes = minimize(
        options.changes, lambda fewer: fails(replace(options, changes=fewer)), Budget()
    )
    return shrink_options(replace(options, changes=changes), fails)


def shrink_options(options: Options, fails: Callable[[Options], bool]) -> Options:
    """Tries fewer faults, fewer steps, a simpler schedule and less time, in this order."""
    budget = Budget()
    best = options
    faults = minimize(best.faults, lambda fewer: fails(replace(options, faults=fewer)), budget)
    best = replace(best, faults=faults)
    kept = best
    steps = minimize(best.steps, lambda fewer: fails(replace(kept, steps=fewer)), budget)
    best = replace(best, steps=steps)
    simplifications: tuple[dict[str, Any], ...] = (
        {"policy": "fifo"}, {"nodes": 3}, {"seconds": 6}, {"seconds": 3},
    )  # fmt: skip
    for changes in simplifications:
        attempt = replace(best, **changes)
        if attempt != best and budget.take() and fails(attempt):
            best = attempt
    return best
