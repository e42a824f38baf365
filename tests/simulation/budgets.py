"""Runs seeds until the CPU time of a test is used up."""

from collections import Counter
from collections.abc import Callable
from time import process_time

from campaigns.run import RunReport


def run_within(
    seconds: float, run: Callable[[int], RunReport], *, first: int, variable: str
) -> Counter[str]:
    """Returns the sum of the figures of all seeds; fails if one of them fails. The environment
    variable `variable` sets the first seed."""
    end = process_time() + seconds
    seed = first
    figures: Counter[str] = Counter()
    while process_time() < end:
        report = run(seed)
        assert not report.has_failed, f"{variable}={seed}: {report.message}"
        figures.update(report.figures)
        seed += 1
    return figures
