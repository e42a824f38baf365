"""What a voter does: stand for election, and vote."""

from lograft.consensus.election import Election
from lograft.consensus.leadership import Leadership
from lograft.consensus.messages import BeginQuorumEpochRequest, Error, VoteRequest, VoteResponse
from lograft.consensus.replica import Replica
from lograft.consensus.roles import Cause, Role
from lograft.consensus.types import HardState
from lograft.model.types import NO_NODE, Epoch


class VoterSide(Replica):
    def _stand(self, now_ms: int) -> None:
        """Asks in advance (KIP-996); an only voter wins by asking itself."""
        if self.is_barred:
            self._stand_ms = None
            return
        if self._installing is not None:
            self._stand_ms = now_ms + self._election_timeout_ms()
            return
        if not self.is_voter:
            # A snapshot may have taken it out of the set while it waited.
            self._stand_ms = None
            self._seek(now_ms)
            return
        self._leave_role()
        self._move(Cause.TIMEOUT)
        self._attempts += 1
        self.election = Election(
            self.voters, pre_vote=True, deadline_ms=now_ms + self._election_timeout_ms()
        )
        self.election.grant(self.me.node_id)
        self._ask(self.election)
        self._count(self.election, now_ms)

    def _become_candidate(self, now_ms: int) -> None:
        self._move(Cause.PRE_VOTES_WON)
        # The log's epoch counts too: the file of the hard state may be older than the log.
        epoch = Epoch(max(self.epoch, self.log.end.epoch, 0) + 1)
        self.hard_state = HardState(epoch, NO_NODE, self.me, self.life)
        # The own vote is counted when it is on disk; the requests wait for that too.
        self.election = Election(
            self.voters, pre_vote=False, deadline_ms=now_ms + self._election_timeout_ms()
        )
        self._ask(self.election)

    def _ask(self, election: Election) -> None:
        requests = election.requests(
            self.me,
            self.epoch,
            self.log.end,
            life=self.life,
            first_id=self._number(len(self.voters.voters)),
        )
        for request in requests:
            self._send(request.to.node_id, request)

    def _become_leader(self, election: Election, now_ms: int) -> None:
        self._leave_role()
        self._move(Cause.VOTES_WON)
        self.hard_state = HardState(self.epoch, self.me.node_id, None, self.life)
        self._attempts = 0
        self.leadership = Leadership(self.me, tuple(election.granting), self.settings, now_ms)

    def _count(self, election: Election, now_ms: int) -> None:
        if election.is_won:
            if election.pre_vote:
                self._become_candidate(now_ms)
            else:
                self._become_leader(election, now_ms)
        elif election.is_hopeless and not election.lost:
            election.lost = True
            if election.pre_vote:
                self._give_up(Cause.ELECTION_LOST, now_ms)
            else:
                election.deadline_ms = now_ms + self._backoff_ms()

    def _end_election(self, now_ms: int) -> None:
        election = self.election
        assert election is not None
        if election.pre_vote:
            self._give_up(Cause.TIMEOUT, now_ms)
        else:
            self._stand(now_ms)

    def _give_up(self, cause: Cause, now_ms: int) -> None:
        """Nobody would vote for it: back to where it was, for a while."""
        leader, attempts = self.leader, self._attempts
        if leader not in (NO_NODE, self.me.node_id):
            self._become_follower(leader, now_ms)
            assert self.fetcher is not None
            self._attempts = attempts
            self.fetcher.silence_deadline_ms = now_ms + self._election_timeout_ms()
        else:
            self._leave_role()
            self._move(cause)
            self._stand_ms = now_ms + self._backoff_ms()

    def _on_vote_response(self, response: VoteResponse, now_ms: int) -> None:
        if self.is_barred:
            return
        self._learn(response.epoch, response.leader, now_ms)
        election = self.election
        if election is None or not election.is_answer(response.request_id, response.sender):
            return
        granted = response.granted and response.epoch == self.epoch
        election.on_answer(response.request_id, granted=granted)
        self._count(election, now_ms)

    def _on_vote_request(self, request: VoteRequest, now_ms: int) -> None:
        if not self._is_meant(request):
            self._answer(request, Error.WRONG_VOTER)
            return
        if request.epoch < self.epoch:
            self._answer(request, Error.FENCED_EPOCH)
            return
        if request.epoch > self.epoch:
            self._become_unattached(request.epoch, now_ms)
        granted = self._grants(request)
        if granted and not request.pre_vote:
            self._give_vote(request, now_ms)
        self._answer(request, granted=granted, pre_vote=request.pre_vote)

    def _grants(self, request: VoteRequest) -> bool:
        """Whether its sender is a voter does not matter: this log may not know the newest set."""
        if request.log_end < self.log.end:
            return False
        if request.pre_vote:
            hears = self.fetcher is not None and self.fetcher.heard
            return self.role is not Role.LEADER and not hears
        voted_for = self.hard_state.voted_for
        # The state of a static quorum on disk, like Kafka's, keeps no directory id of the vote.
        return self.leader == NO_NODE and (voted_for is None or voted_for.names(request.sender))

    def _give_vote(self, request: VoteRequest, now_ms: int) -> None:
        if self.role is not Role.VOTED:
            self._leave_role()
            self._move(Cause.VOTE_GIVEN)
        self.hard_state = HardState(self.epoch, NO_NODE, request.sender, self.life)
        self._await_leader(now_ms)

    def _is_meant(self, request: VoteRequest | BeginQuorumEpochRequest) -> bool:
        """A node that came back with another disk must not answer for the old one."""
        return self.has_name(request.to)
