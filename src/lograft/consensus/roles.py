"""The roles of a voter and every legal move between them. The code reads this table."""

from enum import Enum
from typing import Final

from lograft.consensus.errors import IllegalMove


class Role(Enum):
    #: Knows an epoch, but neither its leader nor a candidate it voted for.
    UNATTACHED = "unattached"
    #: Gave its vote in this epoch and waits for the winner.
    VOTED = "voted"
    #: Asks whether it could win before it disturbs the others with a new epoch (KIP-996).
    PROSPECTIVE = "prospective"
    #: Stands for election in an epoch that it opened.
    CANDIDATE = "candidate"
    LEADER = "leader"
    FOLLOWER = "follower"
    #: Led this epoch and gave it up, or led it before a restart: it will not lead it again.
    RESIGNED = "resigned"


class Cause(Enum):
    #: Nothing was heard of a leader or of an election's end in time; at once for an only voter.
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
        raise IllegalMove(f"{role.value} does not end by {cause.value}") from None
