"""The Raft core of one replica: what happened goes in, `Effects` come out.

The driver's side of the contract is in the docstring of the room (`consensus/__init__.py`).
"""

from lograft.consensus.election import Election
from lograft.consensus.errors import CommittedAtRisk, NotLeading
from lograft.consensus.fetcher import Fetcher, SnapshotDownload
from lograft.consensus.leader_side import LeaderSide
from lograft.consensus.leadership import Leadership
from lograft.consensus.messages import (
    AddVoterRequest,
    BeginQuorumEpochRequest,
    BeginQuorumEpochResponse,
    EndQuorumEpochRequest,
    EndQuorumEpochResponse,
    Error,
    FetchRequest,
    FetchResponse,
    FetchSnapshotRequest,
    FetchSnapshotResponse,
    Message,
    RemoveVoterRequest,
    UpdateVoterRequest,
    VoterChangeResponse,
    VoteRequest,
    VoteResponse,
)
from lograft.consensus.roles import Cause, Role
from lograft.consensus.types import (
    CONTROLLER,
    NOTHING,
    Effects,
    HardState,
    LeaderChange,
    LogEnd,
    LogSlice,
    SnapshotId,
    VoterSet,
)
from lograft.model.types import NO_NODE, NO_OFFSET, ZERO_UUID, Epoch, NodeId, Offset


class RaftCore(LeaderSide):
    # ── what the driver tells ────────────────────────────────────────────────────────────────

    def start(self, now_ms: int) -> Effects:
        """An only voter has nobody to hear from: it stands at once."""
        if self.is_barred:
            return self._finish(now_ms)
        if self.voters.is_only(self.me):
            self._stand(now_ms)
        elif self.role is Role.FOLLOWER:
            self.fetcher = Fetcher(self.leader, self.settings, now_ms)
        elif self.is_voter:
            # Sooner than later on: asking in advance disturbs nobody.
            self._stand_ms = now_ms + self._chance(self.settings.election_timeout_ms)
        else:
            self._seek(now_ms)
        return self._finish(now_ms)

    def tick(self, now_ms: int) -> Effects:
        if self.deadline_ms is None or now_ms < self.deadline_ms:
            return NOTHING
        if self.leadership is not None:
            self._tend(now_ms)
        elif self.election is not None:
            self._end_election(now_ms)
        elif self.fetcher is not None:
            self._mind_fetcher(self.fetcher, now_ms)
        else:
            self._stand(now_ms)
        return self._finish(now_ms)

    def step(self, message: Message, now_ms: int) -> Effects:
        """A message of another replica, in whatever order, however late, however often."""
        match message:
            case (
                VoteRequest()
                | BeginQuorumEpochRequest()
                | EndQuorumEpochRequest()
                | FetchRequest()
                | FetchSnapshotRequest()
            ) if message.life != self.life or self.is_barred:
                self._answer(message, Error.WRONG_LIFE)
            case VoteRequest():
                self._on_vote_request(message, now_ms)
            case VoteResponse():
                self._on_vote_response(message, now_ms)
            case BeginQuorumEpochRequest():
                self._on_begin_epoch(message, now_ms)
            case EndQuorumEpochRequest():
                self._on_end_epoch(message, now_ms)
            case FetchRequest():
                self._on_fetch(message, now_ms)
            case FetchResponse():
                self._on_fetch_response(message, now_ms)
            case FetchSnapshotRequest():
                self._on_fetch_snapshot(message, now_ms)
            case FetchSnapshotResponse():
                self._on_fetch_snapshot_response(message, now_ms)
            case AddVoterRequest() | RemoveVoterRequest() | UpdateVoterRequest():
                self._on_voter_change(message, now_ms)
            case BeginQuorumEpochResponse() | EndQuorumEpochResponse() | VoterChangeResponse():
                if not self.is_barred:
                    self._learn(message.epoch, message.leader, now_ms)
        return self._finish(now_ms)

    def on_persisted(self, now_ms: int) -> Effects:
        """What the last effects asked to persist is on disk: go on from there."""
        assert self._persisting is not None, "nothing was to be persisted"
        self._on_disk, self._persisting = self._persisting, None
        if self.is_settled and self.role is Role.CANDIDATE and self.election is not None:
            self.election.grant(self.me.node_id)
            self._count(self.election, now_ms)
        elif self.is_settled and self.leadership is not None:
            if self.leadership.epoch_start == NO_OFFSET:
                self._wish_lead = LeaderChange(
                    epoch=self.epoch,
                    leader=self.me.node_id,
                    voters=self.voters.node_ids,
                    granting=self.leadership.granting,
                )
                self.leadership.on_disk_owing(now_ms)
            self._begin_epoch(now_ms)
        return self._finish(now_ms)

    def on_appended(self, end: Offset, now_ms: int, *, voters: VoterSet | None = None) -> Effects:
        """The leader's log grew to `end`; the first time with the batch that `lead` asked for. If
        its last record names voters, they count from here on."""
        leadership = self._leading()
        if not self.is_leader:
            raise NotLeading(f"node {self.me.node_id} does not lead epoch {self.epoch} yet")
        if leadership.epoch_start == NO_OFFSET:
            leadership.epoch_start = self.log.end.offset
        self.log.grow(self.epoch, end, voters)
        leadership.on_disk_owing(now_ms)
        if voters is not None and leadership.change is not None:
            leadership.change.on_appended(end)
        self._answer_parked(now_ms)
        return self._finish(now_ms)

    def on_durable(self, offset: Offset, now_ms: int) -> Effects:
        """The own log is on disk up to `offset`."""
        assert offset <= self.log.end.offset, (offset, self.log.end)
        assert offset >= self.log.durable, "what was on disk is gone"
        self.log.durable = offset
        if self.leadership is not None:
            self.leadership.on_disk_progress(self.log, now_ms)
            self._advance(now_ms)
        return self._finish(now_ms)

    def on_snapshot(self, snapshot: SnapshotId, size_bytes: int, now_ms: int) -> Effects:
        """The driver wrote a snapshot of what is committed."""
        assert snapshot.end_offset <= self.high_watermark, (snapshot, self.high_watermark)
        self.snapshots[snapshot] = size_bytes
        if self.log.snapshot is None or snapshot > self.log.snapshot:
            self.log.snapshot = snapshot
        return self._finish(now_ms)

    def on_snapshot_deleted(self, snapshot: SnapshotId) -> None:
        assert snapshot != self.log.snapshot, "the newest one stands for the beginning of the log"
        self.snapshots.pop(snapshot, None)

    def on_log_start(self, snapshot: SnapshotId) -> None:
        """The driver deleted the log below the end of one of its snapshots."""
        self.log.advance_start(LogEnd(snapshot.epoch, snapshot.end_offset))

    def on_installed(
        self, snapshot: SnapshotId, *, size_bytes: int, voters: VoterSet, now_ms: int
    ) -> Effects:
        """The snapshot is in the log's place, on disk."""
        assert self._installing == snapshot, (self._installing, snapshot)
        assert self.leadership is None, "a leader never loads a snapshot"
        self._installing = None
        self.snapshots = {snapshot: size_bytes}
        self.log.replace(snapshot, voters)
        if snapshot.end_offset > self.high_watermark:
            self._commit(snapshot.end_offset)
        return self._finish(now_ms)

    def on_unreachable(self, node_id: NodeId, now_ms: int) -> Effects:
        """Its process is gone: the connection closed and a new one was refused. (A timeout is not
        that.) The voters behind a leader that is gone stand at once, one after the other."""
        if self.election is not None and self.election.on_unreachable(node_id):
            self._count(self.election, now_ms)
        fetcher = self.fetcher
        if fetcher is not None and fetcher.target == node_id:
            fetcher.on_failure(now_ms)
            self._on_leader_gone(fetcher, now_ms)
        return self._finish(now_ms)

    def on_alive(self, node_id: NodeId, now_ms: int) -> Effects:
        """For many groups on one pair of nodes: the stream between them stands for fetches that
        have nothing to bring. As a follower: that node still leads this epoch; as a leader: that
        node still follows in it."""
        if self.leadership is not None:
            voter = self.voters.find(node_id)
            if voter is not None:
                progress = self.leadership.progress_of(voter.key, self.log, now_ms)
                progress.heard_ms = now_ms
        elif self.fetcher is not None and self.role is Role.FOLLOWER and node_id == self.leader:
            self.fetcher.on_heard(now_ms)
        return self._finish(now_ms)

    def resign(self, now_ms: int, *, preferred: NodeId | None = None) -> Effects:
        """Gives up an epoch that this replica leads, for good, and hands over: before a stop, for
        a preferred leader, for a disk that the driver does not trust."""
        self._leading()
        self._resign(now_ms, preferred)
        return self._finish(now_ms)

    # ── lives: a group that is begun and ended from above ────────────────────────────────────

    def begin_life(self, life: Epoch, leader: NodeId, now_ms: int) -> Effects:
        """From now on this group elects its leaders itself, beginning with the one that `life`, an
        epoch, already has. Replaces whatever an earlier life left in the hard state, even a higher
        epoch. A leader's log must already hold a batch of that epoch."""
        if life <= self.life:
            return NOTHING
        self._leave_role()
        self.hard_state = HardState(life, leader, None, life)
        if leader == self.me.node_id:
            self.role = Role.LEADER
            self.leadership = Leadership(self.me, (), self.settings, now_ms)
            self.leadership.epoch_start = self.log.start_of(life)
            assert self.leadership.epoch_start != NO_OFFSET, "no batch of its own epoch"
        else:
            self.role = Role.FOLLOWER
            self.fetcher = Fetcher(leader, self.settings, now_ms)
        if self._trace is not None:
            self._trace(f"{self.role.value}: life {life} begins")
        return self._finish(now_ms)

    def leave_life(self, epoch: Epoch, now_ms: int) -> Effects:
        """An election that the controller wins: this replica votes for it in `epoch` and is barred
        until the next life. Nothing happens if it already knows a higher epoch (see `epoch`)."""
        if epoch <= self.epoch:
            return NOTHING
        self._become_unattached(epoch, now_ms)
        self._move(Cause.VOTE_GIVEN)
        self._leave_role()
        self.hard_state = HardState(epoch, NO_NODE, CONTROLLER, self.life)
        return self._finish(now_ms)

    # ── elections ────────────────────────────────────────────────────────────────────────────

    def _stand(self, now_ms: int) -> None:
        """Asks in advance (KIP-996); an only voter wins by asking itself."""
        if not self.is_voter or self.is_barred or self._installing is not None:
            self._stand_ms = None
            if self._installing is not None:
                self._stand_ms = now_ms + self._election_timeout_ms()
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
        return self.leader == NO_NODE and self.hard_state.voted_for in (None, request.sender)

    def _give_vote(self, request: VoteRequest, now_ms: int) -> None:
        if self.role is not Role.VOTED:
            self._leave_role()
            self._move(Cause.VOTE_GIVEN)
        self.hard_state = HardState(self.epoch, NO_NODE, request.sender, self.life)
        self._await_leader(now_ms)

    def _is_meant(self, request: VoteRequest | BeginQuorumEpochRequest) -> bool:
        """A node that came back with another disk must not answer for the old one."""
        to = request.to
        return to.node_id == self.me.node_id and to.directory_id in (
            ZERO_UUID,
            self.me.directory_id,
        )

    # ── following ────────────────────────────────────────────────────────────────────────────

    def _on_begin_epoch(self, request: BeginQuorumEpochRequest, now_ms: int) -> None:
        if not self._is_meant(request):
            self._answer(request, Error.WRONG_VOTER)
            return
        if request.epoch < self.epoch or (
            request.epoch == self.epoch and self.leader not in (NO_NODE, request.sender.node_id)
        ):
            self._answer(request, Error.FENCED_EPOCH)
            return
        self._learn(request.epoch, request.sender.node_id, now_ms)
        if self.role is Role.PROSPECTIVE:
            # It had lost patience with this very leader.
            self._become_follower(self.leader, now_ms)
        self._answer(request)

    def _on_end_epoch(self, request: EndQuorumEpochRequest, now_ms: int) -> None:
        if request.epoch < self.epoch:
            self._answer(request, Error.FENCED_EPOCH)
            return
        if request.epoch > self.epoch:
            self._become_unattached(request.epoch, now_ms)
        follows = self.role is Role.FOLLOWER and self.leader == request.sender.node_id
        if self.is_voter and (follows or self.role in (Role.UNATTACHED, Role.VOTED)):
            nodes = [key.node_id for key in request.successors]
            if self.me.node_id in nodes:
                self._stand_in_turn(nodes.index(self.me.node_id), now_ms)
        self._answer(request)

    def _stand_in_turn(self, position: int, now_ms: int) -> None:
        """The leader is known to be gone: the successors stand one slot apart, and meanwhile help
        each other."""
        slot_ms = self.settings.succession_slot_ms
        when_ms = now_ms + position * slot_ms + self._chance(max(slot_ms // 2, 1))
        if self.fetcher is not None:
            self.fetcher.heard = False
            self.fetcher.silence_deadline_ms = when_ms
        else:
            self._stand_ms = when_ms

    def _on_leader_gone(self, fetcher: Fetcher, now_ms: int) -> None:
        if self.is_voter:
            others = [node for node in self.voters.node_ids if node != fetcher.target]
            self._stand_in_turn(others.index(self.me.node_id), now_ms)
        else:
            fetcher.silence_deadline_ms = now_ms

    def _mind_fetcher(self, fetcher: Fetcher, now_ms: int) -> None:
        if fetcher.in_flight is not None and now_ms >= fetcher.request_deadline_ms:
            fetcher.on_failure(now_ms)
        if now_ms < fetcher.silence_deadline_ms:
            return
        if not self.is_voter:
            self._seek(now_ms)
        elif self.log.durable < self.log.end.offset or self._installing is not None:
            # It did not ask, because its own disk is slow: no reason to stand, but none to stand
            # in the way of others either.
            fetcher.heard = False
            fetcher.silence_deadline_ms = now_ms + self.settings.fetch_timeout_ms
        else:
            self._stand(now_ms)

    def _fetcher_of(
        self, response: FetchResponse | FetchSnapshotResponse, now_ms: int
    ) -> Fetcher | None:
        """The fetcher that waits for this answer; None: nobody does, or it brings an error."""
        if self.is_barred:
            return None
        self._learn(response.epoch, response.leader, now_ms)
        fetcher = self.fetcher
        if (
            fetcher is None
            or fetcher.in_flight != response.request_id
            or fetcher.target != response.sender
        ):
            return None
        is_leaders = response.epoch == self.epoch and response.sender == self.leader
        if response.error is not Error.NONE or not is_leaders or self.role is not Role.FOLLOWER:
            fetcher.on_failure(now_ms)
            if response.error in (Error.SNAPSHOT_NOT_FOUND, Error.POSITION_OUT_OF_RANGE):
                fetcher.download = None
            if not self.is_voter:
                fetcher.silence_deadline_ms = min(fetcher.silence_deadline_ms, fetcher.next_ms)
            elif is_leaders and response.error is Error.NOT_LEADER and fetcher.heard:
                # It resigned, or restarted; the message that said so got lost.
                self._on_leader_gone(fetcher, now_ms)
            return None
        fetcher.on_answer(now_ms)
        fetcher.on_heard(now_ms)
        return fetcher

    def _on_fetch_response(self, response: FetchResponse, now_ms: int) -> None:
        fetcher = self._fetcher_of(response, now_ms)
        if fetcher is None:
            return
        if response.snapshot is not None:
            if response.snapshot.end_offset < self.high_watermark:
                raise CommittedAtRisk(f"{response.snapshot} lies below {self.high_watermark}")
            fetcher.download = SnapshotDownload(response.snapshot)
        elif response.diverging is not None:
            self._truncate(self.log.truncation_for(response.diverging))
        else:
            if response.entries is not None:
                self._append(response.entries)
            committed = min(response.high_watermark, self.log.end.offset)
            if committed > self.high_watermark:
                self._commit(committed)

    def _truncate(self, to: Offset) -> None:
        if to < self.high_watermark or to >= self.log.end.offset:
            raise CommittedAtRisk(
                f"the leader of epoch {self.epoch} wants the log cut at {to};"
                f" committed {self.high_watermark}, end {self.log.end.offset}"
            )
        self.log.truncate(to)
        self._wish_truncate = to

    def _append(self, entries: LogSlice) -> None:
        first, last = entries.epochs[0][0], entries.epochs[-1][0]
        if entries.base != self.log.end.offset or not self.log.end.epoch <= first <= last:
            raise CommittedAtRisk(f"records from {entries.base} do not follow {self.log.end}")
        if last > self.epoch:
            raise CommittedAtRisk(f"records of epoch {last} from the leader of {self.epoch}")
        self.log.append(entries)
        self._wish_append = entries

    def _on_fetch_snapshot_response(self, response: FetchSnapshotResponse, now_ms: int) -> None:
        fetcher = self._fetcher_of(response, now_ms)
        if fetcher is None or fetcher.download is None:
            return
        chunk = fetcher.download.on_chunk(response)
        if chunk is None:
            fetcher.on_failure(now_ms)
            return
        self._wish_chunk = chunk
        if fetcher.download.is_complete:
            fetcher.download = None
            self._wish_install = self._installing = chunk.snapshot

    def statistics(self) -> dict[str, int | str]:
        return {
            "role": self.role.value,
            "epoch": self.epoch,
            "leader": self.leader,
            "high_watermark": self.high_watermark,
            "log_end_offset": self.log.end.offset,
            "voters": len(self.voters.voters),
        }
