"""Elections: how a voter without a leader becomes the next one.

The problem. When a leader fails, some voter must take over. Two voters must not lead the same
epoch, a new leader must have every committed record, and a voter that is merely cut off must not
depose a leader that works for all others.

The rule. An election has two rounds. In the first, the replica is PROSPECTIVE and sends pre-votes
(KIP-996): "would you vote for me?" Nothing is written, and the epoch stays. A voter grants a
pre-vote if the requester's log end is not behind its own and it has no contact with a leader
itself. With a majority of pre-votes the replica becomes a CANDIDATE: it increments the epoch, votes
for itself and sends vote requests. A voter grants one vote per epoch, to a log that is not behind
its own, and only while it knows no leader of the epoch. A majority of votes makes the candidate
LEADER.

Why it is safe. Every vote, the candidate's own included, is fsynced before it is sent or counted
(`RaftCore` holds back all messages until `on_persisted`), so a restart cannot vote twice, and any
two majorities share a voter: an epoch has one leader at most. A committed record is on the disks of
a majority, which shares a voter with the majority that elects, and this voter refuses every log
that lacks the record. The comparison of log ends, first by epoch and then by offset, orders logs
that way (Raft, section 5.4.1). A new leader counts a record as committed only once a record of its
own epoch is (section 5.4.2), so that no later leader can replace it. A replica that led an epoch
before a restart starts as RESIGNED, since the tail of its log may have been lost with the page
cache.

Why pre-votes and backoff. Without pre-votes, a voter behind a broken link would time out again and
again, come back with a higher epoch and depose the leader. Timeouts are random, so that voters do
not split the votes forever, and after a lost election a random backoff doubles up to a bound.

Succession. A timeout is the slow way. When the leader resigns, its EndQuorumEpoch names successors,
longest log first; when the connection to its process is refused, its followers use the order of the
voter set. Successor n starts its election n slots later (`succession_slot_ms`), so that the
first has usually won before the second starts. Order and slots are a matter of speed only: safety
rests on the votes alone.
"""

from collections.abc import Iterator

from lograft.consensus.messages import VoteRequest
from lograft.consensus.types import LogEnd, ReplicaKey, VoterSet
from lograft.model.types import Epoch, NodeId


class Election:
    """Votes or pre-votes of one round. The set of voters is fixed: the replica appends nothing
    during its election."""

    __slots__ = (
        "_pending",
        "_rejected",
        "_voters",
        "deadline_ms",
        "granting",
        "is_lost",
        "pre_vote",
    )

    def __init__(self, voters: VoterSet, *, pre_vote: bool, deadline_ms: int) -> None:
        self._voters = voters
        self.pre_vote = pre_vote
        self.deadline_ms = deadline_ms
        #: Voters that granted their vote, in the order of their responses.
        self.granting: dict[NodeId, None] = {}
        self._rejected: set[NodeId] = set()
        #: Requests in flight by id: a response counts only once.
        self._pending: dict[int, NodeId] = {}
        #: The election can no longer be won; the replica waits for its deadline.
        self.is_lost = False

    def requests(
        self, me: ReplicaKey, epoch: Epoch, log_end: LogEnd, *, life: Epoch, first_id: int
    ) -> Iterator[VoteRequest]:
        for request_id, voter in enumerate(self._voters.others(me), start=first_id):
            self._pending[request_id] = voter.key.node_id
            yield VoteRequest(
                sender=me,
                to=voter.key,
                epoch=epoch,
                log_end=log_end,
                pre_vote=self.pre_vote,
                request_id=request_id,
                life=life,
            )

    def is_pending(self, request_id: int, sender: NodeId) -> bool:
        return self._pending.get(request_id) == sender

    def on_response(self, request_id: int, *, granted: bool) -> None:
        node_id = self._pending.pop(request_id)
        if granted:
            self.grant(node_id)
        else:
            self._rejected.add(node_id)

    def grant(self, node_id: NodeId) -> None:
        self.granting[node_id] = None

    def on_unreachable(self, node_id: NodeId) -> bool:
        """Counts the unreachable voter as a rejection. Returns whether a request to it was in
        flight."""
        if node_id not in self._pending.values():
            return False
        self._pending = {i: node for i, node in self._pending.items() if node != node_id}
        self._rejected.add(node_id)
        return True

    @property
    def is_won(self) -> bool:
        return len(self.granting) >= self._voters.majority

    @property
    def cannot_win(self) -> bool:
        return len(self._voters.voters) - len(self._rejected) < self._voters.majority
