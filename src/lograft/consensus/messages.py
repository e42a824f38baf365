"""Messages between replicas, as plain values.

They correspond to Kafka's Vote, BeginQuorumEpoch, EndQuorumEpoch, Fetch, FetchSnapshot and
*RaftVoter requests; the driver converts them. The sender of a request chooses its id, which the
response repeats. `epoch` and `leader` of a response are those that the responding replica knows, so
that a requester with an older epoch can catch up. `life` is the life of the group (see
`RaftCore.begin_life`).
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
    #: The request belongs to an older epoch.
    FENCED_EPOCH = "fenced leader epoch"
    #: The request belongs to a newer epoch than this replica knows.
    UNKNOWN_EPOCH = "unknown leader epoch"
    NOT_LEADER = "not leader"
    #: The request is for a replica with this node id and another directory id.
    WRONG_VOTER = "invalid voter key"
    #: The request belongs to another life of the group, or this replica has left its life.
    WRONG_LIFE = "other life"
    #: No replica sends such a request: a negative offset, or an implausible epoch.
    INVALID = "invalid request"
    SNAPSHOT_NOT_FOUND = "snapshot not found"
    POSITION_OUT_OF_RANGE = "position out of range"
    DUPLICATE_VOTER = "duplicate voter"
    VOTER_NOT_FOUND = "voter not found"
    #: Another voter change is not committed yet, or no record of this epoch is.
    CHANGE_IN_PROGRESS = "change in progress"
    LAST_VOTER = "last voter"
    #: The configuration fixes the voters of this group (kraft.version 0).
    STATIC_VOTERS = "static voters"
    #: kraft.version cannot be upgraded: a voter does not support it, or has not yet reported its
    #: supported versions to this leader.
    VERSION_NOT_SUPPORTED = "version not supported by all voters"
    TIMED_OUT = "timed out"


@dataclass(frozen=True, slots=True, kw_only=True)
class VoteRequest:
    sender: ReplicaKey
    #: A replica with the same node id and another directory id rejects the request.
    to: ReplicaKey
    #: The candidate's new epoch; for a pre-vote the sender's current one.
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
    #: Copied from the request. Not on the wire, since the requester knows it.
    pre_vote: bool = False
    error: Error = Error.NONE
    request_id: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class BeginQuorumEpochRequest:
    """Announces that the sender leads this epoch, so that the voters fetch from it."""

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
    """Announces that the sender has resigned: the voters elect a new leader, preferably one of
    `successors`, in this order."""

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
    #: End of the sender's log *on disk*, and the epoch of its last record.
    log_end: LogEnd
    #: The sender's high watermark; a leader with a higher one responds immediately.
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
    #: The logs diverge: end of the last epoch in the leader's log that both may have.
    diverging: LogEnd | None = None
    #: The leader's log starts beyond the fetch offset: fetch this snapshot instead.
    snapshot: SnapshotId | None = None
    #: Before sending, the driver fills `entries` from the log, starting at this offset.
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
    #: Empty until the driver fills it from the snapshot file.
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
    """Updates a voter's endpoints or supported versions. With static voters the leader only keeps
    them in memory, for an upgrade of kraft.version."""

    voter: Voter
    sender: NodeId = NO_NODE
    request_id: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class UpgradeVersionRequest:
    """Upgrades kraft.version from 0 to 1: the static voters, with their directories, become the
    first voter set in the log."""

    #: The leader itself; the other voters have reported themselves with UpdateVoterRequest.
    voter: Voter
    validate_only: bool = False
    sender: NodeId = NO_NODE
    request_id: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class RenameVoterRequest:
    """Changes the directory id of a voter that moved, with its votes, to another log dir. Only the
    voter itself may report that."""

    key: ReplicaKey
    directory_id: UUID
    sender: NodeId = NO_NODE
    request_id: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class VoterChangeResponse:
    """NONE: the new set is committed. NOT_LEADER and TIMED_OUT: it may still be committed later."""

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
#: Requests between replicas, which carry the life of the group.
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

#: Response type of each request type.
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


#: More elections than can have taken place since the last contact with the sender.
EPOCHS_AHEAD_MAX: Final = 1_000_000
#: The wire has 31 bits for an epoch. After the highest epoch the group could elect no leader again.
EPOCH_MAX: Final = (1 << 31) - 1 - EPOCHS_AHEAD_MAX


def is_plausible(request: PeerRequest, known: Epoch) -> bool:
    """Whether a replica of a group whose epoch is about `known` can have sent this. Requests come
    from outside: accepting an arbitrarily high epoch would make further elections impossible."""
    if not NO_EPOCH <= request.epoch <= min(max(known, 0) + EPOCHS_AHEAD_MAX, EPOCH_MAX):
        return False
    match request:
        case VoteRequest() | FetchRequest():
            return request.log_end.offset >= 0 and request.log_end.epoch >= NO_EPOCH
        case FetchSnapshotRequest():
            return request.snapshot.end_offset >= 0 and request.snapshot.epoch >= NO_EPOCH
        case BeginQuorumEpochRequest() | EndQuorumEpochRequest():
            return request.sender.node_id >= 0
