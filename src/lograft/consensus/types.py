"""The values that go into the core and come out of it."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple
from uuid import UUID

from lograft.model.types import NO_EPOCH, NO_NODE, ZERO_UUID, Epoch, NodeId, Offset


class ReplicaKey(NamedTuple):
    """A voter is a node with a certain disk: a node whose disk was replaced is another voter."""

    node_id: NodeId
    #: ZERO_UUID: not known (a static quorum, kraft.version 0).
    directory_id: UUID = ZERO_UUID


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

    @staticmethod
    def of(keys: Iterable[ReplicaKey]) -> "VoterSet":
        return VoterSet(tuple(Voter(key) for key in keys))

    @property
    def majority(self) -> int:
        return len(self.voters) // 2 + 1

    @property
    def node_ids(self) -> tuple[NodeId, ...]:
        return tuple(voter.key.node_id for voter in self.voters)

    def has(self, key: ReplicaKey) -> bool:
        """A voter without a directory id is matched by its node id alone."""
        return any(
            voter.key.node_id == key.node_id
            and voter.key.directory_id in (ZERO_UUID, key.directory_id)
            for voter in self.voters
        )

    def is_only(self, key: ReplicaKey) -> bool:
        return len(self.voters) == 1 and self.has(key)


class LogEnd(NamedTuple):
    """Of two logs the one with the greater LogEnd has everything that was committed."""

    epoch: Epoch
    offset: Offset


@dataclass(frozen=True, slots=True)
class HardState:
    """What must be on disk before anyone may act on it."""

    epoch: Epoch = NO_EPOCH
    leader: NodeId = NO_NODE
    voted_for: ReplicaKey | None = None


@dataclass(frozen=True, slots=True)
class LeaderChange:
    """The first batch of an epoch: it makes the high watermark free to move."""

    epoch: Epoch
    leader: NodeId
    voters: tuple[NodeId, ...]
    #: Those whose votes made the leader.
    granting: tuple[NodeId, ...]


@dataclass(frozen=True, slots=True)
class Send:
    """A message for another replica. (With one voter there is nobody to send to.)"""

    to: NodeId
    message: object


@dataclass(frozen=True, slots=True)
class Effects:
    """What to do now, in this order; nothing after `persist` before it is on disk: it is the only
    effect then, and the rest follows from `on_persisted`."""

    persist: HardState | None = None
    #: Append this batch: the node leads from here on.
    lead: LeaderChange | None = None
    #: The node led until now: appends are refused, waiting ones fail.
    unlead: Epoch | None = None
    send: tuple[Send, ...] = ()
    #: The high watermark moved here: everything below is committed.
    committed: Offset | None = None


NOTHING = Effects()
