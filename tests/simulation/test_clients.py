"""Lograft's own client on whole clusters under faults; broken clients that checkers must notice."""

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
#: Connections break all the time, and leaders die.
RESETS = [ClusterFault(300 * i, "reset", "leader", 100, i) for i in range(1, 15)]
KILLS = [ClusterFault(1_500 * i, "kill", "leader", 300, i) for i in range(1, 4)]


@pytest.mark.timeout(BUDGET_SECONDS * 20 + 60)
def test_the_client_keeps_its_promises_under_faults() -> None:
    figures = run_within(
        BUDGET_SECONDS, run_with_clients, first=FIRST_SEED, variable="LOGRAFT_CLIENTS_SEED"
    )
    # A simulation in which nothing happens finds nothing.
    for name in ("acknowledged records", "faults", "leader epochs"):
        assert figures[name] > 0, (name, figures)


def test_a_run_is_a_function_of_its_seed() -> None:
    options = replace(draw_options(1), seconds=2, faults=KILLS[:1], steps=[])
    assert run_clients(1, options).trace_hash == run_clients(1, options).trace_hash


def hunted(seeds: int = 3, *, first: int = 0) -> set[str]:
    """The invariants that broken connections and dying leaders make one of the seeds violate."""
    for seed in range(first, first + seeds):
        options = replace(
            draw_options(0), seconds=6, pace_ms=(5, 20), faults=RESETS + KILLS, steps=[]
        )
        violations = run_clients(seed, options).violations
        if violations:
            return {each.invariant for each in violations}
    return set()


def test_without_a_mutant_nothing_is_found() -> None:
    assert hunted(1) == set()


def test_a_new_sequence_for_every_attempt_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    keep = Sequences.assign

    def assign(self: Sequences, batch: Batch) -> None:
        if batch.sequence != NO_SEQUENCE:
            self.unassign(batch)
            self.has_gap = False
        keep(self, batch)

    monkeypatch.setattr(Sequences, "assign", assign)
    assert hunted() & {"P1", "P2", "L2"}


def test_a_retry_that_loses_its_place_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(PartitionQueue, "put_back", lambda self, batch: self.batches.append(batch))
    # Rarer than the others: the first seeds do not see it.
    assert hunted(10, first=5) & {"P2", "L2"}


def test_an_acknowledgement_for_whatever_was_asked_is_noticed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A lost answer is taken for a good one."""

    def acknowledge(self: Any, queue: PartitionQueue, batch: Batch, error: Exception) -> None:
        self._acknowledge(batch, 0)

    monkeypatch.setattr(Sender, "_retry", acknowledge)
    assert hunted() & {"D1", "D2", "P3"}


def test_a_reader_that_leaps_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    keep = CompletedFetch.__init__

    def leap(self: CompletedFetch, fetched: Any) -> None:
        keep(self, fetched)
        if len(fetched.data) and fetched.first_offset % 7 == 3:
            self.next_offset += 1

    monkeypatch.setattr(CompletedFetch, "__init__", leap)
    assert hunted() & {"D5", "D3", "L2"}
