"""Seeds one after another, for as long as a test may take."""

from collections import Counter
from collections.abc import Callable
from time import process_time

from campaigns.run import RunReport


def run_within(
    seconds: float, run: Callable[[int], RunReport], *, first: int, variable: str
) -> Counter[str]:
    """What happened in all of them; none may fail. `variable` names the seed to begin with."""
    end = process_time() + seconds
    seed = first
    figures: Counter[str] = Counter()
    while process_time() < end:
        report = run(seed)
        assert not report.failed, f"{variable}={seed}: {report.message}"
        figures.update(report.figures)
        seed += 1
    return figures
