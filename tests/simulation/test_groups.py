"""Tests of groups and transactions in clusters with faults; mutants."""

import os

import pytest

from campaigns.groups.mutants import hunt_groups
from campaigns.groups.plan import ActorPlan, GroupsOptions, draw_options
from campaigns.groups.run import run_groups
from campaigns.run import run_with_groups
from tests.simulation.budgets import run_within

pytestmark = [pytest.mark.simulation, pytest.mark.usefixtures("quiet")]

BUDGET_SECONDS = float(os.environ.get("LOGRAFT_GROUPS_SECONDS", "8"))
FIRST_SEED = int(os.environ.get("LOGRAFT_GROUPS_SEED", "0"))
#: Mutants that are caught within two seeds; campaigns run all of them.
QUICK_MUTANTS = ("partition assigned before it is revoked", "LSO is HW")


@pytest.mark.timeout(BUDGET_SECONDS * 20 + 60)
def test_groups_keep_their_guarantees_under_faults() -> None:
    figures = run_within(
        BUDGET_SECONDS, run_with_groups, first=FIRST_SEED, variable="LOGRAFT_GROUPS_SEED"
    )
    # Without these events, the run would not test anything.
    for name in ("commits", "assignments", "faults", "late requests", "transactions"):
        assert figures[name] > 0, (name, figures)


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_group_without_faults_becomes_stable(protocol: str) -> None:
    actors = [ActorPlan(f"m{number}", "member", "g", protocol) for number in (1, 2)]
    options = draw_options(0)
    report = run_groups(
        1, GroupsOptions(seconds=4, properties=options.properties, actors=actors, pace_ms=(20, 50))
    )
    assert report.violations == []
    assert (report.starts, report.kills, report.late_requests) == (3, 0, 0)
    assert report.commits > 10
    # The first member may own all partitions for a while.
    assert 2 <= report.assignments <= 8


@pytest.mark.parametrize("name", QUICK_MUTANTS)
def test_removed_safeguard_is_detected(name: str) -> None:
    assert hunt_groups(name, seeds_max=2) is not None


def test_plan_survives_a_round_trip_through_json() -> None:
    options = draw_options(7)
    assert GroupsOptions.from_json(options.to_json()) == options
