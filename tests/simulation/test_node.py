"""Tests of a node with clients and faults."""

from time import process_time

import pytest

from campaigns.node import Fault, NodeOptions, run_node
from campaigns.node_mutants import NODE_MUTANTS, hunt_node
from campaigns.run import run_whole_node
from tests.simulation.replays import trace_in_new_process

pytestmark = [pytest.mark.simulation, pytest.mark.usefixtures("quiet")]

BUDGET_SECONDS = 12


def test_node_keeps_its_guarantees_under_faults() -> None:
    end = process_time() + BUDGET_SECONDS
    seed = acknowledged = 0
    while process_time() < end:
        report = run_whole_node(seed)
        assert not report.has_failed, f"make simulate SEED={seed}: {report.message}"
        acknowledged += report.figures["acknowledged records"]
        seed += 1
    assert acknowledged > 1_000


def test_without_faults_no_record_is_lost_or_duplicated() -> None:
    report = run_node(1, NodeOptions(seconds=5, policy="uniform", faults=[]))
    assert report.violations == []
    assert (report.starts, report.kills, report.power_losses) == (1, 0, 0)
    assert report.acknowledged > 50


def test_clean_shutdown_between_two_power_losses() -> None:
    plan = [Fault(1_000, "power", 1), Fault(3_000, "stop", 1), Fault(5_000, "power", 1)]
    report = run_node(2, NodeOptions(seconds=8, policy="uniform", faults=plan))
    assert report.violations == []
    assert report.starts == 4


@pytest.mark.parametrize("name", NODE_MUTANTS)
def test_removed_safeguard_is_detected(name: str) -> None:
    assert hunt_node(name) is not None


def test_replay_has_the_same_trace() -> None:
    assert len({trace_in_new_process("node", 6, hash_seed) for hash_seed in ("1", "2", "3")}) == 1
