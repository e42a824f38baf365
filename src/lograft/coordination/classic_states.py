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

    EMPTY = "Empty"
    #: Waits until all members have (re)joined, or for the rebalance timeout.
    PREPARING = "PreparingRebalance"
    #: All have joined, a leader is chosen; waits for the assignment that it computes.
    COMPLETING = "CompletingRebalance"
    STABLE = "Stable"
    DEAD = "Dead"


class Cause(Enum):
    REBALANCE = "rebalance"
    JOINED = "joined"
    ASSIGNED = "assigned"
    DESERTED = "deserted"
    DELETED = "deleted"


NEXT_STATE: Final[dict[tuple[GroupState, Cause], GroupState]] = {
    (GroupState.EMPTY, Cause.REBALANCE): GroupState.PREPARING,
    (GroupState.COMPLETING, Cause.REBALANCE): GroupState.PREPARING,
    (GroupState.STABLE, Cause.REBALANCE): GroupState.PREPARING,
    (GroupState.PREPARING, Cause.JOINED): GroupState.COMPLETING,
    (GroupState.COMPLETING, Cause.ASSIGNED): GroupState.STABLE,
    (GroupState.STABLE, Cause.ASSIGNED): GroupState.STABLE,
    (GroupState.EMPTY, Cause.ASSIGNED): GroupState.STABLE,
    (GroupState.PREPARING, Cause.DESERTED): GroupState.EMPTY,
    # Fenced as a whole, or loaded.
    (GroupState.COMPLETING, Cause.DESERTED): GroupState.EMPTY,
    (GroupState.STABLE, Cause.DESERTED): GroupState.EMPTY,
    (GroupState.EMPTY, Cause.DESERTED): GroupState.EMPTY,
    # An empty group is deleted; one with members only when it becomes a group of another kind.
    (GroupState.EMPTY, Cause.DELETED): GroupState.DEAD,
    (GroupState.PREPARING, Cause.DELETED): GroupState.DEAD,
    (GroupState.COMPLETING, Cause.DELETED): GroupState.DEAD,
    (GroupState.STABLE, Cause.DELETED): GroupState.DEAD,
}
