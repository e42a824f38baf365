"""One change of the voters, from the request to its commit (KIP-853).

An upgrade of kraft.version is one, too: its set has the same nodes, now with their directories.

Only single steps: the majorities of two neighbouring sets always share a replica, so the new set
may count as soon as it is in the log. A second step before the first is committed would break that,
and so would one before this leader has committed anything: an older leader's uncommitted set may
still be somewhere.
"""

from collections.abc import Mapping
from enum import Enum
from typing import Final

from lograft.consensus.messages import (
    AddVoterRequest,
    Error,
    RemoveVoterRequest,
    RenameVoterRequest,
    UpdateVoterRequest,
    UpgradeVersionRequest,
    VoterChangeRequest,
)
from lograft.consensus.types import ReplicaKey, Voter, VoterSet
from lograft.model.types import NO_OFFSET, ZERO_UUID, NodeId, Offset

#: The first level whose voters are in the log.
DYNAMIC_VOTERS_VERSION: Final = 1


class Stage(Enum):
    #: A new voter must not hold up commits: it first fetches what is there.
    CATCHING_UP = "catching up"
    #: The driver was asked to append the new set.
    APPENDING = "appending"
    COMMITTING = "committing"


class VoterChange:
    __slots__ = ("deadline_ms", "end", "request", "stage", "target", "voters")

    def __init__(
        self, request: VoterChangeRequest, voters: VoterSet, *, target: Offset, deadline_ms: int
    ) -> None:
        self.request = request
        #: The set as it will be.
        self.voters = voters
        #: Up to where a new voter must have fetched: the log's end when it was asked for.
        self.target = target
        self.deadline_ms = deadline_ms
        self.stage = Stage.CATCHING_UP
        #: Committed once the high watermark is here.
        self.end = NO_OFFSET

    @property
    def newcomer(self) -> ReplicaKey | None:
        request = self.request
        return request.voter.key if isinstance(request, AddVoterRequest) else None

    def on_appended(self, end: Offset) -> None:
        self.stage = Stage.COMMITTING
        self.end = end


def upgraded(voters: VoterSet, described: Mapping[NodeId, Voter]) -> VoterSet | Error:
    """The static voters as they have described themselves, or why the level cannot be raised."""
    dynamic: list[Voter] = []
    for node_id in voters.node_ids:
        voter = described.get(node_id)
        if (
            voter is None
            or voter.key.directory_id == ZERO_UUID
            or not voter.kraft_version_min <= DYNAMIC_VOTERS_VERSION <= voter.kraft_version_max
        ):
            return Error.VERSION_NOT_SUPPORTED
        dynamic.append(voter)
    return VoterSet(tuple(dynamic))


def changed(
    voters: VoterSet,
    request: AddVoterRequest | RemoveVoterRequest | UpdateVoterRequest | RenameVoterRequest,
) -> VoterSet | Error:
    """The voters after the change, or why there is none."""
    if isinstance(request, AddVoterRequest):
        if voters.find(request.voter.key.node_id) is not None:
            return Error.DUPLICATE_VOTER
        return voters.with_voter(request.voter)
    key = request.voter.key if isinstance(request, UpdateVoterRequest) else request.key
    known = voters.find(key.node_id)
    if known is None or known.key != key:
        return Error.VOTER_NOT_FOUND
    if isinstance(request, RemoveVoterRequest):
        return Error.LAST_VOTER if len(voters.voters) == 1 else voters.without(key.node_id)
    if isinstance(request, RenameVoterRequest):
        return voters.replacing(known._replace(key=ReplicaKey(key.node_id, request.directory_id)))
    return voters.replacing(request.voter)


def changed_static(
    voters: VoterSet,
    request: VoterChangeRequest,
    *,
    leader: ReplicaKey,
    described: dict[NodeId, Voter],
    may_change: bool,
) -> VoterSet | Error:
    """Static voters can only become dynamic ones. NONE: there is nothing to append. Notes in
    `described` how a voter describes itself."""
    match request:
        case UpdateVoterRequest():
            node_id = request.voter.key.node_id
            if voters.find(node_id) is None:
                return Error.VOTER_NOT_FOUND
            described[node_id] = request.voter
            return Error.NONE
        case UpgradeVersionRequest():
            if not may_change:
                return Error.CHANGE_IN_PROGRESS
            own = request.voter._replace(key=leader)
            dynamic = upgraded(voters, {**described, leader.node_id: own})
            is_checked = request.validate_only and not isinstance(dynamic, Error)
            return Error.NONE if is_checked else dynamic
        case _:
            return Error.STATIC_VOTERS
