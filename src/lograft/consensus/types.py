"""Values that the core receives and returns."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Final, NamedTuple
from uuid import UUID

from lograft.model.types import NO_EPOCH, NO_NODE, ZERO_UUID, Epoch, NodeId, Offset

if TYPE_CHECKING:
    from lograft.consensus.messages import Message

#: Source of random numbers: returns an integer from 0 up to, but not including, the bound.
Chance = Callable[[int], int]


class ReplicaKey(NamedTuple):
    """Identity of a voter: a node and its log directory. A node with a replaced disk is another
    voter."""

    node_id: NodeId
    #: ZERO_UUID if unknown (a static quorum, kraft.version 0).
    directory_id: UUID = ZERO_UUID

    def matches(self, other: "ReplicaKey") -> bool:
        """Whether this key identifies the other replica; without a directory id, by node id
        alone."""
        return self.node_id == other.node_id and self.directory_id in (
            ZERO_UUID,
            other.directory_id,
        )


#: Candidate that a replica votes for when the controller ends its life (`RaftCore.leave_life`).
CONTROLLER: Final = ReplicaKey(NodeId(-2))


class VoterEndpoint(NamedTuple):
    name: str
    host: str
    port: int


class Voter(NamedTuple):
    key: ReplicaKey
    endpoints: tuple[VoterEndpoint, ...] = ()
    #: Range of kraft.version that the voter supports.
    kraft_version_min: int = 0
    kraft_version_max: int = 1


@dataclass(frozen=True, slots=True)
class VoterSet:
    voters: tuple[Voter, ...]
    #: The voters come from the configuration (kraft.version 0). Sets in the log are not static, so
    #: appending or truncating the first of them also changes kraft.version.
    is_static: bool = False

    @staticmethod
    def of(keys: Iterable[ReplicaKey], *, is_static: bool = False) -> "VoterSet":
        return VoterSet(tuple(Voter(key) for key in keys), is_static)

    @property
    def majority(self) -> int:
        return len(self.voters) // 2 + 1

    @property
    def node_ids(self) -> tuple[NodeId, ...]:
        return tuple(voter.key.node_id for voter in self.voters)

    def has(self, key: ReplicaKey) -> bool:
        return any(voter.key.matches(key) for voter in self.voters)

    def find(self, node_id: NodeId) -> Voter | None:
        return next((voter for voter in self.voters if voter.key.node_id == node_id), None)

    def is_only(self, key: ReplicaKey) -> bool:
        return len(self.voters) == 1 and self.has(key)

    def others(self, me: ReplicaKey) -> tuple[Voter, ...]:
        return tuple(voter for voter in self.voters if voter.key.node_id != me.node_id)

    def with_voter(self, voter: Voter) -> "VoterSet":
        return VoterSet((*self.voters, voter))

    def without(self, node_id: NodeId) -> "VoterSet":
        return VoterSet(tuple(voter for voter in self.voters if voter.key.node_id != node_id))

    def replace_voter(self, voter: Voter) -> "VoterSet":
        return VoterSet(
            tuple(voter if old.key.node_id == voter.key.node_id else old for old in self.voters)
        )


class LogEnd(NamedTuple):
    """Epoch of the last record, and end offset. Of two logs, the one with the greater LogEnd
    contains every committed record of the other."""

    epoch: Epoch
    offset: Offset


class SnapshotId(NamedTuple):
    """A snapshot replaces all records below `end_offset`; `epoch` is that of the last of them."""

    end_offset: Offset
    epoch: Epoch


@dataclass(frozen=True, slots=True)
class LogSlice:
    """Description of consecutive batches, which the driver builds from their headers.

    The batches themselves are `data`, which the core passes on unread.
    """

    base: Offset
    end: Offset
    #: Start offset of each epoch in the slice, ascending; the first is `base`.
    epochs: tuple[tuple[Epoch, Offset], ...]
    #: Voter sets in the slice (VotersRecord), each with the offset of its record.
    voters: tuple[tuple[Offset, VoterSet], ...] = ()
    data: object = None

    def follows(self, log_end: LogEnd) -> bool:
        """Whether the slice can be appended to a log with this end. It is input from another node,
        so everything is checked."""
        if not self.epochs or not log_end.offset == self.base < self.end:
            return False
        begins = [self.base - 1, *(offset for _, offset in self.epochs), self.end]
        epochs = [epoch for epoch, _ in self.epochs]
        return (
            self.epochs[0][1] == self.base
            and epochs[0] >= max(log_end.epoch, 0)
            and all(a < b for a, b in pairwise(begins))
            and all(a < b for a, b in pairwise(epochs))
            and all(self.base <= offset < self.end for offset, _ in self.voters)
        )


@dataclass(frozen=True, slots=True)
class HardState:
    """Epoch, leader and vote, which must be on disk before any action depends on them."""

    epoch: Epoch = NO_EPOCH
    leader: NodeId = NO_NODE
    voted_for: ReplicaKey | None = None
    #: Life of the group that the state belongs to; NO_EPOCH where a group has only one.
    life: Epoch = NO_EPOCH


@dataclass(frozen=True, slots=True)
class RaftSettings:
    """Kafka's controller.quorum.* settings, and the values that Kafka derives from them."""

    #: A voter without a leader starts an election after this time plus a random part of it.
    election_timeout_ms: int = 1_000
    #: Upper bound of the random backoff after a lost election; the backoff doubles up to it.
    election_backoff_max_ms: int = 1_000
    #: A follower that could not fetch for this time starts an election.
    fetch_timeout_ms: int = 2_000
    #: A request without a response after this time is considered lost.
    request_timeout_ms: int = 2_000
    retry_backoff_ms: int = 20
    #: How long a leader may delay the response to a fetch that has nothing new.
    fetch_wait_ms: int = 500
    #: Time limit for a new voter to catch up, and for the new voter set to be committed.
    voter_change_timeout_ms: int = 30_000

    @property
    def check_quorum_ms(self) -> int:
        """A leader from which no majority has fetched for this time resigns. It exceeds the
        followers' fetch timeout, so that healthy followers elect a new leader first."""
        return self.fetch_timeout_ms * 3 // 2

    @property
    def begin_interval_ms(self) -> int:
        return self.fetch_timeout_ms // 2

    @property
    def succession_slot_ms(self) -> int:
        """Delay between the elections that successive successors of a lost leader start."""
        return max(1, self.election_timeout_ms // 10)


@dataclass(frozen=True, slots=True)
class LeaderChange:
    """The first batch of an epoch. Once it is committed, the high watermark can advance."""

    epoch: Epoch
    leader: NodeId
    voters: tuple[NodeId, ...]
    #: Voters that granted their vote to the leader.
    granting: tuple[NodeId, ...]


class Send(NamedTuple):
    """A request for another replica, or a response to one (matched by its `request_id`)."""

    to: NodeId
    message: "Message"


@dataclass(frozen=True, slots=True)
class SnapshotChunk:
    """Bytes to write at `position` of the snapshot that is being fetched."""

    snapshot: SnapshotId
    position: int
    data: bytes


class Effects(NamedTuple):
    """Actions for the driver, in this order. Those that require a call back are last, since that
    call returns newer effects. If `persist` is set, the core holds back everything that depends on
    it until `on_persisted`; only `step_down` can be set at the same time."""

    persist: HardState | None = None
    #: The node no longer leads this epoch: reject appends, and fail those that wait for a commit.
    step_down: Epoch | None = None
    #: Truncate the log to this offset: the records behind it were never committed.
    truncate: Offset | None = None
    #: Append these batches unchanged, and call `on_durable` when they are on disk.
    append: LogSlice | None = None
    chunk: SnapshotChunk | None = None
    send: tuple[Send, ...] = ()
    #: The high watermark advanced to this offset: everything below is committed.
    committed: Offset | None = None
    #: The snapshot is complete: check it, replace the log by it, then call `on_installed`.
    install: SnapshotId | None = None
    #: Append this batch: the node is the leader from here on.
    lead: LeaderChange | None = None
    #: Append a VotersRecord with this set, then `on_appended(…, voters=…)`.
    append_voters: VoterSet | None = None


NOTHING: Final = Effects()
