"""The values that go into the core and come out of it."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Final, NamedTuple
from uuid import UUID

from lograft.model.types import NO_EPOCH, NO_NODE, ZERO_UUID, Epoch, NodeId, Offset

if TYPE_CHECKING:
    from lograft.consensus.messages import Message

#: Where chance comes from: a number from 0 up to, and without, the bound.
Chance = Callable[[int], int]


class ReplicaKey(NamedTuple):
    """A voter is a node with a certain disk: a node whose disk was replaced is another voter."""

    node_id: NodeId
    #: ZERO_UUID: not known (a static quorum, kraft.version 0).
    directory_id: UUID = ZERO_UUID

    def names(self, other: "ReplicaKey") -> bool:
        """Whether the other is meant; without a directory id the node id says it alone."""
        return self.node_id == other.node_id and self.directory_id in (
            ZERO_UUID,
            other.directory_id,
        )


#: Who a replica votes for when its raft life is ended from above (see `RaftCore.leave_life`).
CONTROLLER: Final = ReplicaKey(NodeId(-2))


class VoterEndpoint(NamedTuple):
    name: str
    host: str
    port: int


class Voter(NamedTuple):
    key: ReplicaKey
    endpoints: tuple[VoterEndpoint, ...] = ()
    #: Range of kraft.version that the voter understands.
    kraft_version_min: int = 0
    kraft_version_max: int = 1


@dataclass(frozen=True, slots=True)
class VoterSet:
    voters: tuple[Voter, ...]
    #: The configuration names the voters (kraft.version 0). The sets in the log are not static, so
    #: that the first of them, appended or truncated, also changes the level.
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
        return any(voter.key.names(key) for voter in self.voters)

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

    def replacing(self, voter: Voter) -> "VoterSet":
        return VoterSet(
            tuple(voter if old.key.node_id == voter.key.node_id else old for old in self.voters)
        )


class LogEnd(NamedTuple):
    """Of two logs the one with the greater LogEnd has everything that was committed."""

    epoch: Epoch
    offset: Offset


class SnapshotId(NamedTuple):
    """A snapshot stands for everything below `end_offset`; `epoch` is that of its last record."""

    end_offset: Offset
    epoch: Epoch


@dataclass(frozen=True, slots=True)
class LogSlice:
    """A run of batches and what the core must know of it; made from their headers by the driver.

    The batches themselves are `data`, which the core hands on without a look.
    """

    base: Offset
    end: Offset
    #: Where each epoch of the slice begins, ascending; the first begins at `base`.
    epochs: tuple[tuple[Epoch, Offset], ...]
    #: The voter sets written in it (VotersRecord), each with the offset of its record.
    voters: tuple[tuple[Offset, VoterSet], ...] = ()
    data: object = None

    def follows(self, log_end: LogEnd) -> bool:
        """Whether a log that ends there can go on with this slice: it came from outside."""
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
    """What must be on disk before anyone may act on it."""

    epoch: Epoch = NO_EPOCH
    leader: NodeId = NO_NODE
    voted_for: ReplicaKey | None = None
    #: Which life of the group it belongs to; NO_EPOCH where a group has only one.
    life: Epoch = NO_EPOCH


@dataclass(frozen=True, slots=True)
class RaftSettings:
    """Kafka's controller.quorum.* settings and what Kafka derives from them."""

    #: A voter without a leader stands after this time, and up to as much again by chance.
    election_timeout_ms: int = 1_000
    #: After a lost election it waits by chance up to a bound that doubles up to this one.
    election_backoff_max_ms: int = 1_000
    #: A follower that cannot fetch for so long stands.
    fetch_timeout_ms: int = 2_000
    #: A request without an answer for so long is lost.
    request_timeout_ms: int = 2_000
    retry_backoff_ms: int = 20
    #: How long a leader may hold a fetch that has nothing to bring.
    fetch_wait_ms: int = 500
    #: How long a new voter may take to catch up, and its record to be committed.
    voter_change_timeout_ms: int = 30_000

    @property
    def check_quorum_ms(self) -> int:
        """A leader that no majority fetched from for so long resigns. Longer than the followers'
        own patience: if all is well on their side they go first."""
        return self.fetch_timeout_ms * 3 // 2

    @property
    def begin_interval_ms(self) -> int:
        return self.fetch_timeout_ms // 2

    @property
    def succession_slot_ms(self) -> int:
        """The successors of a leader that is known to be gone stand one such slot apart."""
        return max(1, self.election_timeout_ms // 10)


@dataclass(frozen=True, slots=True)
class LeaderChange:
    """The first batch of an epoch: it makes the high watermark free to move."""

    epoch: Epoch
    leader: NodeId
    voters: tuple[NodeId, ...]
    #: Those whose votes made the leader.
    granting: tuple[NodeId, ...]


class Send(NamedTuple):
    """A message for another replica, or an answer to whoever asked (`request_id` says what)."""

    to: NodeId
    message: "Message"


@dataclass(frozen=True, slots=True)
class SnapshotChunk:
    """Write these bytes at this position of the snapshot that is being fetched."""

    snapshot: SnapshotId
    position: int
    data: bytes


class Effects(NamedTuple):
    """What to do now, in this order: what asks for a call back comes last, so that its effects are
    newer than these. When `persist` is set, whatever rests on it is held back until
    `on_persisted`; besides it only `unlead` can be set then."""

    persist: HardState | None = None
    #: The node led until now: appends are refused, waiting ones fail.
    unlead: Epoch | None = None
    #: Cut the log here: what follows was never committed.
    truncate: Offset | None = None
    #: Append these batches as they are; `on_durable` when they are on disk.
    append: LogSlice | None = None
    chunk: SnapshotChunk | None = None
    send: tuple[Send, ...] = ()
    #: The high watermark moved here: everything below is committed.
    committed: Offset | None = None
    #: The snapshot is here whole: check it, let it replace the log, then `on_installed`.
    install: SnapshotId | None = None
    #: Append this batch: the node leads from here on.
    lead: LeaderChange | None = None
    #: Append a VotersRecord with this set, then `on_appended(…, voters=…)`.
    append_voters: VoterSet | None = None


NOTHING: Final = Effects()
