"""Schedules that show the consequence of a missing safeguard. Random schedules rarely reach it,
because they detect the missing safeguard itself first. The actual core passes each of them."""

import pytest

from campaigns.raft_checks import RaftViolation
from campaigns.raft_mutants import OldEpochCommitted, VoteNotPersisted
from lograft.consensus.core import RaftCore
from tests.unit.consensus.raft_scenario import ClusterScenario

TWO_CANDIDATES = """
cluster voters=1,2,3
chance 1 0
chance 3 0
boot 1 2 3
wait 10
drop 1>3
drop 3>1
deliver 1>2
deliver 3>2
deliver 2>1
deliver 2>3
persist 1
persist 3
drop 1>3
drop 3>1
deliver 1>2
persist 2
crash 2
boot 2
deliver 3>2
work
"""

FIGURE_8 = """
cluster voters=1,2,3
disk 1 epoch=3 log=1,2,2,2,2
disk 2 epoch=3 log=1
disk 3 epoch=3 leader=3 log=1,3
chance 1 0
chance 3 0
boot 1 2
flush 1 2
wait 10
deliver 1>2
deliver 2>1
persist 1
deliver 1>2
persist 2
deliver 2>1
persist 1
deliver 1>2
persist 2
deliver 2>1
deliver 1>2
flush 2
deliver 2>1
drop
crash 1
boot 3
run 8000
"""


def play(schedule: str, core_type: type[RaftCore]) -> ClusterScenario:
    scenario = ClusterScenario(core_type, outcomes_only=True)
    for command in schedule.strip().split("\n"):
        scenario.execute(command)
    return scenario


@pytest.mark.parametrize(
    ("schedule", "mutant", "invariant"),
    [
        (TWO_CANDIDATES, VoteNotPersisted, "M1 SingleLeader"),
        (FIGURE_8, OldEpochCommitted, "M3 leader completeness"),
    ],
    ids=["a forgotten vote makes two leaders", "figure 8 undoes what was committed"],
)
def test_what_a_missing_safeguard_costs(
    schedule: str, mutant: type[RaftCore], invariant: str
) -> None:
    with pytest.raises(RaftViolation, match=invariant):
        play(schedule, mutant)
    scenario = play(schedule, RaftCore)
    assert any(node.core is not None and node.core.is_leader for node in scenario.nodes.values())
