"""The ISR as its leader knows it: the one that the controller has committed, and a pending change.

    committed ──propose──▶ pending (expand | shrink | recover)
        ▲                      │ accepted (but not a smaller ISR),
        │                      │ or newer metadata                 → committed (the new ISR)
        ├──────────────────────┤ certainly not applied             → committed (unchanged)
        │                      │ only metadata can tell            → stays pending, not sent again
        └──────────────────────┘ unknown                           → stays pending, retried

A controller may have applied a pending proposal although its response was lost. So a replica that
is being added already counts for the high watermark, and one that is being removed still does:
`maximal` is the union of all ISRs that may be committed (Kafka's maximal ISR).

A smaller ISR applies only once it is in the metadata log. A replica that left the ISR may be
eligible to lead because the log raised `min.insync.replicas` before: this leader must know that
minimum before it commits anything without the replica.
"""

from enum import Enum
from typing import Final, NamedTuple

from lograft.model.errors import ErrorCode
from lograft.model.types import NodeId
from lograft.replication.types import AcceptedIsr, Assignment, IsrProposal


class PendingKind(Enum):
    EXPAND = "expand"
    SHRINK = "shrink"
    #: Only reports that the leader has recovered from an unclean election.
    RECOVER = "recover"


class Pending(NamedTuple):
    kind: PendingKind
    #: Replicas that are added or removed.
    nodes: frozenset[NodeId]
    proposal: IsrProposal


class RejectionAction(Enum):
    #: The controller did not apply the proposal, and our state is current.
    REVERT = "revert"
    #: Our state is outdated, or the partition was deleted: the metadata log will tell.
    AWAIT_METADATA = "await metadata"
    RETRY = "retry"


#: After any other error the proposal may have been applied or not: retry.
REJECTION_ACTIONS: Final = {
    ErrorCode.OPERATION_NOT_ATTEMPTED: RejectionAction.REVERT,
    ErrorCode.INELIGIBLE_REPLICA: RejectionAction.REVERT,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: RejectionAction.AWAIT_METADATA,
    ErrorCode.UNKNOWN_TOPIC_ID: RejectionAction.AWAIT_METADATA,
    ErrorCode.FENCED_LEADER_EPOCH: RejectionAction.AWAIT_METADATA,
    ErrorCode.INVALID_UPDATE_VERSION: RejectionAction.AWAIT_METADATA,
    ErrorCode.INVALID_REQUEST: RejectionAction.AWAIT_METADATA,
    # Applied, and it completed a reassignment that moved the leadership to another replica.
    ErrorCode.NEW_LEADER_ELECTED: RejectionAction.AWAIT_METADATA,
}


class IsrState:
    __slots__ = ("committed", "maximal", "partition_epoch", "pending", "recovering")

    def __init__(self, assignment: Assignment) -> None:
        #: The last ISR from the controller.
        self.committed: frozenset[NodeId] = frozenset(assignment.isr)
        self.partition_epoch = assignment.partition_epoch
        self.recovering = assignment.recovering
        #: At most one proposal at a time.
        self.pending: Pending | None = None
        #: Every replica that may be in the ISR by now; the high watermark waits for all of them.
        self.maximal = self.committed

    def begin(self, pending: Pending) -> None:
        assert self.pending is None, self.pending
        assert pending.proposal.partition_epoch == self.partition_epoch, pending
        self.pending = pending
        if pending.kind is PendingKind.EXPAND:
            self.maximal = self.committed | pending.nodes

    def on_accepted(self, proposal: IsrProposal, accepted: AcceptedIsr) -> bool:
        """Applies the response, and returns whether it was applied. A response to a proposal that
        newer metadata has superseded is not, nor a smaller ISR, which only metadata may bring."""
        if self.pending is None or self.pending.proposal != proposal:
            return False
        if accepted.leader_epoch != proposal.leader_epoch:
            return False
        if accepted.partition_epoch < self.partition_epoch:
            return False
        if not self.committed <= frozenset(accepted.isr):
            return False  # Stays pending until the metadata log contains it.
        self._commit(frozenset(accepted.isr), accepted.partition_epoch, accepted.recovering)
        return True

    def on_rejected(self, proposal: IsrProposal, error: ErrorCode) -> RejectionAction:
        if self.pending is None or self.pending.proposal != proposal:
            return RejectionAction.AWAIT_METADATA
        after = REJECTION_ACTIONS.get(error, RejectionAction.RETRY)
        if after is RejectionAction.REVERT:
            self.pending = None
            self.maximal = self.committed
        return after

    def on_assignment(self, assignment: Assignment) -> None:
        """Newer metadata ends the pending proposal, which was based on an older partition epoch: it
        was either applied by then or never will be."""
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
