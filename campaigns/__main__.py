"""Command line of the simulator: `python -m campaigns run | replay | mutants | report`."""

import argparse
import logging
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from time import process_time
from typing import TextIO

from campaigns import mutant_hunt, reporting
from campaigns import run as running
from campaigns.ledger import Ledger, read_ledger

FAILURES = Path("simulation-failures")
#: Folder of the measured figures.
RELIABILITY = Path("docs/reliability")


def main(arguments: list[str] | None = None, out: TextIO = sys.stdout) -> int:
    options = _parser().parse_args(arguments)
    if options.command == "run":
        return _run(options, out)
    if options.command == "replay":
        return _replay(options, out)
    if options.command == "report":
        return _report(options)
    return _mutants(options, out)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m campaigns", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    kinds = ["all", *running.KINDS]
    run = commands.add_parser("run", help="run many seeds")
    run.add_argument("--seeds", type=int, default=1_000_000, help="number of seeds")
    run.add_argument("--seconds", type=float, default=60, help="limit of CPU seconds")
    run.add_argument("--first", type=int, default=0, help="the first seed")
    run.add_argument("--ledger", type=Path, help="file to continue and append to")
    replay = commands.add_parser("replay", help="run one seed and print its trace hash")
    replay.add_argument("seed", help="a seed or a failure file")
    replay.add_argument("--shrink", action="store_true", help="search for a smaller failing run")
    for command in (run, replay):
        command.add_argument("--kind", choices=kinds, default="all")
        command.add_argument("--failures", type=Path, default=FAILURES, help="folder for failures")
    mutants = commands.add_parser(
        "mutants", help="remove safeguards; the checkers must detect each removal"
    )
    mutants.add_argument("--seeds", type=int, default=400, help="limit of seeds per mutant")
    mutants.add_argument("--kind", choices=["all", *mutant_hunt.KINDS], default="all")
    mutants.add_argument("--results", type=Path, help="file to continue and append to")
    report = commands.add_parser(
        "report", help="generate docs/reliability.md from the ledger and the mutants"
    )
    report.add_argument("--ledger", type=Path, default=RELIABILITY / "ledger.jsonl")
    report.add_argument("--results", type=Path, default=RELIABILITY / "mutants.jsonl")
    report.add_argument("--regressions", type=Path, default=Path("tests/simulation/regressions"))
    report.add_argument("--output", type=Path, default=Path("docs/reliability.md"))
    return parser


def _kinds(choice: str) -> list[str]:
    return list(running.KINDS) if choice == "all" else [choice]


def _run(options: argparse.Namespace, out: TextIO) -> int:
    figures: Counter[str] = Counter()
    failed = 0
    started = process_time()
    ledger = None
    if options.ledger is not None:
        ledger = Ledger(options.ledger, commit=running.revision()[0])
    for report in running.run_many(
        _kinds(options.kind),
        first=options.first,
        seeds=options.seeds,
        seconds=options.seconds,
        ledger=ledger,
    ):
        figures[f"{report.kind} seeds"] += 1
        figures.update({f"{report.kind} {name}": n for name, n in report.figures.items()})
        if report.has_failed:
            failed += 1
            path = running.failure_file(report, options.failures)
            out.write(f"{report.kind} seed {report.seed}: {report.message}\n  see {path}\n")
    if ledger is not None:
        ledger.close()
    out.write("".join(f"{name:>28} {figures[name]}\n" for name in figures))
    out.write(f"{'CPU seconds':>28} {process_time() - started:.1f}\n")
    out.write(f"{'violations':>28} {failed}\n")
    return 1 if failed else 0


def _replay(options: argparse.Namespace, out: TextIO) -> int:
    failed = False
    for report in _replay_reports(options):
        out.write(f"{report.kind} seed {report.seed} trace {report.trace_hash}\n")
        if report.has_failed:
            failed = True
            out.writelines(f"  {event}\n" for event in report.last_events[-30:])
            path = running.failure_file(report, options.failures)
            out.write(f"  {report.message}\n  see {path}\n")
    return 1 if failed else 0


def _replay_reports(options: argparse.Namespace) -> Iterator[running.RunReport]:
    if not options.seed.isdigit():
        yield running.run_file(Path(options.seed))
        return
    runners = running.SHRINKERS if options.shrink else running.KINDS
    for kind in _kinds(options.kind):
        yield runners[kind](int(options.seed))


def _mutants(options: argparse.Namespace, out: TextIO) -> int:
    survivors = count = 0
    kinds = list(mutant_hunt.KINDS) if options.kind == "all" else [options.kind]
    commit = running.revision()[0]
    for hunt in mutant_hunt.hunt_all(
        kinds, seeds_max=options.seeds, commit=commit, results=options.results
    ):
        count += 1
        survivors += hunt.seeds is None
        outcome = "NOT CAUGHT" if hunt.seeds is None else f"{hunt.seeds} seeds"
        out.write(f"{hunt.name:<40} {outcome:>12} {hunt.caught_by:>5}   {hunt.meaning}\n")
        out.flush()
    out.write(f"{count - survivors} of {count} caught\n")
    return 1 if survivors else 0


def _report(options: argparse.Namespace) -> int:
    text = reporting.report(
        read_ledger(options.ledger),
        mutant_hunt.read_hunts(options.results),
        ledger=options.ledger.name,
        mutants=options.results.name,
        regressions=options.regressions,
        still_fails=lambda kind, seed: running.KINDS[kind](seed).has_failed,
    )
    options.output.write_text(text)
    return 0


if __name__ == "__main__":
    # Nodes that crash deliberately log a lot; the failure file contains what matters.
    logging.disable(logging.CRITICAL)
    sys.exit(main())
