"""Tests of the ledger of campaigns, the shrinking of plans, and the report."""

from pathlib import Path

from campaigns.cluster_plan import ClusterOptions, draw_options
from campaigns.ledger import Ledger, read_ledger, totals
from campaigns.mutant_hunt import KINDS, Hunt, names_of
from campaigns.reporting import report
from campaigns.shrinking import Budget, minimize, shrink_options


def add(ledger: Ledger, seed: int, *, invariant: str = "", kind: str = "raft") -> None:
    ledger.add(
        kind,
        seed,
        f"trace{seed}",
        simulated_seconds=30,
        cpu_seconds=1,
        figures={"crashes": 2},
        invariant=invariant,
    )


def test_campaign_continues_after_its_last_seed(tmp_path: Path) -> None:
    path = tmp_path / "ledger.jsonl"
    ledger = Ledger(path, commit="abc")
    for seed in (5, 6, 7):
        add(ledger, seed)
    ledger.close()
    reopened = Ledger(path, commit="def")
    assert reopened.next_seed("raft") == 8
    assert reopened.next_seed("cluster", first=3) == 3
    add(reopened, 8, invariant="M1")
    reopened.close()
    total = totals(read_ledger(path))["raft"]
    assert (total.first, total.seeds, total.distinct_traces) == (5, 4, 4)
    assert (total.violations, total.figures, total.commit) == ([(8, "M1")], {"crashes": 8}, "def")


def test_seeds_of_a_torn_line_are_run_again(tmp_path: Path) -> None:
    path = tmp_path / "ledger.jsonl"
    ledger = Ledger(path, commit="abc")
    add(ledger, 0)
    ledger.close()
    with path.open("a") as file:
        file.write('{"kind": "raft", "fir')
    assert Ledger(path, commit="abc").next_seed("raft") == 1


def test_list_is_minimized_while_it_fails() -> None:
    minimal = minimize(range(20), lambda kept: {3, 17} <= set(kept), Budget(1_000))
    assert minimal == [3, 17]


def test_plan_is_shrunk_in_order() -> None:
    options = next(o for o in map(draw_options, range(200)) if len(o.faults) == 5 and o.steps)
    culprit = options.faults[2]

    def fails(attempt: ClusterOptions) -> bool:
        return culprit in attempt.faults and attempt.seconds >= 6

    small = shrink_options(options, fails)
    assert (small.faults, small.steps, small.policy) == ([culprit], [], "fifo")
    assert small.seconds == 6
    assert ClusterOptions.from_json(small.to_json()) == small


def test_report_contains_the_results(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path / "ledger.jsonl", commit="0123456789abcdef")
    add(ledger, 0, kind="cluster", invariant="D1")
    ledger.close()
    hunts = [
        Hunt("cluster", "no vote", "votes are not persisted", 3, "M2", 1.0),
        Hunt("raft", "Escaped", "not detected", None, "", 1.0),
    ]
    text = report(
        ledger.lines,
        hunts,
        ledger="ledger.jsonl",
        mutants="mutants.jsonl",
        regressions=tmp_path,
        still_fails=lambda kind, seed: False,
    )
    assert "| cluster | 1 | 1 | 0.01 | 0.0 | 1 (D1); none fails now | 0123456789 |" in text
    assert "1 of 2 mutants were caught" in text
    assert "| no vote | 3 | M2 | votes are not persisted |" in text
    assert "| Escaped | **not caught** |" in text


def test_every_kind_has_mutants() -> None:
    for kind in KINDS:
        assert len(names_of(kind)) >= 6
