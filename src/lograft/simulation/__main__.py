"""`python -m lograft.simulation run | replay | mutants`: simulation from the command line."""

import argparse
import logging
import sys
from collections import Counter
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from time import process_time
from typing import TextIO

from lograft.simulation import run as running
from lograft.simulation.ledger import Ledger
from lograft.simulation.mutants import MUTANTS, hunt
from lograft.simulation.node_mutants import NODE_MUTANTS, hunt_node

FAILURES = Path("simulation-failures")


def main(arguments: list[str] | None = None, out: TextIO = sys.stdout) -> int:
    options = _parser().parse_args(arguments)
    # Nodes that crash on purpose have much to say; the failure file has what matters.
    logging.disable(logging.CRITICAL)
    if options.command == "run":
        return _run(options, out)
    if options.command == "replay":
        return _replay(options, out)
    return _mutants(options, out)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m lograft.simulation", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    kinds = ["all", *running.KINDS]
    run = commands.add_parser("run", help="try many seeds")
    run.add_argument("--seeds", type=int, default=1_000_000, help="how many")
    run.add_argument("--seconds", type=float, default=60, help="CPU seconds, at most")
    run.add_argument("--first", type=int, default=0, help="the first seed")
    run.add_argument("--ledger", type=Path, help="goes on after its last seed, and adds to it")
    replay = commands.add_parser("replay", help="run one seed and print its trace hash")
    replay.add_argument("seed", help="a seed, or the file of a failure")
    replay.add_argument("--shrink", action="store_true", help="look for a smaller failing run")
    for command in (run, replay):
        command.add_argument("--kind", choices=kinds, default="all")
        command.add_argument("--failures", type=Path, default=FAILURES, help="folder for failures")
    mutants = commands.add_parser("mutants", help="take out safeguards; each must be noticed")
    mutants.add_argument("--seeds", type=int, default=400, help="per mutant, at most")
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
        if report.failed:
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
    for report in _replayed(options):
        out.write(f"{report.kind} seed {report.seed} trace {report.trace_hash}\n")
        if report.failed:
            failed = True
            out.writelines(f"  {event}\n" for event in report.last_events[-30:])
            path = running.failure_file(report, options.failures)
            out.write(f"  {report.message}\n  see {path}\n")
    return 1 if failed else 0


def _replayed(options: argparse.Namespace) -> Iterator[running.RunReport]:
    if not options.seed.isdigit():
        yield running.run_file(Path(options.seed))
        return
    runners = running.SHRINKERS if options.shrink else running.KINDS
    for kind in _kinds(options.kind):
        yield runners[kind](int(options.seed))


def _mutants(options: argparse.Namespace, out: TextIO) -> int:
    hunts = [(name, each[0], partial(hunt, name)) for name, each in MUTANTS.items()]
    hunts += [(name, each[0], partial(hunt_node, name)) for name, each in NODE_MUTANTS.items()]
    survivors = 0
    for name, meaning, search in hunts:
        seeds = search(seeds_max=options.seeds)
        survivors += seeds is None
        verdict = "NOT CAUGHT" if seeds is None else f"{seeds} seeds"
        out.write(f"{name:<40} {verdict:>12}   {meaning}\n")
        out.flush()
    out.write(f"{len(hunts) - survivors} of {len(hunts)} caught\n")
    return 1 if survivors else 0


if __name__ == "__main__":
    sys.exit(main())
