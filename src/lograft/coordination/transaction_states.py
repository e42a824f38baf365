"""The states of a transactional id, and which one may follow which.

                       AddPartitions                 EndTxn                    markers written
    Empty ──────────────────────────> Ongoing ──┬──────────────> PrepareCommit ──> CompleteCommit
      ^                                  ^      └─ or timeout,                            │
      │ InitProducerId                   │         or fenced ──> PrepareAbort ───> CompleteAbort
      └──────────────────────────────────┴────────── AddPartitions ───────────────────────┘

Protocol v2 may also abort a transaction that wrote nothing (Empty, Complete* → PrepareAbort): the
producer wants the epoch after it.
"""

from collections.abc import Mapping
from enum import IntEnum
from typing import Final


class TransactionState(IntEnum):
    """The numbers are those of the log."""

    EMPTY = 0
    ONGOING = 1
    PREPARE_COMMIT = 2
    PREPARE_ABORT = 3
    COMPLETE_COMMIT = 4
    COMPLETE_ABORT = 5
    #: Being forgotten. Here that is one step, a tombstone, so nothing ever is in it.
    DEAD = 6
    #: Kafka's name for an abort that shuts its producer out, until the bumped epoch is written.
    #: Here that is one step too: the PrepareAbort has the new epoch.
    PREPARE_EPOCH_FENCE = 7

    @property
    def text(self) -> str:
        """The name that Kafka's admin client shows."""
        return self.name.title().replace("_", "")


EMPTY = TransactionState.EMPTY
ONGOING = TransactionState.ONGOING
PREPARE_COMMIT = TransactionState.PREPARE_COMMIT
PREPARE_ABORT = TransactionState.PREPARE_ABORT
COMPLETE_COMMIT = TransactionState.COMPLETE_COMMIT
COMPLETE_ABORT = TransactionState.COMPLETE_ABORT

#: State -> what may follow. A missing pair is a bug of the coordinator.
FOLLOWERS: Final[Mapping[TransactionState, tuple[TransactionState, ...]]] = {
    EMPTY: (EMPTY, ONGOING, PREPARE_ABORT),
    ONGOING: (ONGOING, PREPARE_COMMIT, PREPARE_ABORT),
    PREPARE_COMMIT: (COMPLETE_COMMIT,),
    PREPARE_ABORT: (COMPLETE_ABORT,),
    COMPLETE_COMMIT: (EMPTY, ONGOING, PREPARE_ABORT),
    COMPLETE_ABORT: (EMPTY, ONGOING, PREPARE_ABORT),
}
#: Decided, and some partitions may not know yet: where it goes when all of them do. Nothing but
#: that changes such a transaction; who asks is told to come again (CONCURRENT_TRANSACTIONS).
PENDING: Final[Mapping[TransactionState, TransactionState]] = {
    PREPARE_COMMIT: COMPLETE_COMMIT,
    PREPARE_ABORT: COMPLETE_ABORT,
}
#: A transactional id may be forgotten in these.
CAN_EXPIRE: Final = (EMPTY, COMPLETE_COMMIT, COMPLETE_ABORT)
#: By number.
STATES: Final = {state.value: state for state in TransactionState}
BY_NAME: Final = {state.text: state for state in TransactionState}
