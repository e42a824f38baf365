"""One election, asked for in advance (KIP-996) or real: who was asked, who said what."""

from collections.abc import Iterator

from lograft.consensus.messages import VoteRequest
from lograft.consensus.types import LogEnd, ReplicaKey, VoterSet
from lograft.model.types import Epoch, NodeId


class Election:
    """The voters are those of its beginning: while a replica stands it appends nothing."""

    __slots__ = ("_asked", "_refused", "_voters", "deadline_ms", "granting", "lost", "pre_vote")

    def __init__(self, voters: VoterSet, *, pre_vote: bool, deadline_ms: int) -> None:
        self._voters = voters
        self.pre_vote = pre_vote
        self.deadline_ms = deadline_ms
        #: In the order of their answers.
        self.granting: dict[NodeId, None] = {}
        self._refused: set[NodeId] = set()
        #: Requests that wait for an answer: an answer counts once.
        self._asked: dict[int, NodeId] = {}
        #: So many refused that it cannot be won any more; it waits for its deadline.
        self.lost = False

    def requests(
        self, me: ReplicaKey, epoch: Epoch, log_end: LogEnd, *, life: Epoch, first_id: int
    ) -> Iterator[VoteRequest]:
        for request_id, voter in enumerate(self._voters.others(me), start=first_id):
            self._asked[request_id] = voter.key.node_id
            yield VoteRequest(
                sender=me,
                to=voter.key,
                epoch=epoch,
                log_end=log_end,
                pre_vote=self.pre_vote,
                request_id=request_id,
                life=life,
            )

    def is_answer(self, request_id: int, sender: NodeId) -> bool:
        return self._asked.get(request_id) == sender

    def on_answer(self, request_id: int, *, granted: bool) -> None:
        node_id = self._asked.pop(request_id)
        if granted:
            self.grant(node_id)
        else:
            self._refused.add(node_id)

    def grant(self, node_id: NodeId) -> None:
        self.granting[node_id] = None

    def on_unreachable(self, node_id: NodeId) -> bool:
        """True if that changes anything."""
        if node_id not in self._asked.values():
            return False
        self._asked = {i: node for i, node in self._asked.items() if node != node_id}
        self._refused.add(node_id)
        return True

    @property
    def is_won(self) -> bool:
        return len(self.granting) >= self._voters.majority

    @property
    def is_hopeless(self) -> bool:
        return len(self._voters.voters) - len(self._refused) < self._voters.majority
