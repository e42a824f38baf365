"""Runs many seeds of the Raft core, or its mutants: `python -m campaigns.raft_campaign`.

Prints the figures and violations as JSON, for docs/reliability.md.
"""

import argparse
import json
import sys
from collections import Counter
from time import process_time
from typing import TextIO

from campaigns.raft_mutants import RAFT_MUTANTS, hunt_raft
from campaigns.raft_run import run_raft

VIOLATIONS_MAX = 20


def campaign(*, first: int, seeds: int, seconds: float, out: TextIO) -> int:
    """Returns the number of seeds that failed."""
    figures: Counter[str] = Counter()
    violations: dict[int, str] = {}
    started = process_time()
    for seed in range(first, first + seeds):
        if process_time() - started > seconds or len(violations) >= VIOLATIONS_MAX:
            break
        report = run_raft(seed)
        if report.violation:
            violations[seed] = report.violation
        figures["schedules"] += 1
        for name in (
            "steps",
            "milliseconds",
            "committed",
            "epochs",
            "crashes",
            "voter_changes",
            "installs",
        ):
            figures[name] += getattr(report, name)
    result = {
        "first_seed": first,
        **figures,
        "simulated_hours": round(figures["milliseconds"] / 3_600_000, 2),
        "cpu_seconds": round(process_time() - started, 1),
        "violations": violations,
    }
    out.write(json.dumps(result, indent=1) + "\n")
    return len(violations)


def mutants(*, seeds: int, outcomes_only: bool, out: TextIO) -> int:
    """Returns the number of mutants that were not caught."""
    escaped = 0
    for mutant in RAFT_MUTANTS:
        found = hunt_raft(mutant, seeds_max=seeds, outcomes_only=outcomes_only)
        escaped += found is None
        count, violation = (None, "NOT CAUGHT") if found is None else found
        summary = " ".join(violation.split(" ")[:8])
        meaning = (mutant.__doc__ or "").strip()
        out.write(f"{mutant.__name__:<26} {count!s:>5} seeds   {summary[:60]:<60}   {meaning}\n")
        out.flush()
    return escaped


def main(arguments: list[str] | None = None, out: TextIO = sys.stdout) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    parser.add_argument("--seeds", type=int, default=1_000_000, help="limit of seeds")
    parser.add_argument("--seconds", type=float, default=60, help="limit of CPU seconds")
    parser.add_argument("--mutants", action="store_true", help="remove safeguards instead")
    parser.add_argument(
        "--outcomes-only", action="store_true", help="omit the checks of the safeguards themselves"
    )
    options = parser.parse_args(arguments)
    if options.mutants:
        seeds = min(options.seeds, 5_000)
        return min(mutants(seeds=seeds, outcomes_only=options.outcomes_only, out=out), 1)
    return min(
        campaign(first=options.first, seeds=options.seeds, seconds=options.seconds, out=out), 1
    )


if __name__ == "__main__":
    sys.exit(main())
