"""Runs the clients in turn and writes bench/results/clients.md."""

import argparse
import asyncio
import json
import statistics
import subprocess
import sys
import tempfile
from collections import defaultdict
from pathlib import Path
from typing import Final

import pyarrow as pa

from bench import report
from bench.clients.work import PARTITIONS, STORED_BYTES, Figures
from bench.subject import BenchFailed, Subject, make_server
from lograft.client import Producer

CLIENTS: Final = ("lograft", "lograft-arrow", "confluent-kafka", "aiokafka", "kafka-python")
#: Size of a message in bytes.
WORKLOADS: Final = {
    "produce-100B": 100,
    "produce-1KB": 1_000,
    "consume-100B": 100,
    "consume-1KB": 1_000,
    "echo-100B": 100,
}
#: Arrow tables are not sent as single messages.
LEFT_OUT: Final = frozenset({("lograft-arrow", "echo-100B")})
WORKER_SECONDS_MAX: Final = 180

Results = dict[str, dict[str, Figures]]


class Target:
    """Compares a figure of one client with that of another."""

    def __init__(
        self, workload: str, figure: str, ours: str, theirs: str, ratio: float, *, at_least: bool
    ) -> None:
        self.workload, self.figure = workload, figure
        self.ours, self.theirs = ours, theirs
        self.ratio, self.at_least = ratio, at_least

    def row(self, results: Results) -> str | None:
        ours = results.get(self.ours, {}).get(self.workload, {}).get(self.figure)
        theirs = results.get(self.theirs, {}).get(self.workload, {}).get(self.figure)
        if ours is None or theirs is None:
            return None
        value = ours / theirs
        is_met = value >= self.ratio if self.at_least else value <= self.ratio
        sign = "≥" if self.at_least else "≤"
        cells = [
            self.workload,
            self.figure,
            f"{self.ours} / {self.theirs}",
            f"{report.show(ours)} / {report.show(theirs)}",
            f"{value:.3g}",
            f"{sign} {self.ratio:g}",
            "met" if is_met else "**missed**",
        ]
        return f"| {' | '.join(cells)} |"


TARGETS: Final = (
    *(
        Target(f"produce-{size}", figure, "lograft", other, ratio, at_least=at_least)
        for size in ("100B", "1KB")
        for other in ("aiokafka", "kafka-python")
        for figure, ratio, at_least in (
            ("messages_per_s", 2.0, True),
            ("cpu_us_per_message", 0.5, False),
        )
    ),
    *(
        Target(name, "messages_per_s", "lograft-arrow", "confluent-kafka", 3.0, at_least=True)
        for name in ("consume-100B", "consume-1KB")
    ),
    Target("echo-100B", "p50_ms", "lograft", "confluent-kafka", 1.0, at_least=False),
    Target("echo-100B", "p99_ms", "lograft", "confluent-kafka", 1.0, at_least=False),
)


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench.clients", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a minute or two, rough figures")
    parser.add_argument("--seconds", type=float, help="of one measurement")
    parser.add_argument("--rounds", type=int, help="number of rounds; the median is reported")
    parser.add_argument("--client", action="append", choices=CLIENTS)
    parser.add_argument("--workload", action="append", choices=list(WORKLOADS))
    parser.add_argument("--no-write", action="store_true", help="leave bench/results as it is")
    return parser.parse_args()


def main() -> None:
    wanted = parse()
    seconds = wanted.seconds or (1.5 if wanted.quick else 5.0)
    rounds = wanted.rounds or (1 if wanted.quick else 3)
    clients = wanted.client or list(CLIENTS)
    workloads = wanted.workload or list(WORKLOADS)
    with tempfile.TemporaryDirectory(prefix="lograft-bench-") as folder:
        server = make_server("lograft", Path(folder))
        with server.started():
            subject = Subject([server])
            results = measure(subject, clients, workloads, seconds, rounds)
    about = report.about_this_run("clients")
    text = markdown(results, about, clients, workloads)
    print()
    print(text)
    if not wanted.no_write:
        report.FOLDER.mkdir(exist_ok=True)
        (report.FOLDER / "clients.md").write_text(text)
        record = {"about": about, "results": results}
        (report.FOLDER / "clients.json").write_text(json.dumps(record, indent=1) + "\n")


def measure(
    subject: Subject, clients: list[str], workloads: list[str], seconds: float, rounds: int
) -> Results:
    servers = subject.servers[0].bootstrap
    for workload in workloads:
        partitions = 1 if workload.startswith("echo") else PARTITIONS
        subject.create_topic(workload, partitions=partitions)
        if workload.startswith("consume"):
            asyncio.run(fill(servers, workload, WORKLOADS[workload]))
    found: dict[tuple[str, str, str], list[float]] = defaultdict(list)
    for _ in range(rounds):
        for workload in workloads:
            for client in clients:
                if (client, workload) in LEFT_OUT:
                    continue
                figures = run_worker(client, workload, servers, seconds)
                shown = ", ".join(f"{name} {report.show(value)}" for name, value in figures.items())
                print(f"{workload:14} {client:16} {shown}", flush=True)
                for name, value in figures.items():
                    found[client, workload, name].append(value)
    results: Results = defaultdict(lambda: defaultdict(dict))
    for (client, workload, name), values in found.items():
        results[client][workload][name] = statistics.median(values)
    return results


async def fill(servers: str, topic: str, size: int) -> None:
    count = STORED_BYTES // size
    table = pa.table({"value": pa.array([bytes(size)] * count, pa.binary())})
    async with Producer(bootstrap_servers=servers) as producer:
        await producer.send_arrow(topic, table, batch_bytes=64 << 10)


def run_worker(client: str, workload: str, servers: str, seconds: float) -> Figures:
    command = [sys.executable, "-m", "bench.clients.worker", client, workload, servers, workload]
    ended = subprocess.run(
        [*command, str(WORKLOADS[workload]), str(seconds)],
        capture_output=True,
        text=True,
        timeout=WORKER_SECONDS_MAX,
        check=False,
    )
    if ended.returncode:
        raise BenchFailed(f"{client}, {workload}: {ended.stderr[-2000:]}")
    figures: Figures = json.loads(ended.stdout.splitlines()[-1])
    return figures


def markdown(
    results: Results, about: dict[str, str], clients: list[str], workloads: list[str]
) -> str:
    lines = ["# Clients for Python on one Lograft broker", ""]
    lines += [f"- {name}: {value}" for name, value in about.items()]
    lines += ["", "## Targets", ""]
    lines += ["| workload | figure | clients | figures | ratio | target | |"]
    lines += ["|---|---|---|---:|---:|---:|---|"]
    lines += [row for row in (target.row(results) for target in TARGETS) if row is not None]
    lines += ["", "## All figures", "", f"| workload | figure | {' | '.join(clients)} |"]
    lines += [f"|---|---|{'---:|' * len(clients)}"]
    for workload in workloads:
        names: dict[str, None] = {}
        for client in clients:
            names |= dict.fromkeys(results.get(client, {}).get(workload, {}))
        for name in names:
            cells = [
                report.show(results.get(client, {}).get(workload, {}).get(name))
                for client in clients
            ]
            lines.append(f"| {workload} | {name} | {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    main()
