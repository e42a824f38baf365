"""The life cycle of a partition on this broker: its states and legal transitions.

                      ┌───────── truncation begun ──────────▶ TRUNCATING ◀── move ended ──┐
    OPENING ─opened─▶ ONLINE ◀───── truncation ended ─────────┘                           │
                      ▲  └── move begun ─▶ MOVING ─ truncation begun ─▶ MOVING_BEFORE_CUT ┤
                      └───── move ended ─────┘ ◀────────── truncation ended ──────────────┘

    each of them ── failed ──▶ OFFLINE          each of them, and OFFLINE ── deleted ──▶ DELETED

The state defines access to the log. The role of the replica (leader, follower or neither) is
independent of it: a leader stays leader while its log moves.
"""

from enum import Enum
from typing import Final


class IllegalTransition(AssertionError):
    """The life cycle has no such transition: a bug."""


class PartitionState(Enum):
    #: A worker is opening the log, or will.
    OPENING = "opening"
    ONLINE = "online"
    #: A worker is truncating the log with exclusive access, or will.
    TRUNCATING = "truncating"
    #: The log is being moved to another log dir: leaders read but do not append.
    MOVING = "moving"
    #: The log is to be truncated, once its move has ended. (The name is a label of a metric.)
    MOVING_BEFORE_CUT = "moving before a cut"
    #: Its log dir failed, or its log could not be opened; final until a restart.
    OFFLINE = "offline"
    #: Its topic was deleted, or this broker is no longer a replica.
    DELETED = "deleted"


class Cause(Enum):
    OPENED = "opened"
    TRUNCATION_BEGUN = "truncation begun"
    TRUNCATION_ENDED = "truncation ended"
    MOVE_BEGUN = "move begun"
    MOVE_ENDED = "move ended"
    FAILED = "failed"
    DELETED = "deleted"


NEXT_STATE: Final[dict[tuple[PartitionState, Cause], PartitionState]] = {
    (PartitionState.OPENING, Cause.OPENED): PartitionState.ONLINE,
    (PartitionState.OPENING, Cause.FAILED): PartitionState.OFFLINE,
    (PartitionState.OPENING, Cause.DELETED): PartitionState.DELETED,
    (PartitionState.ONLINE, Cause.TRUNCATION_BEGUN): PartitionState.TRUNCATING,
    # Both the follower and the log manager end a truncation; one that removes nothing has no
    # worker.
    (PartitionState.ONLINE, Cause.TRUNCATION_ENDED): PartitionState.ONLINE,
    (PartitionState.ONLINE, Cause.MOVE_BEGUN): PartitionState.MOVING,
    (PartitionState.ONLINE, Cause.FAILED): PartitionState.OFFLINE,
    (PartitionState.ONLINE, Cause.DELETED): PartitionState.DELETED,
    # The follower requests the truncation, and the log manager starts it: both report the start.
    (PartitionState.TRUNCATING, Cause.TRUNCATION_BEGUN): PartitionState.TRUNCATING,
    (PartitionState.TRUNCATING, Cause.TRUNCATION_ENDED): PartitionState.ONLINE,
    (PartitionState.TRUNCATING, Cause.FAILED): PartitionState.OFFLINE,
    (PartitionState.TRUNCATING, Cause.DELETED): PartitionState.DELETED,
    (PartitionState.MOVING, Cause.TRUNCATION_BEGUN): PartitionState.MOVING_BEFORE_CUT,
    (PartitionState.MOVING, Cause.MOVE_ENDED): PartitionState.ONLINE,
    (PartitionState.MOVING, Cause.FAILED): PartitionState.OFFLINE,
    (PartitionState.MOVING, Cause.DELETED): PartitionState.DELETED,
    (PartitionState.MOVING_BEFORE_CUT, Cause.TRUNCATION_ENDED): PartitionState.MOVING,
    (PartitionState.MOVING_BEFORE_CUT, Cause.MOVE_ENDED): PartitionState.TRUNCATING,
    (PartitionState.MOVING_BEFORE_CUT, Cause.FAILED): PartitionState.OFFLINE,
    (PartitionState.MOVING_BEFORE_CUT, Cause.DELETED): PartitionState.DELETED,
    # Work that was in progress when the log dir failed or the topic was deleted is completed.
    (PartitionState.OFFLINE, Cause.TRUNCATION_BEGUN): PartitionState.OFFLINE,
    (PartitionState.OFFLINE, Cause.TRUNCATION_ENDED): PartitionState.OFFLINE,
    (PartitionState.OFFLINE, Cause.MOVE_ENDED): PartitionState.OFFLINE,
    # The log could not be opened, and later its log dir failed, too.
    (PartitionState.OFFLINE, Cause.FAILED): PartitionState.OFFLINE,
    (PartitionState.OFFLINE, Cause.DELETED): PartitionState.DELETED,
    (PartitionState.DELETED, Cause.TRUNCATION_BEGUN): PartitionState.DELETED,
    (PartitionState.DELETED, Cause.TRUNCATION_ENDED): PartitionState.DELETED,
    (PartitionState.DELETED, Cause.MOVE_ENDED): PartitionState.DELETED,
    (PartitionState.DELETED, Cause.FAILED): PartitionState.DELETED,
}

#: A worker uses the log alone: `Partition.kept_offsets` is set.
HELD: Final = frozenset(
    {PartitionState.TRUNCATING, PartitionState.MOVING, PartitionState.MOVING_BEFORE_CUT}
)


def next_state(state: PartitionState, cause: Cause) -> PartitionState:
    try:
        return NEXT_STATE[state, cause]
    except KeyError:
        raise IllegalTransition(f"{cause.value} is not allowed when {state.value}") from None
