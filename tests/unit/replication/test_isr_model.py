"""Random events of a partition: all invariants hold after every step, and every omitted rule is
detected. The counts are small enough for each test run; increase them manually for more."""

from random import Random

import pytest

from tests.unit.replication.isr_mutants import MUTANTS, Mutant
from tests.unit.replication.isr_schedules import new_cluster, run_schedule

SEEDS = 120
STEPS = 400
#: The maximum number of schedules until a mutant is caught.
SEEDS_PER_MUTANT = 300


@pytest.mark.parametrize("block", range(4))
def test_nothing_is_lost(block: int) -> None:
    acked = elections = 0
    for seed in range(block, SEEDS, 4):
        random = Random(seed)
        cluster = new_cluster(random)
        run_schedule(cluster, random, steps=STEPS)
        acked += len(cluster.acked)
        elections += cluster.controller.image.assignment.leader_epoch
    # The schedules reach the intended states.
    assert acked > SEEDS
    assert elections > SEEDS / 4


def test_after_unclean_elections_all_agree_again() -> None:
    unclean = 0
    for seed in range(60):
        random = Random(seed)
        cluster = new_cluster(random, unclean_elections=True)
        cluster.may_lose_power = lambda node: True  # type: ignore[method-assign]
        run_schedule(cluster, random, steps=STEPS)
        unclean += any(image.assignment.recovering for image in cluster.controller.history)
    assert unclean > 0


@pytest.mark.parametrize("mutant", MUTANTS, ids=str)
def test_mutants_are_caught(mutant: Mutant) -> None:
    replica_type = mutant.replica_type()
    for seed in range(SEEDS_PER_MUTANT):
        random = Random(seed)
        cluster = new_cluster(random, replica_type=replica_type, durable_only=mutant.durable_only)
        if mutant.change is not None:
            mutant.change(cluster)
        try:
            run_schedule(cluster, random, steps=STEPS)
        except AssertionError:
            return
    pytest.fail(f"{mutant.name} survived {SEEDS_PER_MUTANT} schedules")
