"""The values that replicas, their shell and the controller exchange.

What a core wants done it returns (`Effects`, `FollowerEffects`); the shell does it and tells the
core when it is done. Error codes travel as values: a refused fetch is an answer, not a failure.
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

#: A broker that does not say its epoch (Fetch below version 15).
NO_BROKER_EPOCH: Final = BrokerEpoch(-1)


class EpochEnd(NamedTuple):
    """Where a leader epoch ends in someone's log: the offset after its last record."""

    epoch: Epoch
    end_offset: Offset


NO_EPOCH_END: Final = EpochEnd(NO_EPOCH, NO_OFFSET)


class Assignment(NamedTuple):
    """One partition as the metadata image says it is."""

    replicas: tuple[NodeId, ...]
    isr: tuple[NodeId, ...]
    leader: NodeId
    leader_epoch: Epoch
    partition_epoch: int
    #: The leader was elected uncleanly and has not said yet that it has recovered.
    recovering: bool = False
    mode: ReplicationMode = ReplicationMode.ISR
    #: The epoch that names the newest raft life.
    life: Epoch = NO_EPOCH
    #: Where each replica lies, in the order of `replicas`; a voter is a node with a certain disk.
    directories: tuple[UUID, ...] = ()
    #: A reassignment under way.
    adding: tuple[NodeId, ...] = ()
    removing: tuple[NodeId, ...] = ()


NO_ASSIGNMENT: Final = Assignment((), (), NO_NODE, NO_EPOCH, -1)


class Brokers(Protocol):
    """What this node's metadata image knows about the brokers of the cluster."""

    def registered_epoch(self, node_id: NodeId) -> BrokerEpoch | None:
        """The broker's newest registration; None if it has none."""

    def may_join_isr(self, node_id: NodeId) -> bool:
        """Neither fenced nor shutting down."""


class InSync(NamedTuple):
    """A member of a proposed ISR: this registration of the broker and no later one (KIP-903)."""

    node_id: NodeId
    broker_epoch: BrokerEpoch


class IsrProposal(NamedTuple):
    """An AlterPartition request for one partition."""

    leader_epoch: Epoch
    partition_epoch: int
    isr: tuple[InSync, ...]
    recovering: bool


class IsrGranted(NamedTuple):
    """The controller's answer to a proposal that it took, or that changed nothing."""

    leader_epoch: Epoch
    partition_epoch: int
    isr: tuple[NodeId, ...]
    recovering: bool


class FollowerFetch(NamedTuple):
    """A fetch of one partition by a replica, as far as replication cares."""

    node_id: NodeId
    broker_epoch: BrokerEpoch
    #: Of the leader that the follower believes in; NO_EPOCH: it does not say.
    leader_epoch: Epoch
    #: Where the follower's log ends: it holds everything below.
    offset: Offset
    #: Epoch of the record below `offset` in the follower's log; NO_EPOCH: its log is empty.
    last_fetched_epoch: Epoch
    log_start_offset: Offset
    #: The raft life that the follower lives; NO_EPOCH: it follows ISR's rules.
    life: Epoch = NO_EPOCH
    #: The log dir under which the voters know the follower, or the one it lies in.
    directory_id: UUID = ZERO_UUID
    #: The log dir that a voter lies in, where the voters in its log know it by another one (it was
    #: moved, its votes included) or by none; else ZERO_UUID.
    moved_to: UUID = ZERO_UUID


@dataclass(frozen=True, slots=True)
class Effects:
    """What a leader's shell has to do."""

    #: Where the high watermark moved to: release the acks=all waits and the reads up to it.
    high_watermark: Offset | None = None
    #: What the waits released by this move are answered with: none, or
    #: not_enough_replicas_after_append.
    acks: ErrorCode = ErrorCode.NONE
    #: To be sent to the controller; its answer belongs to `on_granted` or `on_refused`.
    propose: IsrProposal | None = None
    #: A follower deleted old records: DeleteRecords may be waiting for `low_watermark`.
    log_start_moved: bool = False


NO_EFFECTS: Final = Effects()


class FetchVerdict(NamedTuple):
    """What the leader says to a follower's fetch, before any record is read."""

    #: Anything but none: this is the answer.
    error: ErrorCode
    #: The logs part at or before this point: the answer carries it and no records.
    diverging: EpochEnd | None
    effects: Effects


#: Most fetches change nothing.
ACCEPTED: Final = FetchVerdict(ErrorCode.NONE, None, NO_EFFECTS)


class LeaderAnswer(NamedTuple):
    """A leader's answer to a fetch, as far as replication cares."""

    error: ErrorCode = ErrorCode.NONE
    high_watermark: Offset = NO_OFFSET
    log_start_offset: Offset = NO_OFFSET
    diverging: EpochEnd | None = None
    has_records: bool = False
    #: With an error: who leads, as far as the other side knows.
    leader: NodeId = NO_NODE
    leader_epoch: Epoch = NO_EPOCH


@dataclass(frozen=True, slots=True)
class FollowerEffects:
    """What a follower's shell has to do; at most one of the first four is set."""

    #: Append the answer's records, then call `on_appended`.
    append: bool = False
    #: Cut the log here, then call `on_log_cut`. Also when it is the end already: an epoch that
    #: begins there without a record is to be forgotten. Below the log's start: it begins there.
    truncate_to: Offset | None = None
    #: Drop the whole log and begin it anew here, then call `on_log_cut`.
    restart_at: Offset | None = None
    #: Ask the leader where its log begins and ends, then call `on_leader_bounds`.
    ask_bounds: bool = False
    #: Move the log's start here (never above the high watermark).
    advance_log_start: Offset | None = None
    #: Where the high watermark moved to.
    high_watermark: Offset | None = None
    #: Committed records that the cut loses: only after an unclean election. Say so loudly.
    lost_records: int = 0


NO_FOLLOWER_EFFECTS: Final = FollowerEffects()


class ReplicaLog(Protocol):
    """What the cores read of a replica's own log; `storage.log.Log` is one."""

    @property
    def log_start_offset(self) -> Offset: ...

    @property
    def end_offset(self) -> Offset: ...

    @property
    def durable_offset(self) -> Offset: ...

    @property
    def latest_epoch(self) -> Epoch: ...

    def epoch_end(self, epoch: int) -> tuple[Epoch, Offset]:
        """The largest epoch known up to `epoch`, and where it ends; (-1, -1): none is known."""

    def epoch_for_offset(self, offset: int) -> Epoch:
        """The epoch of the record at this offset."""


class ReplicationSettings(NamedTuple):
    """The settings of topic and broker that replication reads."""

    min_insync_replicas: int = 1
    replica_lag_time_max_ms: int = 30_000
    replica_fetch_backoff_ms: int = 1_000
    #: flush.messages=1: only what is on disk counts, on the leader and on every follower.
    durable_only: bool = False
    #: unclean.leader.election.enable: committed records may be lost, so followers may cut them.
    unclean_elections: bool = False
