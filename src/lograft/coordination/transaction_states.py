"""The states of a transactional id and the legal transitions.

                       AddPartitions                 EndTxn                    markers written
    Empty ──────────────────────────> Ongoing ──┬──────────────> PrepareCommit ──> CompleteCommit
      ^                                  ^      └─ or timeout,                            │
      │ InitProducerId                   │         or fenced ──> PrepareAbort ───> CompleteAbort
      └──────────────────────────────────┴────────── AddPartitions ───────────────────────┘

Protocol v2 may also abort a transaction without partitions (Empty, Complete* → PrepareAbort), to
give the producer the next epoch.
"""

from collections.abc import Mapping
from enum import IntEnum
from typing import Final


class TransactionState(IntEnum):
    """The numbers are those of the records."""

    EMPTY = 0
    ONGOING = 1
    PREPARE_COMMIT = 2
    PREPARE_ABORT = 3
    COMPLETE_COMMIT = 4
    COMPLETE_ABORT = 5
    #: Being removed. Lograft does that in one step, with a tombstone, so it never uses this state.
    DEAD = 6
    #: Kafka's state for an abort that fences its producer, until the raised epoch is written.
    #: Lograft does that in one step, too: the PrepareAbort record has the new epoch.
    PREPARE_EPOCH_FENCE = 7

    @property
    def text(self) -> str:
        """The name that Kafka's admin client displays."""
        return self.name.title().replace("_", "")


EMPTY = TransactionState.EMPTY
ONGOING = TransactionState.ONGOING
PREPARE_COMMIT = TransactionState.PREPARE_COMMIT
PREPARE_ABORT = TransactionState.PREPARE_ABORT
COMPLETE_COMMIT = TransactionState.COMPLETE_COMMIT
COMPLETE_ABORT = TransactionState.COMPLETE_ABORT

#: State -> legal next states. Any other transition is a bug of the coordinator.
FOLLOWERS: Final[Mapping[TransactionState, tuple[TransactionState, ...]]] = {
    EMPTY: (EMPTY, ONGOING, PREPARE_ABORT),
    ONGOING: (ONGOING, PREPARE_COMMIT, PREPARE_ABORT),
    PREPARE_COMMIT: (COMPLETE_COMMIT,),
    PREPARE_ABORT: (COMPLETE_ABORT,),
    COMPLETE_COMMIT: (EMPTY, ONGOING, PREPARE_ABORT),
    COMPLETE_ABORT: (EMPTY, ONGOING, PREPARE_ABORT),
}
#: Decided states, in which some partitions may lack their marker, and the state that follows when
#: all have it. No request changes such a transaction; clients receive CONCURRENT_TRANSACTIONS.
PENDING: Final[Mapping[TransactionState, TransactionState]] = {
    PREPARE_COMMIT: COMPLETE_COMMIT,
    PREPARE_ABORT: COMPLETE_ABORT,
}
#: A transactional id may be removed in these states.
CAN_EXPIRE: Final = (EMPTY, COMPLETE_COMMIT, COMPLETE_ABORT)
#: By number.
STATES: Final = {state.value: state for state in TransactionState}
BY_NAME: Final = {state.text: state for state in TransactionState}
