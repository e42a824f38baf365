"""Tests of a log with thousands of crashes; mutants that the torture test must detect."""

from time import process_time

import pytest

from campaigns.mutants import MUTANTS, hunt
from campaigns.run import run_storage
from tests.simulation.replays import trace_in_new_process

pytestmark = pytest.mark.simulation

#: CPU seconds; `make simulate` runs longer and on other seeds.
BUDGET_SECONDS = 12
CRASHES_AT_LEAST = 1_000


def test_log_survives_crashes_at_any_disk_operation() -> None:
    end = process_time() + BUDGET_SECONDS
    crashes = 0
    seed = 0
    while process_time() < end:
        report = run_storage(seed)
        assert not report.has_failed, f"make simulate SEED={seed}: {report.message}"
        crashes += report.figures["crashes"]
        seed += 1
    assert crashes >= CRASHES_AT_LEAST


@pytest.mark.parametrize("name", MUTANTS)
def test_removed_safeguard_is_detected(name: str) -> None:
    """Most are detected within 60 seeds; some need a rare fault as well."""
    assert hunt(name) is not None


def test_replay_has_the_same_trace() -> None:
    traces = {trace_in_new_process("storage", 3, hash_seed) for hash_seed in ("0", "1", "99")}
    assert traces == {f"storage seed 3 trace {run_storage(3).trace_hash}"}
    assert run_storage(4).trace_hash != run_storage(3).trace_hash
