"""The ISR as its leader knows it: what the controller has committed, and what is asked for.

    committed ──propose──▶ pending (expand | shrink | recover)
        ▲                      │ granted (a smaller ISR: not yet),
        │                      │ or newer metadata                 → committed (as told)
        ├──────────────────────┤ surely not applied                → committed (as before)
        │                      │ outcome settled by metadata only  → stays pending, silent
        └──────────────────────┘ outcome unknown                   → stays pending, asked again

A pending proposal may have been applied by a controller whose answer never came. So a replica
that is being added already counts for the high watermark, and one being removed still does:
`maximal` holds every ISR that may be the committed one.

A smaller ISR counts only once the metadata log says so. Whoever left it may be eligible to lead
by a `min.insync.replicas` that the log raised before: this leader must know that minimum before
it commits anything without them.
"""

from enum import Enum
from typing import Final, NamedTuple

from lograft.model.errors import ErrorCode
from lograft.model.types import NodeId
from lograft.replication.types import Assignment, IsrGranted, IsrProposal


class PendingKind(Enum):
    EXPAND = "expand"
    SHRINK = "shrink"
    #: Only says that the leader has recovered from an unclean election.
    RECOVER = "recover"


class Pending(NamedTuple):
    kind: PendingKind
    #: Who is added or removed.
    nodes: frozenset[NodeId]
    proposal: IsrProposal


class AfterRefusal(Enum):
    #: The controller says that it did not apply the proposal and that our state is current.
    REVERT = "revert"
    #: Our state is old, or the partition is gone: the metadata log will say.
    AWAIT_METADATA = "await metadata"
    RETRY = "retry"


#: What is not here may have been applied or not: retry.
AFTER_REFUSAL: Final = {
    ErrorCode.OPERATION_NOT_ATTEMPTED: AfterRefusal.REVERT,
    ErrorCode.INELIGIBLE_REPLICA: AfterRefusal.REVERT,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: AfterRefusal.AWAIT_METADATA,
    ErrorCode.UNKNOWN_TOPIC_ID: AfterRefusal.AWAIT_METADATA,
    ErrorCode.FENCED_LEADER_EPOCH: AfterRefusal.AWAIT_METADATA,
    ErrorCode.INVALID_UPDATE_VERSION: AfterRefusal.AWAIT_METADATA,
    ErrorCode.INVALID_REQUEST: AfterRefusal.AWAIT_METADATA,
    # Applied, and a reassignment that it completed took the leadership away.
    ErrorCode.NEW_LEADER_ELECTED: AfterRefusal.AWAIT_METADATA,
}


class IsrState:
    __slots__ = ("committed", "maximal", "partition_epoch", "pending", "recovering")

    def __init__(self, assignment: Assignment) -> None:
        #: As the controller last told us.
        self.committed: frozenset[NodeId] = frozenset(assignment.isr)
        self.partition_epoch = assignment.partition_epoch
        self.recovering = assignment.recovering
        #: At most one proposal at a time.
        self.pending: Pending | None = None
        #: Everyone who may be in the ISR by now; the high watermark waits for all of them.
        self.maximal = self.committed

    def begin(self, pending: Pending) -> None:
        assert self.pending is None, self.pending
        assert pending.proposal.partition_epoch == self.partition_epoch, pending
        self.pending = pending
        if pending.kind is PendingKind.EXPAND:
            self.maximal = self.committed | pending.nodes

    def on_granted(self, proposal: IsrProposal, granted: IsrGranted) -> bool:
        """Whether this answer counts. One to a proposal that metadata has overtaken does not, nor
        one that only metadata may bring."""
        if self.pending is None or self.pending.proposal != proposal:
            return False
        if granted.leader_epoch != proposal.leader_epoch:
            return False
        if granted.partition_epoch < self.partition_epoch:
            return False
        if not self.committed <= frozenset(granted.isr):
            return False  # stays pending, silent
        self._commit(frozenset(granted.isr), granted.partition_epoch, granted.recovering)
        return True

    def on_refused(self, proposal: IsrProposal, error: ErrorCode) -> AfterRefusal:
        if self.pending is None or self.pending.proposal != proposal:
            return AfterRefusal.AWAIT_METADATA
        after = AFTER_REFUSAL.get(error, AfterRefusal.RETRY)
        if after is AfterRefusal.REVERT:
            self.pending = None
            self.maximal = self.committed
        return after

    def on_assignment(self, assignment: Assignment) -> None:
        """Newer metadata settles what was pending: a proposal made on an older partition epoch
        was applied in it or never will be."""
        if assignment.partition_epoch > self.partition_epoch:
            self._commit(
                frozenset(assignment.isr), assignment.partition_epoch, assignment.recovering
            )

    def _commit(self, isr: frozenset[NodeId], partition_epoch: int, recovering: bool) -> None:
        self.committed = isr
        self.partition_epoch = partition_epoch
        self.recovering = recovering
        self.pending = None
        self.maximal = isr
