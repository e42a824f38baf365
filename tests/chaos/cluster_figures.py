"""What a run of test_clusters.py measured, kept as a line of JSON and shown as a page.

LOGRAFT_CHAOS_RESULTS names the folder of `chaos.jsonl`, to which runs add, and of `chaos.md`, which
every run writes anew: of each kind of cluster the newest run.
"""

import json
import subprocess
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from lograft.simulation.checkers import Violation
from lograft.simulation.history import History
from tools.kafka_jars import KAFKA_VERSION

LINES: Final = "chaos.jsonl"
PAGE: Final = "chaos.md"
TITLES: Final = {
    "isr": "Lograft, isr",
    "raft": "Lograft, raft",
    "kafka": f"Apache Kafka {KAFKA_VERSION}",
}
#: Faults that take a leader away without asking it.
SUDDEN: Final = ("kill", "pause", "isolate")
LOST: Final = ("D1",)
DUPLICATES: Final = ("P1", "P3")
COMMAND: Final = "make chaos-figures"
HEAD: Final = f"""# Chaos: real processes, killed, paused and cut off

Made by `{COMMAND}` (tests/chaos/test_clusters.py); do not edit. Three nodes in network
namespaces of their own, three replicas, `min.insync.replicas=2`, default timeouts, the same clients
and the same kinds of faults for all: SIGKILL, SIGSTOP, silent cuts of the network (whole, one-way,
the bridge of A-B and B-C), rolling restarts, all nodes at once; aimed at partition leaders, the
controller, coordinators of groups and transactions. Writers: librdkafka with idempotence and
without, and a raw producer that repeats batches on purpose. Readers: librdkafka and a raw one; a
classic group and one of KIP-848 whose members come and go; two copiers in transactions that die in
the middle of them and wake up as zombies. After the last fault everything is read, twice, and the
checkers of the simulator judge the history.

Times without a leader are from a fault that hit a partition's leader until a record sent after it
was acknowledged, in brackets how many; faults follow each other so closely that the next leader may
have to wait for others. On a busy machine they say more about the machine than about the servers.

"""


@dataclass(frozen=True, slots=True)
class Figures:
    kind: str
    commit: str
    day: str
    seed: int
    seconds: float
    #: The machine's load average per core while faults struck; 0: not measured.
    load: float = 0.0
    #: "kill leader": how often.
    faults: dict[str, int] = field(default_factory=dict)
    acknowledged: int = 0
    unknown: int = 0
    repeated: int = 0
    polls: int = 0
    group_commits: int = 0
    assignments: int = 0
    transactions: int = 0
    aborted: int = 0
    zombies: int = 0
    #: Calls from which librdkafka did not return.
    hung: int = 0
    copies: int = 0
    #: Invariant: how often violated.
    violations: dict[str, int] = field(default_factory=dict)
    #: What clients complained of, and what became of it: added by hand.
    troubles: list[str] = field(default_factory=list)
    note: str = ""
    #: Kind of fault: seconds from each until a record sent after it was acknowledged.
    without_leader: dict[str, list[float]] = field(default_factory=dict)


def measured(
    kind: str,
    history: History,
    *,
    seed: int,
    seconds: float,
    load: float,
    faults: Mapping[str, int],
    found: Sequence[Violation],
    troubles: Sequence[str],
) -> Figures:
    sends = history.operations("send")
    transactions = history.operations("transaction")
    return Figures(
        kind=kind,
        commit=commit(),
        day=datetime.now(UTC).date().isoformat(),
        seed=seed,
        seconds=seconds,
        load=load,
        faults=dict(faults),
        acknowledged=sum(send.type == "ok" for send in sends),
        unknown=sum(send.type == "info" for send in sends),
        repeated=sum(bool(send.arguments.get("retry")) for send in sends),
        polls=len(history.operations("poll")),
        group_commits=sum(each.type == "ok" for each in history.operations("commit")),
        assignments=sum(1 for _ in history.probes("assigned")),
        transactions=sum(each.type == "ok" for each in transactions),
        aborted=sum(1 for _ in history.probes("aborted")),
        zombies=sum(1 for _ in history.probes("zombie")),
        hung=sum(1 for _ in history.probes("hung")),
        copies=sum(len(each.result["records"]) for each in history.operations("copies")),
        violations=dict(Counter(each.invariant for each in found)),
        troubles=list(troubles),
        without_leader=without_leader(history),
    )


def commit() -> str:
    done = subprocess.run(
        ["git", "rev-parse", "--short=10", "HEAD"],
        cwd=Path(__file__).parent,
        capture_output=True,
        text=True,
    )
    return done.stdout.strip()


def without_leader(history: History) -> dict[str, list[float]]:
    """From a fault that hit a partition's leader until a record that was sent after it, to that
    partition, was acknowledged."""
    waiting: dict[str, tuple[str, int]] = {}
    sent: dict[str, tuple[str, int]] = {}
    gaps: dict[str, list[float]] = defaultdict(list)
    for event in history.events:
        if event.f == "fault":
            if event.v["target"] == "leader" and event.v["kind"] in SUDDEN:
                waiting.setdefault(event.v["tp"], (event.v["kind"], event.t))
        elif event.f == "send" and event.type == "invoke":
            sent[event.proc] = (event.v["tp"], event.t)
        elif event.f == "send":
            tp, asked_at = sent.pop(event.proc)
            if event.type == "ok" and tp in waiting and asked_at > waiting[tp][1]:
                kind, since = waiting.pop(tp)
                gaps[kind].append(round((event.t - since) / 1e9, 3))
    return dict(gaps)


def keep(figures: Figures, folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / LINES).open("a") as file:
        file.write(json.dumps(asdict(figures), sort_keys=True) + "\n")
    (folder / PAGE).write_text(page(read(folder / LINES)))


def read(path: Path) -> list[Figures]:
    return [Figures(**json.loads(line)) for line in path.read_text().splitlines() if line.strip()]


def page(runs: Sequence[Figures]) -> str:
    newest = {each.kind: each for each in runs}
    shown = [newest[kind] for kind in TITLES if kind in newest]
    rows: list[tuple[str, list[Any]]] = [
        ("minutes of faults", [f"{each.seconds / 60:.0f}" for each in shown]),
        ("load average per core", [f"{each.load:.1f}" if each.load else "-" for each in shown]),
        ("faults", [sum(each.faults.values()) for each in shown]),
        *(
            (f"- of them {kind}", [_of_kind(each, kind) for each in shown])
            for kind in _kinds(shown)
        ),
        ("acknowledged records", [f"{each.acknowledged:,}" for each in shown]),
        ("repeated on purpose", [f"{each.repeated:,}" for each in shown]),
        ("**acknowledged and lost**", [_bold(each, LOST) for each in shown]),
        ("**duplicates with idempotence**", [_bold(each, DUPLICATES) for each in shown]),
        ("other violations", [_others(each) for each in shown]),
        *(
            (f"without a leader after {kind}, p50 / p99 s", [_gaps(each, kind) for each in shown])
            for kind in SUDDEN
        ),
        ("commits of groups", [f"{each.group_commits:,}" for each in shown]),
        ("assignments to members", [f"{each.assignments:,}" for each in shown]),
        (
            "transactions committed / aborted",
            [f"{each.transactions:,} / {each.aborted:,}" for each in shown],
        ),
        ("zombies that tried to commit", [each.zombies for each in shown]),
        ("calls that librdkafka never ended", [each.hung for each in shown]),
        ("records copied exactly once", [f"{each.copies:,}" for each in shown]),
        ("commit, day, seed", [f"{each.commit}, {each.day}, {each.seed}" for each in shown]),
    ]
    head = "| | " + " | ".join(TITLES[each.kind] for each in shown) + " |\n"
    rule = "|---|" + "---|" * len(shown) + "\n"
    table = "".join(
        f"| {name} | " + " | ".join(str(value) for value in values) + " |\n"
        for name, values in rows
    )
    complaints = "".join(
        f"- {TITLES[each.kind]}: {text}\n"
        for each in shown
        for text in [*(trouble.partition("\n")[0] for trouble in each.troubles[:5]), each.note]
        if text
    )
    said = f"\nWhat clients complained of, and remarks:\n\n{complaints}" if complaints else ""
    return HEAD + head + rule + table + said


def _kinds(shown: Sequence[Figures]) -> list[str]:
    return sorted({name.rpartition(" ")[0] for each in shown for name in each.faults})


def _of_kind(figures: Figures, kind: str) -> int:
    return sum(n for name, n in figures.faults.items() if name.rpartition(" ")[0] == kind)


def _bold(figures: Figures, invariants: Sequence[str]) -> str:
    return f"**{sum(figures.violations.get(each, 0) for each in invariants)}**"


def _others(figures: Figures) -> str:
    found = {k: n for k, n in figures.violations.items() if k not in (*LOST, *DUPLICATES)}
    return ", ".join(f"{name}: {count}" for name, count in sorted(found.items())) or "0"


def _gaps(figures: Figures, kind: str) -> str:
    gaps = sorted(figures.without_leader.get(kind, ()))
    if not gaps:
        return "none was hit"
    p50, p99 = gaps[len(gaps) // 2], gaps[min(len(gaps) - 1, int(len(gaps) * 0.99))]
    return f"{p50:.2f} / {p99:.2f} ({len(gaps)})"
