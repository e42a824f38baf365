"""Values exchanged between replicas, their shell and the controller.

A core returns the actions for its shell (`Effects`, `FollowerEffects`), which executes them and
reports their completion. Error codes are values: a rejected fetch is a response, not a failure.
"""

from dataclasses import dataclass
from typing import Final, NamedTuple, Protocol
from uuid import UUID

from lograft.model.errors import ErrorCode
from lograft.model.types import (
    NO_EPOCH,
    NO_NODE,
    NO_OFFSET,
    ZERO_UUID,
    BrokerEpoch,
    Epoch,
    NodeId,
    Offset,
    ReplicationMode,
)

#: The request has no broker epoch (Fetch below version 15).
NO_BROKER_EPOCH: Final = BrokerEpoch(-1)


class EpochEnd(NamedTuple):
    """End of a leader epoch in a log: the offset after its last record."""

    epoch: Epoch
    end_offset: Offset


NO_EPOCH_END: Final = EpochEnd(NO_EPOCH, NO_OFFSET)


class Assignment(NamedTuple):
    """State of a partition in the metadata image."""

    replicas: tuple[NodeId, ...]
    isr: tuple[NodeId, ...]
    leader: NodeId
    leader_epoch: Epoch
    partition_epoch: int
    #: The leader was elected uncleanly and has not reported its recovery yet.
    recovering: bool = False
    mode: ReplicationMode = ReplicationMode.ISR
    #: First epoch, and so the id, of the newest raft life.
    life: Epoch = NO_EPOCH
    #: Log dir of each replica, in the order of `replicas`: part of a voter's identity.
    directories: tuple[UUID, ...] = ()
    #: Replicas of a reassignment in progress.
    adding: tuple[NodeId, ...] = ()
    removing: tuple[NodeId, ...] = ()


NO_ASSIGNMENT: Final = Assignment((), (), NO_NODE, NO_EPOCH, -1)


class Brokers(Protocol):
    """The brokers in this node's metadata image."""

    def registered_epoch(self, node_id: NodeId) -> BrokerEpoch | None:
        """Returns the broker epoch of the newest registration; None if not registered."""

    def can_join_isr(self, node_id: NodeId) -> bool:
        """Whether the broker is neither fenced nor shutting down."""


class InSync(NamedTuple):
    """A member of a proposed ISR, valid only for this registration of the broker (KIP-903)."""

    node_id: NodeId
    broker_epoch: BrokerEpoch


class IsrProposal(NamedTuple):
    """An AlterPartition request for one partition."""

    leader_epoch: Epoch
    partition_epoch: int
    isr: tuple[InSync, ...]
    recovering: bool


class AcceptedIsr(NamedTuple):
    """The controller's response to a proposal that it accepted, or that changed nothing."""

    leader_epoch: Epoch
    partition_epoch: int
    isr: tuple[NodeId, ...]
    recovering: bool


class FollowerFetch(NamedTuple):
    """The parts of a replica's fetch of one partition that replication needs."""

    node_id: NodeId
    broker_epoch: BrokerEpoch
    #: Leader epoch that the follower knows; NO_EPOCH if not in the request.
    leader_epoch: Epoch
    #: The follower's log end offset.
    offset: Offset
    #: Epoch of the last record in the follower's log; NO_EPOCH if the log is empty.
    last_fetched_epoch: Epoch
    log_start_offset: Offset
    #: The follower's raft life; NO_EPOCH if it follows the rules of isr mode.
    life: Epoch = NO_EPOCH
    #: The follower's log dir in the voter set; if not a voter, its actual log dir.
    directory_id: UUID = ZERO_UUID
    #: The actual log dir of a voter whose voter set still has another one (the replica was moved,
    #: including its votes) or none; else ZERO_UUID.
    moved_to: UUID = ZERO_UUID


@dataclass(frozen=True, slots=True)
class Effects:
    """Actions for the shell of a leader."""

    #: The new high watermark: complete the acks=all waits and the reads up to it.
    high_watermark: Offset | None = None
    #: Result of the acks=all waits that the new high watermark completes: NONE or
    #: NOT_ENOUGH_REPLICAS_AFTER_APPEND.
    acks: ErrorCode = ErrorCode.NONE
    #: Proposal for the controller; its response is reported to `on_accepted` or `on_rejected`.
    propose: IsrProposal | None = None
    #: A follower deleted old records: DeleteRecords may be waiting for `low_watermark`.
    log_start_moved: bool = False


NO_EFFECTS: Final = Effects()


class FetchVerdict(NamedTuple):
    """The leader's check of a follower's fetch, before any record is read."""

    #: If not NONE, the response consists of this error.
    error: ErrorCode
    #: The logs diverge at or before this point: the response contains it and no records.
    diverging: EpochEnd | None
    effects: Effects


#: Most fetches change nothing.
ACCEPTED: Final = FetchVerdict(ErrorCode.NONE, None, NO_EFFECTS)


class LeaderResponse(NamedTuple):
    """The parts of a leader's fetch response that replication needs."""

    error: ErrorCode = ErrorCode.NONE
    high_watermark: Offset = NO_OFFSET
    log_start_offset: Offset = NO_OFFSET
    diverging: EpochEnd | None = None
    has_records: bool = False
    #: With an error: the leader that the responding node knows.
    leader: NodeId = NO_NODE
    leader_epoch: Epoch = NO_EPOCH


@dataclass(frozen=True, slots=True)
class FollowerEffects:
    """Actions for the shell of a follower; at most one of the first four is set."""

    #: Append the records of the response, then call `on_appended`.
    append: bool = False
    #: Truncate the log to this offset, then call `on_log_truncated`. It may be the log end already:
    #: an epoch that starts there without a record is to be removed. It may be below the log start:
    #: the log then starts there.
    truncate_to: Offset | None = None
    #: Delete the whole log and start it again at this offset, then call `on_log_truncated`.
    restart_at: Offset | None = None
    #: Request the leader's log start and log end, then call `on_leader_bounds`.
    fetch_bounds: bool = False
    #: Advance the log start to this offset (never above the high watermark).
    advance_log_start: Offset | None = None
    #: The new high watermark.
    high_watermark: Offset | None = None
    #: Number of committed records that the truncation loses, after an unclean election only. Log it
    #: as an error.
    lost_records: int = 0


NO_FOLLOWER_EFFECTS: Final = FollowerEffects()


class ReplicaLog(Protocol):
    """The interface through which the cores read the replica's log; `storage.log.Log` has it."""

    @property
    def log_start_offset(self) -> Offset: ...

    @property
    def end_offset(self) -> Offset: ...

    @property
    def durable_offset(self) -> Offset: ...

    @property
    def latest_epoch(self) -> Epoch: ...

    def epoch_end(self, epoch: int) -> tuple[Epoch, Offset]:
        """Returns the largest known epoch up to `epoch`, and its end; (-1, -1) if none is known."""

    def epoch_for_offset(self, offset: int) -> Epoch:
        """Returns the epoch of the record at this offset."""


class ReplicationSettings(NamedTuple):
    """The settings of topic and broker that replication reads."""

    min_insync_replicas: int = 1
    replica_lag_time_max_ms: int = 30_000
    replica_fetch_backoff_ms: int = 1_000
    #: flush.messages=1: only records on disk count, on the leader and on every follower.
    durable_only: bool = False
    #: unclean.leader.election.enable: committed records may be lost, so followers may truncate
    #: them.
    unclean_elections: bool = False
