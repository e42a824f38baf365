"""The Raft core of one replica: what happened goes in, `Effects` come out.

The driver's side of the contract is in the docstring of the room (`consensus/__init__.py`).
"""

from collections.abc import Iterable, Mapping
from uuid import UUID

from lograft.consensus.errors import NotLeading
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
    PeerRequest,
    RemoveVoterRequest,
    RenameVoterRequest,
    UpdateVoterRequest,
    UpgradeVersionRequest,
    VoterChangeResponse,
    VoteRequest,
    VoteResponse,
    is_plausible,
)
from lograft.consensus.roles import Cause, Role
from lograft.consensus.types import (
    CONTROLLER,
    NOTHING,
    Effects,
    HardState,
    LeaderChange,
    LogEnd,
    ReplicaKey,
    SnapshotId,
    VoterSet,
)
from lograft.model.types import NO_NODE, NO_OFFSET, Epoch, NodeId, Offset


class RaftCore(LeaderSide):
    # ── what the driver tells ────────────────────────────────────────────────────────────────

    def start(self, now_ms: int) -> Effects:
        """An only voter has nobody to hear from: it stands at once."""
        if self.is_barred:
            return self._finish(now_ms)
        if self.voters.is_only(self.me):
            self._stand(now_ms)
        elif self.role is Role.FOLLOWER:
            self.fetcher = self._fetcher(self.leader, now_ms)
        elif self.is_voter:
            # Sooner than later on: asking in advance disturbs nobody, and clients wait.
            self._stand_ms = now_ms + self._chance(max(self.settings.election_timeout_ms // 4, 1))
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
        if isinstance(message, PeerRequest):
            refusal = self._refusal(message)
            if refusal is not None:
                self._answer(message, refusal)
                return self._finish(now_ms)
        match message:
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
            case (
                AddVoterRequest()
                | RemoveVoterRequest()
                | UpdateVoterRequest()
                | UpgradeVersionRequest()
                | RenameVoterRequest()
            ):
                self._on_voter_change(message, now_ms)
            case BeginQuorumEpochResponse() | EndQuorumEpochResponse() | VoterChangeResponse():
                if not self.is_barred:
                    self._learn(message.epoch, message.leader, now_ms)
        return self._finish(now_ms)

    def _refusal(self, request: PeerRequest) -> Error | None:
        """Why a request is not looked at any further."""
        if request.life != self.life or self.is_barred:
            return Error.WRONG_LIFE
        return None if is_plausible(request, self.epoch) else Error.INVALID

    def on_persisted(self, now_ms: int) -> Effects:
        """What the last effects asked to persist is on disk: go on from there."""
        assert self._persisting is not None, "nothing was to be persisted"
        self._on_disk, self._persisting = self._persisting, None
        if self.is_settled and self.role is Role.CANDIDATE and self.election is not None:
            self.election.grant(self.me.node_id)
            self._count(self.election, now_ms)
        elif self.is_settled and self.leadership is not None:
            if self.leadership.epoch_start == NO_OFFSET:
                change = LeaderChange(
                    epoch=self.epoch,
                    leader=self.me.node_id,
                    voters=self.voters.node_ids,
                    granting=self.leadership.granting,
                )
                self._wish(lead=change)
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
        if voters is not None and self.voters.is_static:
            leadership.on_directories_known(voters)
        self.log.grow(self.epoch, end, voters)
        leadership.on_disk_owing(now_ms)
        if voters is not None and leadership.change is not None:
            leadership.change.on_appended(end)
            request = leadership.change.request
            if isinstance(request, RenameVoterRequest):
                new = ReplicaKey(request.key.node_id, request.directory_id)
                leadership.rename(request.key, new)
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
        """The driver wrote a snapshot of what is committed. (And on disk in the own log: else a
        crash could leave a log that parts from the snapshot before its end.)"""
        assert snapshot.end_offset <= self.high_watermark, (snapshot, self.high_watermark)
        assert snapshot.end_offset <= self.log.durable, (snapshot, self.log.durable)
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

    def on_disconnected(self, node_id: NodeId, now_ms: int) -> Effects:
        """The connection to it broke, and with it goes the answer to what it was asked: ask again
        soon. Says nothing about the other process; whether it lives shows the next connection."""
        fetcher = self.fetcher
        if fetcher is not None and fetcher.target == node_id and fetcher.in_flight is not None:
            fetcher.on_failure(now_ms)
        return self._finish(now_ms)

    def on_unanswered(self, request_id: int, now_ms: int) -> Effects:
        """The fetch was lost, or what it brought could not be used: asked again after a while."""
        if self.fetcher is not None and self.fetcher.in_flight == request_id:
            self.fetcher.on_failure(now_ms)
        return self._finish(now_ms)

    def on_leader_known(self, epoch: Epoch, leader: NodeId, now_ms: int) -> Effects:
        """Someone who is not of the group, but knows, says who leads an epoch."""
        if not self.is_barred:
            self._learn(epoch, leader, now_ms)
        return self._finish(now_ms)

    def on_alive(self, node_id: NodeId, now_ms: int) -> Effects:
        """For many groups on one pair of nodes: the stream between them stands for fetches that
        have nothing to bring. As a follower: that node still leads this epoch; as a leader: that
        node still follows in it."""
        self.note_alive({node_id: now_ms}, now_ms)
        return self._finish(now_ms)

    def note_alive(self, heard_ms: Mapping[NodeId, int], now_ms: int) -> None:
        """The same of several nodes, each at its own time, and without effects: only `deadline_ms`
        may be later now."""
        if self.leadership is not None:
            for node_id, when_ms in heard_ms.items():
                voter = self.voters.find(node_id)
                if voter is not None:
                    progress = self.leadership.progress_of(voter.key, self.log, when_ms)
                    progress.heard_ms = max(progress.heard_ms, when_ms)
        elif self.fetcher is not None and self.role is Role.FOLLOWER:
            when = heard_ms.get(self.leader)
            if when is not None:
                self.fetcher.on_heard(when)
        self.deadline_ms = self._next_deadline_ms(now_ms)

    # ── the frequent steps of a leader, without effects ──────────────────────────────────────

    def note_appended(self, end: Offset, now_ms: int) -> bool:
        """As `on_appended` for plain records of a leader that has begun its epoch. False: do that
        instead."""
        leadership = self.leadership
        if leadership is None or leadership.parked or leadership.epoch_start == NO_OFFSET:
            return False
        if not self.is_leader:
            return False
        self.log.end = LogEnd(self.epoch, end)
        leadership.on_disk_owing(now_ms)
        disk_ms = leadership.disk_deadline_ms()
        if disk_ms is not None and (self.deadline_ms is None or disk_ms < self.deadline_ms):
            self.deadline_ms = disk_ms
        return True

    def note_progress(
        self, now_ms: int, *, sender: ReplicaKey | None = None, log_end: LogEnd
    ) -> bool | None:
        """As `on_durable` of the own log (without a sender), or as a fetch of a voter whose log is
        a prefix of this one: whether the high watermark moved. None: not so plain, do that."""
        leadership, log = self.leadership, self.log
        if leadership is None or leadership.parked or leadership.change is not None:
            return None
        if not self.is_leader or not self.is_voter:
            return None
        if sender is None:
            assert log.durable <= log_end.offset <= log.end.offset, (log_end, log.durable, log.end)
            log.durable = log_end.offset
            leadership.on_disk_progress(log, now_ms)
        else:
            if log.compare(log_end) is not None:
                return None
            leadership.on_fetch(sender, log_end.offset, log, now_ms)
        reached = leadership.committed(log)
        if reached <= self.high_watermark:
            return False
        self.high_watermark = reached
        return True

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
            self.fetcher = self._fetcher(leader, now_ms)
        if self._trace is not None:
            self._trace(f"{self.role.value}: life {life} begins")
        return self._finish(now_ms)

    def leave_life(self, epoch: Epoch, now_ms: int) -> Effects:
        """An election that the controller wins: this replica votes for it in `epoch` and is barred
        until the next life. Nothing happens if it already knows an epoch that is not below (see
        `epoch`): a higher one is needed then."""
        if epoch <= self.epoch:
            return NOTHING
        self._become_unattached(epoch, now_ms)
        self._move(Cause.VOTE_GIVEN)
        self._leave_role()
        self.hard_state = HardState(epoch, NO_NODE, CONTROLLER, self.life)
        return self._finish(now_ms)

    # ── another log dir ──────────────────────────────────────────────────────────────────────

    def on_moved(self, key: ReplicaKey, past_directories: Iterable[UUID]) -> None:
        """The log and the hard state, all of it on disk, lie in another log dir of the node."""
        assert key.node_id == self.key.node_id, (key, self.key)
        self.key, self.past_directories = key, frozenset(past_directories)
