"""`python -m bench [--quick] [--only lograft|kafka] [--workload NAME …]`."""

import argparse
import statistics
import tempfile
from collections import defaultdict
from contextlib import ExitStack
from pathlib import Path
from typing import Final

from bench import report
from bench.lifecycle import start, thousand_partitions
from bench.node import Node, make_server
from bench.targets import Results
from bench.workloads import FULL, QUICK, WORKLOADS, Figures, Plan, produce
from tests.compatibility.servers import KINDS, Kind

LIFECYCLES: Final = {"start": start, "thousand-partitions": thousand_partitions}
#: A JVM is warm when a round costs at least this share of the best before it.
WARM_SHARE: Final = 0.95


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a few minutes, rough figures")
    parser.add_argument("--only", choices=KINDS, help="measure one server; no ratios then")
    parser.add_argument(
        "--workload",
        action="append",
        choices=[*LIFECYCLES, *WORKLOADS],
        help="may be given several times; all of them otherwise",
    )
    parser.add_argument("--loaded-seconds", type=float, help="length of the latency under load")
    parser.add_argument("--repetitions", type=int, help="the median of so many is reported")
    parser.add_argument("--no-write", action="store_true", help="leave bench/results as it is")
    return parser.parse_args()


def plan_of(wanted: argparse.Namespace) -> Plan:
    plan = QUICK if wanted.quick else FULL
    return Plan(
        plan.seconds,
        plan.latency_seconds,
        wanted.loaded_seconds or plan.loaded_seconds,
        wanted.repetitions or plan.repetitions,
        plan.warm_rounds,
        plan.idle_seconds,
    )


def main() -> None:
    wanted = parse()
    plan = plan_of(wanted)
    kinds: list[Kind] = [wanted.only] if wanted.only else list(KINDS)
    chosen = wanted.workload or [*LIFECYCLES, *WORKLOADS]
    results: Results = {kind: {} for kind in kinds}
    with tempfile.TemporaryDirectory(prefix="lograft-bench-") as folder:
        run_lifecycles(results, [name for name in LIFECYCLES if name in chosen], plan, Path(folder))
        run_workloads(results, [name for name in WORKLOADS if name in chosen], plan, Path(folder))
    form = "quick" if wanted.quick else "full"
    print()
    print(report.markdown(results, report.about_this_run(form)))
    if not wanted.no_write:
        print(f"written to {report.write(results, form)}")


def run_lifecycles(results: Results, names: list[str], plan: Plan, folder: Path) -> None:
    for name in names:
        for kind in list(results):
            results[kind][name] = LIFECYCLES[name](kind, folder / f"{name}-{kind}", plan)  # type: ignore[arg-type]
            say(name, kind, results[kind][name])


def run_workloads(results: Results, names: list[str], plan: Plan, folder: Path) -> None:
    """Both servers stay up and take turns, so that what the machine does meets both."""
    if not names:
        return
    with ExitStack() as stack:
        nodes = [
            Node(stack.enter_context(make_server(kind, folder / f"{kind}").started()))
            for kind in results
        ]
        for node in nodes:
            warm(node, plan)
        for name in names:
            runs: dict[str, list[Figures]] = defaultdict(list)
            for _repetition in range(repetitions(name, plan)):
                for node in nodes:
                    runs[node.name].append(WORKLOADS[name](node, plan))
                    say(name, node.name, runs[node.name][-1])
            for kind, figures in runs.items():
                results[kind][name] = median(figures)


def repetitions(name: str, plan: Plan) -> int:
    """The minutes under load are one long measurement."""
    return 1 if name == "latency-under-load" else plan.repetitions


def warm(node: Node, plan: Plan) -> None:
    """Until the figures stop improving twice in a row; Lograft needs one round."""
    if node.name == "lograft":
        say("warm", node.name, produce(node, plan, value_bytes=1000, acks=-1))
        return
    best, stalled = float("inf"), 0
    for _round in range(plan.warm_rounds):
        figures = produce(node, plan, value_bytes=1000, acks=-1)
        say("warm", node.name, figures)
        stalled = stalled + 1 if figures["cpu_s_per_gb"] > best * WARM_SHARE else 0
        best = min(best, figures["cpu_s_per_gb"])
        if stalled == 2:
            return


def median(runs: list[Figures]) -> Figures:
    return {name: statistics.median(run[name] for run in runs) for name in runs[0]}


def say(workload: str, server: str, figures: Figures) -> None:
    shown = "  ".join(f"{name} {report.show(value)}" for name, value in figures.items())
    print(f"{workload:20} {server:8} {shown}", flush=True)


if __name__ == "__main__":
    main()
