from pathlib import Path

from lograft.simulation.checkers import Violation
from lograft.simulation.history import History
from tests.chaos.cluster_figures import Figures, figures_of, page, read, store, without_leader


def fault(history: History, kind: str, *, target: str = "leader", tp: str = "t-0") -> None:
    history.record("nemesis", "probe", "fault", kind=kind, target=target, tp=tp, node=1)


class Clock:
    """Advances by one second with each event."""

    def __init__(self) -> None:
        self.now_ns = 0

    def __call__(self) -> int:
        self.now_ns += 10**9
        return self.now_ns


def test_time_without_a_leader_ends_with_a_record_sent_after_the_fault() -> None:
    history = History(Clock())
    history.record("p#1", "invoke", "send", tp="t-0")
    fault(history, "kill")
    history.record("p#1", "ok", "send", offset=1)
    history.record("p#2", "invoke", "send", tp="t-1")
    history.record("p#3", "invoke", "send", tp="t-0")
    history.record("p#2", "ok", "send", offset=1)
    history.record("p#3", "ok", "send", offset=2)
    fault(history, "restart")
    fault(history, "kill", target="controller")
    history.record("p#4", "invoke", "send", tp="t-0")
    history.record("p#4", "ok", "send", offset=3)
    assert without_leader(history) == {"kill": [5.0]}


def test_page_shows_the_latest_run_of_each_kind(tmp_path: Path) -> None:
    history = History(Clock())
    violations = [Violation("D1", "a"), Violation("D1", "b"), Violation("T8", "c")]
    for kind, seed in (("isr", 1), ("kafka", 2), ("isr", 3)):
        figures = figures_of(
            kind, history, seed=seed, seconds=60, load=0.5,
            faults={"kill leader": 2, "kill all any": 1}, violations=violations,
            troubles=["p0: stuck"],
        )  # fmt: skip
        store(figures, tmp_path)
    assert [each.seed for each in read(tmp_path / "chaos.jsonl")] == [1, 2, 3]
    text = (tmp_path / "chaos.md").read_text()
    assert "| | Lograft, isr | Apache Kafka" in text
    assert "| - kill all | 1 | 1 |" in text
    assert "| **acknowledged and lost** | **2** | **2** |" in text
    assert "| other violations | T8: 1 | T8: 1 |" in text
    (seeds,) = [line for line in text.splitlines() if line.startswith("| commit, day, seed")]
    assert ", 3 |" in seeds
    assert seeds.endswith(", 2 |")
    assert "p0: stuck" in text


def test_times_without_a_leader_are_shown_by_kind_of_fault() -> None:
    figures = Figures("raft", "c", "d", 1, 60, without_leader={"kill": [3.0, 1.0, 2.0]})
    assert "| time without a leader after kill, p50 / p99 s | 2.00 / 3.00 (3) |" in page([figures])
    assert "| time without a leader after pause, p50 / p99 s | no such fault |" in page([figures])
