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
    """The numbers are those of the log, the names those of the admin client."""

    Empty = 0
    Ongoing = 1
    PrepareCommit = 2
    PrepareAbort = 3
    CompleteCommit = 4
    CompleteAbort = 5
    #: Being forgotten. Here that is one step, a tombstone, so nothing ever is in it.
    Dead = 6
    #: Kafka's name for an abort that shuts its producer out, until the bumped epoch is written.
    #: Here that is one step too: the PrepareAbort has the new epoch.
    PrepareEpochFence = 7


Empty = TransactionState.Empty
Ongoing = TransactionState.Ongoing
PrepareCommit = TransactionState.PrepareCommit
PrepareAbort = TransactionState.PrepareAbort
CompleteCommit = TransactionState.CompleteCommit
CompleteAbort = TransactionState.CompleteAbort

#: State -> what may follow. A missing pair is a bug of the coordinator.
FOLLOWERS: Final[Mapping[TransactionState, tuple[TransactionState, ...]]] = {
    Empty: (Empty, Ongoing, PrepareAbort),
    Ongoing: (Ongoing, PrepareCommit, PrepareAbort),
    PrepareCommit: (CompleteCommit,),
    PrepareAbort: (CompleteAbort,),
    CompleteCommit: (Empty, Ongoing, PrepareAbort),
    CompleteAbort: (Empty, Ongoing, PrepareAbort),
}
#: Decided, and some partitions may not know yet: where it goes when all of them do. Nothing but
#: that changes such a transaction; who asks is told to come again (CONCURRENT_TRANSACTIONS).
PENDING: Final[Mapping[TransactionState, TransactionState]] = {
    PrepareCommit: CompleteCommit,
    PrepareAbort: CompleteAbort,
}
#: A transactional id may be forgotten in these.
CAN_EXPIRE: Final = (Empty, CompleteCommit, CompleteAbort)
#: By number.
STATES: Final = {state.value: state for state in TransactionState}
BY_NAME: Final = {state.name: state for state in TransactionState}
