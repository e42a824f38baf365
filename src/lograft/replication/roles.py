"""The interfaces of a replica and of its roles, common to isr mode and raft mode.

    PartitionReplica ── leader: LeaderRole | None      (partitions/partition.py, api/fetch.py)
                     └─ follower: FollowerRole | None  (replicas/follower_partition.py)

`replica.IsrReplica` implements them with `IsrLeader` and `IsrFollower`. All of them receive events
with the time and return effects; the shell executes the effects and reports when they are done.
"""

from enum import Enum
from typing import Protocol

from lograft.model.errors import ErrorCode
from lograft.model.types import BrokerEpoch, Epoch, NodeId, Offset
from lograft.replication.replica_view import ReplicaStatus
from lograft.replication.types import (
    AcceptedIsr,
    Assignment,
    Effects,
    EpochEnd,
    FetchVerdict,
    FollowerEffects,
    FollowerFetch,
    IsrProposal,
    LeaderResponse,
    ReplicationSettings,
)


class RoleChange(Enum):
    #: The assignment is the known one or older: nothing changes.
    STALE = "stale"
    #: The role stays; its ISR or its replicas changed.
    UPDATED = "updated"
    #: A new leadership: the shell adds (leader epoch, log end offset) to the epoch cache of the log
    #: and fails the waits of the old one.
    LEADER = "leader"
    #: The role continues in another mode with the same leader, and there was no other in between:
    #: the role object is replaced, and waits continue.
    CONTINUES = "continues"
    #: Another node became leader: the shell fails waits and fetches from it.
    FOLLOWER = "follower"
    #: No leader, or this node is not a replica: the shell fails waits.
    NONE = "none"


class Watermarked(Protocol):
    @property
    def high_watermark(self) -> Offset:
        """Records below it are committed: consumers can read them, and acks=all confirms them. At
        most the log end; never decreases while the process runs, except after an unclean election
        that loses records."""


class LeaderRole(Watermarked, Protocol):
    """The leader of one leader epoch."""

    leader_epoch: Epoch

    # The commit rule, called for every append: returns whether the high watermark advanced.

    def on_appended(self, end: Offset) -> bool:
        """The leader's log now ends at `end`."""

    def on_durable(self, durable: Offset) -> bool:
        """Everything below `durable` in the leader's log is on disk."""

    # Acknowledgements.

    def check_append(self, *, acks_all: bool) -> ErrorCode:
        """Returns the error with which an append must be rejected, or NONE."""

    def ack_of(self, end: Offset) -> ErrorCode | None:
        """Returns the result of an acks=all append that ended at `end`; None if it must wait."""

    # Reading.

    @property
    def can_report_latest(self) -> bool:
        """Whether the high watermark can be reported as the latest offset (KIP-207)."""

    def low_watermark(self, log_start: Offset) -> Offset:
        """Returns the offset below which all live replicas have deleted their records; `log_start`
        is the leader's."""

    def statuses(self, log_start: Offset) -> list[ReplicaStatus]:
        """Returns the status of every replica, the leader first."""

    # Followers and the controller.

    def on_follower_fetch(
        self, fetch: FollowerFetch, *, log_start: Offset, epoch_end: EpochEnd, now_ms: int
    ) -> FetchVerdict:
        """Checks a fetch. `epoch_end` is the end of the fetch's last epoch in the leader's log."""

    def on_follower_poll(
        self, node_id: NodeId, *, broker_epoch: BrokerEpoch, now_ms: int
    ) -> Effects:
        """The follower polls with an unchanged position: it is alive, and its log end is the
        same."""

    def on_follower_alive(self, node_id: NodeId, *, now_ms: int) -> None:
        """The follower still follows this leader, but has not reported yet whether the last records
        are on its disk: only a sign of life."""

    def tick(self, now_ms: int) -> Effects:
        """Called at least every half replica.lag.time.max.ms."""

    def on_accepted(
        self, proposal: IsrProposal, accepted: AcceptedIsr, *, now_ms: int
    ) -> Effects: ...

    def on_rejected(self, proposal: IsrProposal, error: ErrorCode) -> Effects: ...


class FollowerRole(Watermarked, Protocol):
    """The follower of one leader in one leader epoch."""

    leader: NodeId
    leader_epoch: Epoch

    @property
    def retry_at_ms(self) -> int:
        """When to call `next_fetch` again after an error."""

    def next_fetch(self, now_ms: int) -> FollowerFetch | None:
        """Returns the next fetch to send to the leader; None if none is due."""

    @property
    def waits_for_flush(self) -> bool:
        """Whether the next fetch must wait until the log is on disk."""

    def on_response(
        self, fetch: FollowerFetch, response: LeaderResponse, *, now_ms: int
    ) -> FollowerEffects:
        """Raises TruncatesCommitted."""

    def on_request_failed(self, fetch: FollowerFetch, *, now_ms: int) -> None: ...

    def on_appended(self) -> FollowerEffects: ...

    def on_append_failed(self, *, now_ms: int) -> None: ...

    def on_leader_bounds(
        self, error: ErrorCode, *, log_start: Offset, end: Offset, now_ms: int
    ) -> FollowerEffects:
        """Raises TruncatesCommitted."""

    def on_log_truncated(self) -> FollowerEffects: ...


class PartitionReplica(Protocol):
    """A replica of a partition, with at most one of the two roles."""

    @property
    def leader(self) -> LeaderRole | None: ...

    @property
    def follower(self) -> FollowerRole | None: ...

    @property
    def high_watermark(self) -> Offset: ...

    def on_assignment(self, assignment: Assignment, *, now_ms: int) -> tuple[RoleChange, Effects]:
        """Applies an assignment from the metadata, which may be stale. Not called while the log is
        being truncated."""

    def on_settings(self, settings: ReplicationSettings) -> Effects: ...

    def on_registered(self, broker_epoch: BrokerEpoch) -> None:
        """Sets the broker epoch of this node's registration, which fetches carry from now on."""
