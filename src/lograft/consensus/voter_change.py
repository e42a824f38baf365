"""A change of the voter set, from the request to its commit (KIP-853).

An upgrade of kraft.version is such a change, too: the set has the same nodes, with their
directories.

Only one voter changes at a time: majorities of two successive sets then always share a replica, so
the new set can apply as soon as it is in the log. A second change before the first is committed
would break that. So would a change before this leader has committed a record of its epoch, since
an uncommitted set of an earlier leader may still exist in some log.
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

#: First kraft.version with the voter set in the log.
DYNAMIC_VOTERS_VERSION: Final = 1


class Stage(Enum):
    #: A new voter first catches up with the log, so that it does not delay commits.
    CATCHING_UP = "catching up"
    #: The core has requested that the driver append the new set.
    APPENDING = "appending"
    COMMITTING = "committing"


class VoterChange:
    """The change in progress of a leader."""

    __slots__ = ("deadline_ms", "end", "request", "stage", "target", "voters")

    def __init__(
        self, request: VoterChangeRequest, voters: VoterSet, *, target: Offset, deadline_ms: int
    ) -> None:
        self.request = request
        #: The new set.
        self.voters = voters
        #: Offset to which a new voter must catch up: the log end offset at the time of the request.
        self.target = target
        self.deadline_ms = deadline_ms
        self.stage = Stage.CATCHING_UP
        #: The change is committed once the high watermark reaches this offset.
        self.end = NO_OFFSET

    @property
    def new_voter(self) -> ReplicaKey | None:
        request = self.request
        return request.voter.key if isinstance(request, AddVoterRequest) else None

    def on_appended(self, end: Offset) -> None:
        self.stage = Stage.COMMITTING
        self.end = end


def upgrade_voters(voters: VoterSet, descriptions: Mapping[NodeId, Voter]) -> VoterSet | Error:
    """Returns the static voters with the directories that they reported, or the error if one of
    them has not reported, or does not support dynamic voters."""
    dynamic: list[Voter] = []
    for node_id in voters.node_ids:
        voter = descriptions.get(node_id)
        if (
            voter is None
            or voter.key.directory_id == ZERO_UUID
            or not voter.kraft_version_min <= DYNAMIC_VOTERS_VERSION <= voter.kraft_version_max
        ):
            return Error.VERSION_NOT_SUPPORTED
        dynamic.append(voter)
    return VoterSet(tuple(dynamic))


def change_voters(
    voters: VoterSet,
    request: AddVoterRequest | RemoveVoterRequest | UpdateVoterRequest | RenameVoterRequest,
) -> VoterSet | Error:
    """Returns the voter set after the change, or the error."""
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
        return voters.replace_voter(
            known._replace(key=ReplicaKey(key.node_id, request.directory_id))
        )
    return voters.replace_voter(request.voter)


def change_static_voters(
    voters: VoterSet,
    request: VoterChangeRequest,
    *,
    leader: ReplicaKey,
    descriptions: dict[NodeId, Voter],
    may_change: bool,
) -> VoterSet | Error:
    """Returns the dynamic set that replaces static voters, the error, or NONE if there is nothing
    to append. Stores the description that a voter sends of itself in `descriptions`."""
    match request:
        case UpdateVoterRequest():
            node_id = request.voter.key.node_id
            if voters.find(node_id) is None:
                return Error.VOTER_NOT_FOUND
            descriptions[node_id] = request.voter
            return Error.NONE
        case UpgradeVersionRequest():
            if not may_change:
                return Error.CHANGE_IN_PROGRESS
            own = request.voter._replace(key=leader)
            dynamic = upgrade_voters(voters, {**descriptions, leader.node_id: own})
            is_checked = request.validate_only and not isinstance(dynamic, Error)
            return Error.NONE if is_checked else dynamic
        case _:
            return Error.STATIC_VOTERS
