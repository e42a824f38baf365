"""`python -m bench [--quick] [--nodes 3 [--mode raft]] [--only KIND] [--workload NAME …]`."""

import argparse
import statistics
import tempfile
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from bench import (
    cluster_lifecycle,
    coordinator_lifecycle,
    group_lifecycle,
    lifecycle,
    report,
)
from bench.subject import BUSY_SETTINGS, BenchFailed, Subject, make_cluster, make_server
from bench.targets import CLUSTER_TARGETS, RAFT_TARGETS, TARGETS, Results, Target
from bench.workloads import FULL, QUICK, WORKLOADS, Figures, Plan, produce
from tests.compatibility.servers import KINDS, Kind, ServerFailed

Lifecycle = Callable[[Kind, Path, Plan], Figures]
LIFECYCLES: Final[dict[str, Lifecycle]] = {
    "start": lifecycle.start,
    "thousand-partitions": lifecycle.thousand_partitions,
    "heartbeats-classic": group_lifecycle.heartbeats("classic"),
    "heartbeats-consumer": group_lifecycle.heartbeats("consumer"),
    "rebalance-classic": group_lifecycle.rebalance("classic"),
    "rebalance-consumer": group_lifecycle.rebalance("consumer"),
    "transactions": group_lifecycle.transactions(2),
    "transactions-v1": group_lifecycle.transactions(1),
}
CLUSTER_LIFECYCLES: Final[dict[str, Lifecycle]] = {
    "start": cluster_lifecycle.start,
    "leader-killed": cluster_lifecycle.leader_killed,
    "leader-paused": cluster_lifecycle.leader_paused,
    "controller-killed-1000": cluster_lifecycle.controller_killed(1_000),
    "controller-killed-10000": cluster_lifecycle.controller_killed(10_000),
    "offsets-loaded": coordinator_lifecycle.offsets_loaded,
}
#: In Raft mode Lograft acknowledges only records on disk, so Kafka flushes each message, too.
MODE_CONFIGS: Final[dict[str, dict[str, dict[str, str]]]] = {
    "isr": {"lograft": {}, "kafka": {}},
    "raft": {"lograft": {"replication.mode": "raft"}, "kafka": {"flush.messages": "1"}},
}
#: A JVM is warm when a round costs at least this share of the best round before it.
WARM_SHARE: Final = 0.95


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a few minutes, rough figures")
    parser.add_argument("--nodes", type=int, default=1, help="3: a cluster, replication factor 3")
    parser.add_argument("--mode", choices=list(MODE_CONFIGS), default="isr", help="of a cluster")
    parser.add_argument("--only", choices=KINDS, help="measure one server; no ratios then")
    parser.add_argument(
        "--workload",
        action="append",
        choices=sorted({*LIFECYCLES, *CLUSTER_LIFECYCLES, *WORKLOADS}),
        help="may be given several times; all of them otherwise",
    )
    parser.add_argument("--loaded-seconds", type=float, help="length of the latency under load")
    parser.add_argument("--repetitions", type=int, help="number of rounds; the median is reported")
    parser.add_argument("--name", help="of the files in bench/results; full, quick, … otherwise")
    parser.add_argument("--no-write", action="store_true", help="leave bench/results as it is")
    return parser.parse_args()


def plan_of(wanted: argparse.Namespace) -> Plan:
    plan = QUICK if wanted.quick else FULL
    return replace(
        plan,
        loaded_seconds=wanted.loaded_seconds or plan.loaded_seconds,
        repetitions=wanted.repetitions or plan.repetitions,
        topic_configs=MODE_CONFIGS[wanted.mode],
    )


def main() -> None:
    wanted = parse()
    plan = plan_of(wanted)
    kinds: list[Kind] = [wanted.only] if wanted.only else list(KINDS)
    results: Results = {kind: {} for kind in kinds}
    lifecycles = LIFECYCLES if wanted.nodes == 1 else CLUSTER_LIFECYCLES
    chosen = wanted.workload or [*lifecycles, *WORKLOADS]
    with tempfile.TemporaryDirectory(prefix="lograft-bench-") as folder:
        for name, measure in lifecycles.items():
            for kind in kinds if name in chosen else ():
                try:
                    figures = measure(kind, Path(folder, f"{name}-{kind}"), plan)
                except (BenchFailed, ServerFailed) as error:
                    # Its row stays empty; the other measurements are still valid.
                    print(f"{name:20} {kind:8} failed: {str(error).splitlines()[0]}", flush=True)
                    continue
                results[kind][name] = figures
                say(name, kind, figures)
        setup = Setup(kinds, wanted.nodes, Path(folder))
        run_workloads(results, [name for name in WORKLOADS if name in chosen], plan, setup)
    form = wanted.name or ("quick" if wanted.quick else "full") + form_suffix(wanted)
    about = report.about_this_run(form)
    targets = [target for target in targets_of(wanted) if target.workload in chosen]
    print()
    print(report.markdown(results, about, targets))
    if not wanted.no_write:
        print(f"written to {report.write(results, about, targets)}")


@dataclass(frozen=True, slots=True)
class Setup:
    kinds: list[Kind]
    nodes: int
    folder: Path

    @contextmanager
    def subject(self, kind: Kind, configs: Mapping[str, str]) -> Iterator[Subject]:
        folder = self.folder / kind
        if self.nodes == 1:
            with make_server(kind, folder, settings=BUSY_SETTINGS).started() as server:
                yield Subject([server], configs)
        else:
            cluster = make_cluster(kind, folder, self.nodes, settings=BUSY_SETTINGS)
            with cluster.started():
                yield Subject(cluster.servers, configs)


def form_suffix(wanted: argparse.Namespace) -> str:
    if wanted.nodes == 1:
        return ""
    return f"-{wanted.nodes}-nodes" + ("" if wanted.mode == "isr" else f"-{wanted.mode}")


def targets_of(wanted: argparse.Namespace) -> tuple[Target, ...]:
    if wanted.nodes == 1:
        return TARGETS
    return CLUSTER_TARGETS if wanted.mode == "isr" else RAFT_TARGETS


def run_workloads(results: Results, names: list[str], plan: Plan, setup: Setup) -> None:
    """Both servers keep running and alternate, so that other load on the machine affects both."""
    if not names:
        return
    with ExitStack() as stack:
        subjects = [
            stack.enter_context(setup.subject(kind, plan.topic_configs[kind]))
            for kind in setup.kinds
        ]
        for subject in subjects:
            warm(subject, plan)
        for name in names:
            runs: dict[str, list[Figures]] = defaultdict(list)
            for _repetition in range(repetitions(name, plan)):
                for subject in subjects:
                    try:
                        runs[subject.name].append(WORKLOADS[name](subject, plan))
                    except (BenchFailed, OSError) as error:
                        # A leader changed, or a server exited; the other measurements are still
                        # valid.
                        print(f"{name:20} {subject.name:8} failed: {error}", flush=True)
                        continue
                    say(name, subject.name, runs[subject.name][-1])
            for kind, figures in runs.items():
                results[kind][name] = median(figures)


def repetitions(name: str, plan: Plan) -> int:
    """The minutes under load are a single long measurement."""
    return 1 if name == "latency-under-load" else plan.repetitions


def warm(subject: Subject, plan: Plan) -> None:
    """Runs until two rounds in a row bring no improvement. Lograft needs one round."""
    if subject.name == "lograft":
        say("warm", subject.name, produce(subject, plan, value_bytes=1000, acks=-1))
        return
    best, stalled = float("inf"), 0
    for _round in range(plan.warm_rounds):
        figures = produce(subject, plan, value_bytes=1000, acks=-1)
        say("warm", subject.name, figures)
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
