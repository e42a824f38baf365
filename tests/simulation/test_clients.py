"""Tests of Lograft's own client in clusters with faults, and of broken clients that must be
detected."""

import os
from dataclasses import replace
from typing import Any

import pytest

from campaigns.clients_run import run_clients
from campaigns.cluster_plan import ClusterFault, draw_options
from campaigns.run import run_with_clients
from lograft.client.consuming.completed_fetches import CompletedFetch
from lograft.client.producing.accumulator import PartitionQueue
from lograft.client.producing.batches import Batch
from lograft.client.producing.sender import Sender
from lograft.client.producing.sequences import Sequences
from lograft.model.types import NO_SEQUENCE
from tests.simulation.budgets import run_within

pytestmark = [pytest.mark.simulation, pytest.mark.usefixtures("quiet")]

BUDGET_SECONDS = float(os.environ.get("LOGRAFT_CLIENTS_SECONDS", "8"))
FIRST_SEED = int(os.environ.get("LOGRAFT_CLIENTS_SEED", "0"))
#: Frequent connection resets, and leaders that are killed.
RESETS = [ClusterFault(300 * i, "reset", "leader", 100, i) for i in range(1, 15)]
KILLS = [ClusterFault(1_500 * i, "kill", "leader", 300, i) for i in range(1, 4)]


@pytest.mark.timeout(BUDGET_SECONDS * 20 + 60)
def test_client_keeps_its_guarantees_under_faults() -> None:
    figures = run_within(
        BUDGET_SECONDS, run_with_clients, first=FIRST_SEED, variable="LOGRAFT_CLIENTS_SEED"
    )
    # Without these events, the run would not test anything.
    for name in ("acknowledged records", "faults", "leader epochs"):
        assert figures[name] > 0, (name, figures)


def test_run_depends_only_on_its_seed() -> None:
    options = replace(draw_options(1), seconds=2, faults=KILLS[:1], steps=[])
    assert run_clients(1, options).trace_hash == run_clients(1, options).trace_hash


def find_violations(seeds: int = 3, *, first: int = 0) -> set[str]:
    """Returns the invariants that the first failing seed violates under resets and kills."""
    for seed in range(first, first + seeds):
        options = replace(
            draw_options(0), seconds=6, pace_ms=(5, 20), faults=RESETS + KILLS, steps=[]
        )
        violations = run_clients(seed, options).violations
        if violations:
            return {each.invariant for each in violations}
    return set()


def test_unmodified_client_violates_no_invariant() -> None:
    assert find_violations(1) == set()


def test_new_sequence_for_every_attempt_is_detected(monkeypatch: pytest.MonkeyPatch) -> None:
    original = Sequences.assign

    def assign(self: Sequences, batch: Batch) -> None:
        if batch.sequence != NO_SEQUENCE:
            self.unassign(batch)
            self.has_gap = False
        original(self, batch)

    monkeypatch.setattr(Sequences, "assign", assign)
    assert find_violations() & {"P1", "P2", "L2"}


def test_retry_out_of_order_is_detected(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(PartitionQueue, "put_back", lambda self, batch: self.batches.append(batch))
    # Rare: the first seeds do not detect it.
    assert find_violations(10, first=5) & {"P2", "L2"}


def test_acknowledgement_without_a_response_is_detected(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A lost response counts as a successful one."""

    def acknowledge(self: Any, queue: PartitionQueue, batch: Batch, error: Exception) -> None:
        self._acknowledge(batch, 0)

    monkeypatch.setattr(Sender, "_retry", acknowledge)
    assert find_violations() & {"D1", "D2", "P3"}


def test_consumer_that_skips_offsets_is_detected(monkeypatch: pytest.MonkeyPatch) -> None:
    original = CompletedFetch.__init__

    def skip(self: CompletedFetch, fetched: Any) -> None:
        original(self, fetched)
        if len(fetched.data) and fetched.first_offset % 7 == 3:
            self.next_offset += 1

    monkeypatch.setattr(CompletedFetch, "__init__", skip)
    assert find_violations() & {"D5", "D3", "L2"}
