"""ACLs that change under load, and authorizers that must be detected as broken."""

import os
from dataclasses import replace

import pytest

from campaigns.acls.mutants import ACL_MUTANTS
from campaigns.acls.plan import AclOptions, draw_options
from campaigns.acls.run import run_acls
from campaigns.mutants import active
from campaigns.run import run_with_acls
from tests.simulation.budgets import run_within

pytestmark = [pytest.mark.simulation, pytest.mark.usefixtures("quiet")]

BUDGET_SECONDS = float(os.environ.get("LOGRAFT_ACLS_SECONDS", "4"))
FIRST_SEED = int(os.environ.get("LOGRAFT_ACLS_SEED", "0"))


@pytest.mark.timeout(BUDGET_SECONDS * 20 + 60)
def test_no_node_serves_what_its_acls_deny() -> None:
    figures = run_within(
        BUDGET_SECONDS, run_with_acls, first=FIRST_SEED, variable="LOGRAFT_ACLS_SEED"
    )
    # Without these events, the run would not test anything.
    for name in ("changes of ACLs at nodes", "allowed items", "denied items"):
        assert figures[name] > 0, (name, figures)
    assert figures["requests on fast paths"] > 0, figures


def test_run_depends_only_on_its_seed() -> None:
    options = replace(draw_options(1), seconds=1, faults=[], steps=[])
    traces = {run_acls(1, options)[0].trace_hash for _ in range(2)}
    assert len(traces) == 1


def test_options_are_restored_from_json() -> None:
    options = draw_options(3)
    assert AclOptions.from_json(options.to_json()) == options


def test_stale_decisions_are_detected() -> None:
    options = replace(draw_options(0), seconds=1, faults=[], steps=[])
    with active(ACL_MUTANTS["stale decisions"][1]):
        report, _ = run_acls(0, options)
    assert {each.invariant for each in report.violations} & {"A1", "A2"}
    assert run_acls(0, options)[0].violations == []
