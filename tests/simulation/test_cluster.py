"""Tests of clusters with clients, administrators and faults; mutants; regressions."""

import os
from collections import Counter
from pathlib import Path

import pytest

from campaigns.cluster_mutants import hunt_cluster
from campaigns.cluster_plan import ClusterFault, ClusterOptions
from campaigns.cluster_run import ClusterRun, run_cluster
from campaigns.run import run_file, run_whole_cluster
from tests.simulation.budgets import run_within
from tests.simulation.replays import trace_in_new_process

pytestmark = [pytest.mark.simulation, pytest.mark.usefixtures("quiet")]

BUDGET_SECONDS = float(os.environ.get("LOGRAFT_CLUSTER_SECONDS", "15"))
FIRST_SEED = int(os.environ.get("LOGRAFT_CLUSTER_SEED", "0"))
REGRESSIONS = sorted((Path(__file__).parent / "regressions").glob("*.json"))
#: Mutants that are caught within two seeds; campaigns run all of them.
QUICK_MUTANTS = (
    "metadata log not fsynced",
    "vote not persisted",
    "high watermark of the leader alone",
    "follower does not fsync",
    "producer state lost in a mode switch",
)


@pytest.mark.timeout(BUDGET_SECONDS * 20 + 60)
def test_clusters_keep_their_guarantees_under_faults() -> None:
    figures = run_within(
        BUDGET_SECONDS, run_whole_cluster, first=FIRST_SEED, variable="LOGRAFT_CLUSTER_SEED"
    )
    # Without these events, the run would not test anything.
    assert figures["acknowledged records"] > 1_000, figures
    assert figures["faults"] > 0, figures


def test_without_faults_there_are_no_elections() -> None:
    report = run_cluster(1, ClusterOptions(nodes=3, seconds=4))
    assert report.violations == []
    assert (report.starts, report.kills, report.power_losses) == (3, 0, 0)
    # One leader epoch for each partition.
    assert (report.controller_epochs, report.leader_epochs) == (1, 3)
    assert report.acknowledged > 50


def test_cluster_survives_the_kill_of_several_leaders() -> None:
    faults = [ClusterFault(at_ms, "kill", "leader", 500, 1) for at_ms in (500, 2_500, 4_500)]
    report = run_cluster(2, ClusterOptions(nodes=3, seconds=7, faults=faults))
    assert report.violations == []
    assert report.kills == 3
    assert report.leader_epochs > 3


def test_partitions_accept_records_while_a_minority_is_down() -> None:
    faults = [ClusterFault(1_000, "kill", "leader", 20_000, 1)]
    run = ClusterRun(4, ClusterOptions(nodes=3, seconds=6, faults=faults, pace_ms=(20, 50)))
    report = run.execute()
    assert report.violations == []
    died = next(run.history.probes("died")).index
    # L3: every partition accepts records while the node is down.
    sends = [each for each in run.history.operations("send") if each.type == "ok"]
    later = Counter(each.arguments["tp"] for each in sends if each.invoked > died)
    assert all(later[tp] > 20 for tp in ("sync-0", "lazy-0", "lazy-1")), later


@pytest.mark.parametrize("name", QUICK_MUTANTS)
def test_removed_safeguard_is_detected(name: str) -> None:
    assert hunt_cluster(name, seeds_max=2) is not None


def test_regressions_do_not_fail_again() -> None:
    for path in REGRESSIONS:
        report = run_file(path)
        assert not report.has_failed, f"{path.name}: {report.message}"


def test_replay_has_the_same_trace() -> None:
    assert (
        len({trace_in_new_process("cluster", 10, hash_seed) for hash_seed in ("1", "2", "3")}) == 1
    )
