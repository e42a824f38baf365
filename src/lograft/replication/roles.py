"""What the shell needs of a replica, whatever keeps it: in-sync replicas or Raft.

    PartitionReplica ── leader: LeaderRole | None      (partitions/partition.py, api/fetch.py)
                     └─ follower: FollowerRole | None  (replicas/follower_partition.py)

`replica.IsrReplica` is one, with `IsrLeader` and `IsrFollower` as its roles. All of them are told
what happened, with the time, and return what to do; the shell tells them when it is done.
"""

from enum import Enum
from typing import Protocol

from lograft.model.errors import ErrorCode
from lograft.model.types import BrokerEpoch, Epoch, NodeId, Offset
from lograft.replication.replica_view import ReplicaStatus
from lograft.replication.types import (
    Assignment,
    Effects,
    EpochEnd,
    FetchVerdict,
    FollowerEffects,
    FollowerFetch,
    IsrGranted,
    IsrProposal,
    LeaderAnswer,
    ReplicationSettings,
)


class RoleChange(Enum):
    #: Older than what is known, or the same: nothing happens.
    STALE = "stale"
    #: The role goes on; its ISR or its replicas changed.
    UPDATED = "updated"
    #: A new leadership: the shell notes (leader epoch, end of the log) as the start of the epoch
    #: in its log and dismisses whoever waited on an older one.
    LEADS = "leads"
    #: The role goes on in another mode, with the same leader, which nobody came before: its object
    #: is another one, and whoever waits goes on waiting.
    CONTINUES = "continues"
    #: A new leader elsewhere: the shell dismisses waits and fetches from it.
    FOLLOWS = "follows"
    #: Nobody leads, or this node is no replica: the shell dismisses waits and rests.
    RESTS = "rests"


class Watermarked(Protocol):
    @property
    def high_watermark(self) -> Offset:
        """Records below it are committed: consumers see them, acks=all answers for them. At most
        the end of the log; never falls while the process lives, but for an unclean election."""


class LeaderRole(Watermarked, Protocol):
    """One leadership: lives for one leader epoch."""

    leader_epoch: Epoch

    # The commit rule, called for every append: each call says whether the high watermark moved.

    def on_appended(self, end: Offset) -> bool:
        """The leader's own log now ends at `end`."""

    def on_durable(self, durable: Offset) -> bool:
        """Everything in the leader's own log below `durable` survives a power loss."""

    # Acknowledgements.

    def check_append(self, *, acks_all: bool) -> ErrorCode:
        """Before the append: what it is refused with, or none."""

    def ack_of(self, end: Offset) -> ErrorCode | None:
        """What acks=all is told about an append that ended at `end`; None: it has to wait."""

    # Reading.

    @property
    def knows_latest(self) -> bool:
        """Whether the high watermark can be told as the latest offset (KIP-207)."""

    def low_watermark(self, log_start: Offset) -> Offset:
        """Everything below is deleted on all replicas that are up; `log_start` is the leader's."""

    def statuses(self, log_start: Offset) -> list[ReplicaStatus]:
        """Every replica, the leader first."""

    # Followers and the controller.

    def on_follower_fetch(
        self, fetch: FollowerFetch, *, log_start: Offset, epoch_end: EpochEnd, now_ms: int
    ) -> FetchVerdict:
        """`epoch_end` is what the leader's log knows about the fetch's last epoch."""

    def on_follower_polls(
        self, node_id: NodeId, *, broker_epoch: BrokerEpoch, now_ms: int
    ) -> Effects:
        """The follower asks for what it asked for last: it is alive, and its end is the same."""

    def on_follower_alive(self, node_id: NodeId, *, now_ms: int) -> None:
        """The follower still follows this leader, but has not said yet whether what it was sent is
        on its disk. Proves life and nothing else."""

    def tick(self, now_ms: int) -> Effects:
        """At least every half replica.lag.time.max.ms."""

    def on_granted(self, proposal: IsrProposal, granted: IsrGranted, *, now_ms: int) -> Effects: ...

    def on_refused(self, proposal: IsrProposal, error: ErrorCode) -> Effects: ...


class FollowerRole(Watermarked, Protocol):
    """One leader followed: lives for one leader epoch."""

    leader: NodeId
    leader_epoch: Epoch

    @property
    def retry_at_ms(self) -> int:
        """When to ask for `next_fetch` again after an error."""

    def next_fetch(self, now_ms: int) -> FollowerFetch | None:
        """What to ask the leader for; None: nothing now."""

    @property
    def waits_for_flush(self) -> bool:
        """The next fetch has to wait until the log is on disk."""

    def on_answer(
        self, fetch: FollowerFetch, answer: LeaderAnswer, *, now_ms: int
    ) -> FollowerEffects:
        """Raises TruncatesCommitted."""

    def on_request_failed(self, fetch: FollowerFetch, *, now_ms: int) -> None: ...

    def on_appended(self) -> FollowerEffects: ...

    def on_append_failed(self, *, now_ms: int) -> None: ...

    def on_leader_bounds(
        self, error: ErrorCode, *, log_start: Offset, end: Offset, now_ms: int
    ) -> FollowerEffects:
        """Raises TruncatesCommitted."""

    def on_log_cut(self) -> FollowerEffects: ...


class PartitionReplica(Protocol):
    """One replica over its life; at most one of its roles is there."""

    @property
    def leader(self) -> LeaderRole | None: ...

    @property
    def follower(self) -> FollowerRole | None: ...

    @property
    def high_watermark(self) -> Offset: ...

    def on_assignment(self, assignment: Assignment, *, now_ms: int) -> tuple[RoleChange, Effects]:
        """The metadata says so; it may be old news. Never while the log is being cut."""

    def on_settings(self, settings: ReplicationSettings) -> Effects: ...

    def on_registered(self, broker_epoch: BrokerEpoch) -> None:
        """This broker's registration: fetches carry it from now on."""
