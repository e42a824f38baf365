"""The switch between ISR and Raft with the controller's decisions and the replicas' part."""

import os

import pytest

from lograft.model.errors import LograftError
from tests.unit.replication.mode_cluster import ISR, RAFT, ModeCluster
from tests.unit.replication.mode_mutants import MUTANTS
from tests.unit.replication.mode_schedules import Schedule

FIRST = int(os.environ.get("LOGRAFT_MODE_SEED", "0"))
SCHEDULES = int(os.environ.get("LOGRAFT_MODE_SCHEDULES", "60"))


def test_a_calm_round_trip() -> None:
    cluster = ModeCluster()
    for mode in (RAFT, ISR, RAFT, ISR):
        cluster.produce(cluster.nodes[cluster.controller.state.leader])  # type: ignore[index]
        cluster.controller.set_mode(mode)
        cluster.settle(40)
        cluster.check_settled(mode)


@pytest.mark.parametrize("part", range(4))
def test_nothing_acknowledged_is_lost_whatever_happens(part: int) -> None:
    for seed in range(FIRST + part, FIRST + SCHEDULES, 4):
        schedule = Schedule(ModeCluster(), seed)
        try:
            schedule.run()
        except AssertionError as error:
            error.add_note(f"seed {seed}; the last steps:")
            error.add_note("\n".join(schedule.trace[-60:]))
            raise


@pytest.mark.parametrize("name", ["appointment without a majority", "acting before the catch-up"])
def test_random_schedules_notice_these_mutants(name: str) -> None:
    for seed in range(60):
        try:
            Schedule(MUTANTS[name](), seed).run()
        except (AssertionError, LograftError):
            return
    raise AssertionError(f"nobody notices: {name}")
