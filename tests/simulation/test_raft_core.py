"""Tests of groups of Raft cores with faults: every step is checked, every mutant must be caught."""

import os
import subprocess
import sys
from collections import Counter
from time import process_time

import pytest

from campaigns.raft_mutants import RAFT_MUTANTS, hunt_raft
from campaigns.raft_run import RaftOptions, options_of, run_raft
from lograft.consensus.core import RaftCore

pytestmark = pytest.mark.simulation

BUDGET_SECONDS = float(os.environ.get("LOGRAFT_RAFT_SECONDS", "10"))
FIRST_SEED = int(os.environ.get("LOGRAFT_RAFT_SEED", "0"))
MUTANT_SEEDS_MAX = 150


@pytest.mark.timeout(BUDGET_SECONDS * 20 + 60)
def test_groups_keep_their_guarantees_under_faults() -> None:
    end = process_time() + BUDGET_SECONDS
    seed = FIRST_SEED
    figures: Counter[str] = Counter()
    while process_time() < end:
        report = run_raft(seed)
        assert not report.violation, f"LOGRAFT_RAFT_SEED={seed}: {report.violation}\n" + "\n".join(
            [str(report.options), *report.last_events]
        )
        figures["seeds"] += 1
        figures["steps"] += report.steps
        figures["committed"] += report.committed
        figures["crashes"] += report.crashes
        figures["installs"] += report.installs
        figures["voter changes"] += report.voter_changes
        seed += 1
    # Without these events, the run would not test anything.
    assert figures["committed"] > 10 * figures["seeds"], figures
    for figure in ("crashes", "installs", "voter changes"):
        assert figures[figure] > 0, figures


def test_without_faults_the_leader_does_not_change() -> None:
    options = RaftOptions(fault_interval_ms=10_000, observers=0, dynamic_voters=False)
    report = run_raft(1, options)
    assert report.violation == ""
    assert report.epochs <= 2
    assert report.committed > 60


def test_static_voters_become_dynamic_under_faults() -> None:
    upgrades = 0
    for seed in range(FIRST_SEED, FIRST_SEED + 30):
        options = options_of(seed)
        options.dynamic_voters, options.upgrades_version = False, True
        report = run_raft(seed, options)
        assert not report.violation, f"seed {seed}: {report.violation}\n" + "\n".join(
            [str(options), *report.last_events]
        )
        upgrades += report.is_upgraded
    assert upgrades > 10


@pytest.mark.parametrize("mutant", RAFT_MUTANTS, ids=lambda mutant: mutant.__name__)
def test_removed_safeguard_is_detected(mutant: type[RaftCore]) -> None:
    assert hunt_raft(mutant, seeds_max=MUTANT_SEEDS_MAX) is not None


def trace_in_new_process(seed: int, hash_seed: str) -> str:
    code = f"from campaigns.raft_run import run_raft; print(run_raft({seed}).trace_hash)"
    result = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "PYTHONHASHSEED": hash_seed},
        capture_output=True,
        text=True,
        check=True,
    )
    return result.stdout


def test_same_seed_has_the_same_trace() -> None:
    assert len({trace_in_new_process(3, hash_seed) for hash_seed in ("1", "2")}) == 1
