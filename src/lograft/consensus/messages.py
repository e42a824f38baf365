"""What replicas say to each other, as plain values.

They carry what Kafka's Vote, BeginQuorumEpoch, EndQuorumEpoch, Fetch, FetchSnapshot and *RaftVoter
carry; the driver translates. A request has a number that its sender chose, and its answer repeats
it. `epoch` and `leader` of an answer are what the answering replica knows: they teach whoever is
behind. `life` names the life of the group (see `RaftCore.begin_life`).
"""

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import Final
from uuid import UUID

from lograft.consensus.types import LogEnd, LogSlice, ReplicaKey, SnapshotId, Voter
from lograft.model.types import NO_EPOCH, NO_NODE, NO_OFFSET, Epoch, NodeId, Offset


class Error(Enum):
    NONE = "none"
    #: The request belongs to an epoch that is over.
    FENCED_EPOCH = "fenced leader epoch"
    #: The request belongs to an epoch that this replica has not heard of.
    UNKNOWN_EPOCH = "unknown leader epoch"
    NOT_LEADER = "not leader"
    #: Meant for a replica with this node id and another disk.
    WRONG_VOTER = "invalid voter key"
    #: The request belongs to another life of the group, or this replica has left its own.
    WRONG_LIFE = "other life"
    #: No replica says such a thing: an offset below zero, an epoch out of all reason.
    INVALID = "invalid request"
    SNAPSHOT_NOT_FOUND = "snapshot not found"
    POSITION_OUT_OF_RANGE = "position out of range"
    DUPLICATE_VOTER = "duplicate voter"
    VOTER_NOT_FOUND = "voter not found"
    #: Another change of the voters is not committed yet, or nothing of this epoch is.
    CHANGE_IN_PROGRESS = "change in progress"
    LAST_VOTER = "last voter"
    #: The voters of this group are fixed by its configuration (kraft.version 0).
    STATIC_VOTERS = "static voters"
    #: kraft.version cannot be raised: a voter does not support it, or has not described itself to
    #: this leader yet.
    VERSION_NOT_SUPPORTED = "version not supported by all voters"
    TIMED_OUT = "timed out"


@dataclass(frozen=True, slots=True, kw_only=True)
class VoteRequest:
    sender: ReplicaKey
    #: A replica with another disk under the same number must not answer.
    to: ReplicaKey
    #: The epoch to be led; for a pre-vote the one that the sender is in.
    epoch: Epoch
    log_end: LogEnd
    pre_vote: bool = False
    request_id: int = 0
    life: Epoch = NO_EPOCH


@dataclass(frozen=True, slots=True, kw_only=True)
class VoteResponse:
    sender: NodeId
    epoch: Epoch
    leader: NodeId = NO_NODE
    granted: bool = False
    #: As in the request. (Not on the wire: whoever asked knows what it asked.)
    pre_vote: bool = False
    error: Error = Error.NONE
    request_id: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class BeginQuorumEpochRequest:
    """I lead this epoch: fetch from me."""

    sender: ReplicaKey
    to: ReplicaKey
    epoch: Epoch
    request_id: int = 0
    life: Epoch = NO_EPOCH


@dataclass(frozen=True, slots=True, kw_only=True)
class BeginQuorumEpochResponse:
    sender: NodeId
    epoch: Epoch
    leader: NodeId = NO_NODE
    error: Error = Error.NONE
    request_id: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class EndQuorumEpochRequest:
    """I lead this epoch no more: elect another, best one of `successors`, in their order."""

    sender: ReplicaKey
    epoch: Epoch
    successors: tuple[ReplicaKey, ...] = ()
    request_id: int = 0
    life: Epoch = NO_EPOCH


@dataclass(frozen=True, slots=True, kw_only=True)
class EndQuorumEpochResponse:
    sender: NodeId
    epoch: Epoch
    leader: NodeId = NO_NODE
    error: Error = Error.NONE
    request_id: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class FetchRequest:
    sender: ReplicaKey
    epoch: Epoch
    #: Where the sender's log ends *on disk*, and the epoch of its last record.
    log_end: LogEnd
    #: What the sender knows to be committed; a leader that knows more answers at once.
    high_watermark: Offset = NO_OFFSET
    wait_ms: int = 0
    request_id: int = 0
    life: Epoch = NO_EPOCH


@dataclass(frozen=True, slots=True, kw_only=True)
class FetchResponse:
    sender: NodeId
    epoch: Epoch
    leader: NodeId = NO_NODE
    error: Error = Error.NONE
    high_watermark: Offset = NO_OFFSET
    #: The logs differ: where the leader's ends in the last epoch that both may have.
    diverging: LogEnd | None = None
    #: The leader's log begins behind the fetch offset: fetch this instead.
    snapshot: SnapshotId | None = None
    #: On its way out: the driver fills `entries` from the log, from this offset on.
    read_from: Offset = NO_OFFSET
    entries: LogSlice | None = None
    request_id: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class FetchSnapshotRequest:
    sender: ReplicaKey
    epoch: Epoch
    snapshot: SnapshotId
    position: int
    request_id: int = 0
    life: Epoch = NO_EPOCH


@dataclass(frozen=True, slots=True, kw_only=True)
class FetchSnapshotResponse:
    sender: NodeId
    epoch: Epoch
    leader: NodeId = NO_NODE
    error: Error = Error.NONE
    snapshot: SnapshotId | None = None
    position: int = 0
    size_bytes: int = 0
    #: On its way out empty: the driver fills it from the snapshot's file.
    data: bytes = b""
    request_id: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class AddVoterRequest:
    voter: Voter
    sender: NodeId = NO_NODE
    request_id: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class RemoveVoterRequest:
    key: ReplicaKey
    sender: NodeId = NO_NODE
    request_id: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class UpdateVoterRequest:
    """The same voter with other endpoints, or with another range of versions. With static voters
    the leader only remembers it, for an upgrade of kraft.version."""

    voter: Voter
    sender: NodeId = NO_NODE
    request_id: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class UpgradeVersionRequest:
    """Raises kraft.version from 0 to 1: the static voters become the first set in the log, with
    their directories."""

    #: The leader itself; the other voters have described themselves with UpdateVoterRequest.
    voter: Voter
    validate_only: bool = False
    sender: NodeId = NO_NODE
    request_id: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class RenameVoterRequest:
    """The same voter in another log dir, to which it was moved with its votes. The leader must
    know that from the voter itself."""

    key: ReplicaKey
    directory_id: UUID
    sender: NodeId = NO_NODE
    request_id: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class VoterChangeResponse:
    """NONE: the new set is committed. NOT_LEADER and TIMED_OUT: it may or may not become so."""

    sender: NodeId
    epoch: Epoch
    leader: NodeId = NO_NODE
    error: Error = Error.NONE
    request_id: int = 0


VoterChangeRequest = (
    AddVoterRequest
    | RemoveVoterRequest
    | UpdateVoterRequest
    | RenameVoterRequest
    | UpgradeVersionRequest
)
#: Between replicas: they carry the life of the group.
PeerRequest = (
    VoteRequest
    | BeginQuorumEpochRequest
    | EndQuorumEpochRequest
    | FetchRequest
    | FetchSnapshotRequest
)
Request = PeerRequest | VoterChangeRequest
Response = (
    VoteResponse
    | BeginQuorumEpochResponse
    | EndQuorumEpochResponse
    | FetchResponse
    | FetchSnapshotResponse
    | VoterChangeResponse
)
Message = Request | Response

#: Request -> its response.
RESPONSE_OF: Final[dict[type, Callable[..., Response]]] = {
    VoteRequest: VoteResponse,
    BeginQuorumEpochRequest: BeginQuorumEpochResponse,
    EndQuorumEpochRequest: EndQuorumEpochResponse,
    FetchRequest: FetchResponse,
    FetchSnapshotRequest: FetchSnapshotResponse,
    AddVoterRequest: VoterChangeResponse,
    RemoveVoterRequest: VoterChangeResponse,
    UpdateVoterRequest: VoterChangeResponse,
    UpgradeVersionRequest: VoterChangeResponse,
    RenameVoterRequest: VoterChangeResponse,
}


#: More elections than there can have been since the other side was last heard.
EPOCHS_AHEAD_MAX: Final = 1_000_000
#: The wire has 31 bits for an epoch; an epoch that has no successor would end the group for good.
EPOCH_MAX: Final = (1 << 31) - 1 - EPOCHS_AHEAD_MAX


def is_plausible(request: PeerRequest, known: Epoch) -> bool:
    """Whether a replica of a group whose epoch is about `known` can have said that. Requests come
    from outside: one that is believed too much ends elections for ever."""
    if not NO_EPOCH <= request.epoch <= min(max(known, 0) + EPOCHS_AHEAD_MAX, EPOCH_MAX):
        return False
    match request:
        case VoteRequest() | FetchRequest():
            return request.log_end.offset >= 0 and request.log_end.epoch >= NO_EPOCH
        case FetchSnapshotRequest():
            return request.snapshot.end_offset >= 0 and request.snapshot.epoch >= NO_EPOCH
        case BeginQuorumEpochRequest() | EndQuorumEpochRequest():
            return request.sender.node_id >= 0
