"""The roles of a replica and the table of legal transitions, which the code reads."""

from enum import Enum
from typing import Final

from lograft.consensus.errors import IllegalTransition


class Role(Enum):
    #: Knows the epoch, but no leader of it, and has not voted in it.
    UNATTACHED = "unattached"
    #: Voted for another replica in this epoch and waits for the winner.
    VOTED = "voted"
    #: Sends pre-votes, to find out if it could win before it starts a new epoch (KIP-996).
    PROSPECTIVE = "prospective"
    #: Requests votes in an epoch that it started.
    CANDIDATE = "candidate"
    LEADER = "leader"
    FOLLOWER = "follower"
    #: Led this epoch until it resigned or restarted: it will not lead this epoch again.
    RESIGNED = "resigned"


class Cause(Enum):
    #: No contact with a leader, or no result of an election, in time. Immediate for a sole voter.
    TIMEOUT = "timeout"
    VOTE_GIVEN = "vote given"
    PRE_VOTES_WON = "pre-votes won"
    VOTES_WON = "votes won"
    ELECTION_LOST = "election lost"
    LEADER_FOUND = "leader found"
    HIGHER_EPOCH = "higher epoch"
    RESIGNATION = "resignation"


NEXT_ROLE: Final[dict[tuple[Role, Cause], Role]] = {
    (Role.UNATTACHED, Cause.TIMEOUT): Role.PROSPECTIVE,
    (Role.UNATTACHED, Cause.VOTE_GIVEN): Role.VOTED,
    (Role.UNATTACHED, Cause.LEADER_FOUND): Role.FOLLOWER,
    (Role.UNATTACHED, Cause.HIGHER_EPOCH): Role.UNATTACHED,
    (Role.VOTED, Cause.TIMEOUT): Role.PROSPECTIVE,
    (Role.VOTED, Cause.LEADER_FOUND): Role.FOLLOWER,
    (Role.VOTED, Cause.HIGHER_EPOCH): Role.UNATTACHED,
    (Role.PROSPECTIVE, Cause.PRE_VOTES_WON): Role.CANDIDATE,
    (Role.PROSPECTIVE, Cause.ELECTION_LOST): Role.UNATTACHED,
    (Role.PROSPECTIVE, Cause.TIMEOUT): Role.UNATTACHED,
    (Role.PROSPECTIVE, Cause.VOTE_GIVEN): Role.VOTED,
    (Role.PROSPECTIVE, Cause.LEADER_FOUND): Role.FOLLOWER,
    (Role.PROSPECTIVE, Cause.HIGHER_EPOCH): Role.UNATTACHED,
    (Role.CANDIDATE, Cause.VOTES_WON): Role.LEADER,
    (Role.CANDIDATE, Cause.ELECTION_LOST): Role.PROSPECTIVE,
    (Role.CANDIDATE, Cause.TIMEOUT): Role.PROSPECTIVE,
    (Role.CANDIDATE, Cause.LEADER_FOUND): Role.FOLLOWER,
    (Role.CANDIDATE, Cause.HIGHER_EPOCH): Role.UNATTACHED,
    (Role.LEADER, Cause.RESIGNATION): Role.RESIGNED,
    (Role.LEADER, Cause.HIGHER_EPOCH): Role.UNATTACHED,
    (Role.FOLLOWER, Cause.TIMEOUT): Role.PROSPECTIVE,
    (Role.FOLLOWER, Cause.HIGHER_EPOCH): Role.UNATTACHED,
    (Role.RESIGNED, Cause.TIMEOUT): Role.PROSPECTIVE,
    (Role.RESIGNED, Cause.HIGHER_EPOCH): Role.UNATTACHED,
}


def next_role(role: Role, cause: Cause) -> Role:
    try:
        return NEXT_ROLE[role, cause]
    except KeyError:
        raise IllegalTransition(f"role {role.value} has no transition for: {cause.value}") from None
