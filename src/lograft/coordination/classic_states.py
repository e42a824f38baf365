"""The states of a classic group and the causes of its transitions.

    Empty ──rebalance──▶ PreparingRebalance ──joined──▶ CompletingRebalance ──assigned──▶ Stable
      ▲                    │      ▲                           │                             │
      └─────emptied────────┘      └─────────rebalance─────────┴─────────────────────────────┘

Each record of the log states the members with their assignments (assigned) or that the group is
empty (emptied); the states between two records exist only in memory. Therefore `assigned` and
`emptied` also lead from Empty and Stable: a new coordinator replays the log this way.
"""

from enum import Enum
from typing import Final


class GroupState(Enum):
    """The values are those of DescribeGroups and ListGroups."""

    EMPTY = "Empty"
    #: Waits until all members have (re)joined, at most for the rebalance timeout.
    PREPARING = "PreparingRebalance"
    #: All members have joined and a leader is chosen; waits for the leader's assignment.
    COMPLETING = "CompletingRebalance"
    STABLE = "Stable"
    DEAD = "Dead"


class Cause(Enum):
    REBALANCE = "rebalance"
    JOINED = "joined"
    ASSIGNED = "assigned"
    EMPTIED = "emptied"
    DELETED = "deleted"


NEXT_STATE: Final[dict[tuple[GroupState, Cause], GroupState]] = {
    (GroupState.EMPTY, Cause.REBALANCE): GroupState.PREPARING,
    (GroupState.COMPLETING, Cause.REBALANCE): GroupState.PREPARING,
    (GroupState.STABLE, Cause.REBALANCE): GroupState.PREPARING,
    (GroupState.PREPARING, Cause.JOINED): GroupState.COMPLETING,
    (GroupState.COMPLETING, Cause.ASSIGNED): GroupState.STABLE,
    (GroupState.STABLE, Cause.ASSIGNED): GroupState.STABLE,
    (GroupState.EMPTY, Cause.ASSIGNED): GroupState.STABLE,
    (GroupState.PREPARING, Cause.EMPTIED): GroupState.EMPTY,
    # All members fenced, or the log replayed.
    (GroupState.COMPLETING, Cause.EMPTIED): GroupState.EMPTY,
    (GroupState.STABLE, Cause.EMPTIED): GroupState.EMPTY,
    (GroupState.EMPTY, Cause.EMPTIED): GroupState.EMPTY,
    # Only an empty group is deleted; one with members only when it becomes another kind of group.
    (GroupState.EMPTY, Cause.DELETED): GroupState.DEAD,
    (GroupState.PREPARING, Cause.DELETED): GroupState.DEAD,
    (GroupState.COMPLETING, Cause.DELETED): GroupState.DEAD,
    (GroupState.STABLE, Cause.DELETED): GroupState.DEAD,
}
