"""The states of a classic group, and what leads from one to the next.

    Empty ──rebalance──▶ PreparingRebalance ──joined──▶ CompletingRebalance ──assigned──▶ Stable
      ▲                    │      ▲                           │                             │
      └─────deserted───────┘      └─────────rebalance─────────┴─────────────────────────────┘

A record of the log says "these members with these assignments" (assigned) or "nobody" (deserted);
what lies between two records lives in memory only. So `assigned` and `deserted` also lead from
Empty and Stable: that is how a new coordinator walks through the log.
"""

from enum import Enum
from typing import Final


class GroupState(Enum):
    """The values are those of DescribeGroups and ListGroups."""

    empty = "Empty"
    #: Waits until all members have (re)joined, or for the rebalance timeout.
    preparing = "PreparingRebalance"
    #: All have joined, a leader is chosen; waits for the assignment that it computes.
    completing = "CompletingRebalance"
    stable = "Stable"
    dead = "Dead"


class Cause(Enum):
    rebalance = "rebalance"
    joined = "joined"
    assigned = "assigned"
    deserted = "deserted"
    deleted = "deleted"


NEXT_STATE: Final[dict[tuple[GroupState, Cause], GroupState]] = {
    (GroupState.empty, Cause.rebalance): GroupState.preparing,
    (GroupState.completing, Cause.rebalance): GroupState.preparing,
    (GroupState.stable, Cause.rebalance): GroupState.preparing,
    (GroupState.preparing, Cause.joined): GroupState.completing,
    (GroupState.completing, Cause.assigned): GroupState.stable,
    (GroupState.stable, Cause.assigned): GroupState.stable,
    (GroupState.empty, Cause.assigned): GroupState.stable,
    (GroupState.preparing, Cause.deserted): GroupState.empty,
    # Fenced as a whole, or loaded.
    (GroupState.completing, Cause.deserted): GroupState.empty,
    (GroupState.stable, Cause.deserted): GroupState.empty,
    (GroupState.empty, Cause.deserted): GroupState.empty,
    # An empty group is deleted; one with members only when it becomes a group of another kind.
    (GroupState.empty, Cause.deleted): GroupState.dead,
    (GroupState.preparing, Cause.deleted): GroupState.dead,
    (GroupState.completing, Cause.deleted): GroupState.dead,
    (GroupState.stable, Cause.deleted): GroupState.dead,
}
