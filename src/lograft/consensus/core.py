"""The Raft core of one replica: what happened goes in, `Effects` come out.

The driver's side of the contract is in the docstring of the room (`consensus/__init__.py`).

The core owns what belongs to the replica in every role: hard state, log, high watermark, role. What
belongs to one role is an object that lives as long as the role does: `Election`, `Fetcher` (with
`SnapshotDownload`), `Leadership` (with `VoterChange`). Every public method ends in `_finish`, which
turns what was gathered on the way into `Effects`. As long as the newest hard state is not on disk,
messages stay inside.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final
from uuid import UUID

from lograft.consensus.election import Election
from lograft.consensus.errors import CommittedAtRisk, NotLeading
from lograft.consensus.fetcher import Fetcher, SnapshotDownload
from lograft.consensus.leadership import Leadership
from lograft.consensus.log_view import LogView
from lograft.consensus.messages import (
    RESPONSE_OF,
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
    Request,
    Response,
    UpdateVoterRequest,
    UpgradeVersionRequest,
    VoterChangeRequest,
    VoterChangeResponse,
    VoteRequest,
    VoteResponse,
    is_plausible,
)
from lograft.consensus.roles import Cause, Role, next_role
from lograft.consensus.types import (
    CONTROLLER,
    NOTHING,
    Chance,
    Effects,
    HardState,
    LeaderChange,
    LogEnd,
    LogSlice,
    RaftSettings,
    ReplicaKey,
    Send,
    SnapshotId,
    VoterSet,
)
from lograft.consensus.voter_change import Stage, VoterChange, changed, changed_static
from lograft.model.types import NO_EPOCH, NO_NODE, NO_OFFSET, ZERO_UUID, Epoch, NodeId, Offset

#: Messages held back while the hard state is being written. Any message may get lost anyway, so
#: the oldest goes first.
HELD_MAX: Final = 1_000


def middle(bound: int) -> int:
    """The chance of those who brought none."""
    return bound // 2


class RaftCore:
    def __init__(
        self,
        me: ReplicaKey,
        voters: VoterSet,
        *,
        hard_state: HardState,
        log_end: LogEnd,
        high_watermark: Offset = NO_OFFSET,
        settings: RaftSettings | None = None,
        chance: Chance = middle,
        epochs: Iterable[tuple[Epoch, Offset]] = (),
        voter_history: Iterable[tuple[Offset, VoterSet]] = (),
        log_start: LogEnd | None = None,
        snapshot: SnapshotId | None = None,
        snapshot_size_bytes: int = 0,
        bootstrap: tuple[NodeId, ...] = (),
        view: type[LogView] = LogView,
        first_request_id: int = 0,
        past_directories: Iterable[UUID] = (),
        trace: Callable[[str], None] | None = None,
    ) -> None:
        """`voters` is the set at the beginning of the log (or of its snapshot, or configuration),
        `voter_history` what the log itself holds, `epochs` where each epoch of the log begins."""
        #: The name of this replica: its node and the log dir that it lies in now.
        self.key = me
        #: Ids of the log dirs from which it was moved here with all it had on disk, its votes
        #: included. It is the same replica, so it answers to these names too.
        self.past_directories = frozenset(past_directories)
        self.settings = RaftSettings() if settings is None else settings
        self.log = view(
            log_end,
            voters,
            epochs=epochs,
            voter_history=voter_history,
            start=log_start,
            snapshot=snapshot,
        )
        #: Sizes of the snapshots that others may fetch.
        self.snapshots: dict[SnapshotId, int] = {}
        if snapshot is not None:
            self.snapshots[snapshot] = snapshot_size_bytes
            high_watermark = max(high_watermark, snapshot.end_offset)
        #: The newest state that is, or is about to be, on disk.
        self.hard_state = hard_state
        #: Everything below is committed. NO_OFFSET: not known in this life of the replica yet.
        self.high_watermark = high_watermark
        self.role = self._role_after_restart()
        #: When `tick` must be called at the latest; None: time changes nothing.
        self.deadline_ms: int | None = None
        #: While PROSPECTIVE or CANDIDATE.
        self.election: Election | None = None
        #: While FOLLOWER, and while an observer looks for a leader.
        self.fetcher: Fetcher | None = None
        #: While LEADER.
        self.leadership: Leadership | None = None
        #: While UNATTACHED, VOTED or RESIGNED: when a voter stands.
        self._stand_ms: int | None = None
        #: Elections since there was a leader.
        self._attempts = 0
        #: A snapshot that the driver is putting in the log's place.
        self._installing: SnapshotId | None = None
        #: Who an observer asks for the leader, besides the voters it knows.
        self._bootstrap = bootstrap
        self._asked_last = 0
        self._chance = chance
        self._trace = trace
        self._next_request_id = first_request_id
        self._on_disk = hard_state
        self._persisting: HardState | None = None
        #: What this call has to say so far; `_finish` hands it out.
        self._wishes = NOTHING
        self._sends: list[Send] = []
        #: Requests that only a leader could answer, from when this replica was one.
        self._orphans: list[Request] = []

    # ── what others may ask ──────────────────────────────────────────────────────────────────

    @property
    def me(self) -> ReplicaKey:
        """The name under which the voters know this replica; else that of its log dir."""
        if self.past_directories:
            voter = self.log.voters.find(self.key.node_id)
            if voter is not None and voter.key.directory_id in self.past_directories:
                return voter.key
        return self.key

    @property
    def unlisted_directory(self) -> UUID:
        """The log dir of a voter that is known by another one, or by none; else ZERO_UUID."""
        if not self.is_voter:
            return ZERO_UUID
        voter = self.log.voters.find(self.key.node_id)
        is_listed = voter is None or voter.key == self.key
        return ZERO_UUID if is_listed else self.key.directory_id

    def has_name(self, key: ReplicaKey) -> bool:
        return key.names(self.key) or (
            key.node_id == self.key.node_id and key.directory_id in self.past_directories
        )

    @property
    def epoch(self) -> Epoch:
        return self.hard_state.epoch

    @property
    def leader(self) -> NodeId:
        return self.hard_state.leader

    @property
    def life(self) -> Epoch:
        return self.hard_state.life

    @property
    def voters(self) -> VoterSet:
        return self.log.voters

    @property
    def log_end(self) -> LogEnd:
        return self.log.end

    @property
    def is_voter(self) -> bool:
        return self.log.voters.has(self.me)

    @property
    def is_settled(self) -> bool:
        return self._on_disk is self.hard_state or self._on_disk == self.hard_state

    @property
    def persisting(self) -> HardState | None:
        """What was to be persisted and is not known to be on disk yet."""
        return self._persisting

    @property
    def is_leader(self) -> bool:
        """Leads, and its epoch is on disk: it may append."""
        return self.role is Role.LEADER and self.is_settled

    @property
    def is_barred(self) -> bool:
        """Its life was ended from above: it neither stands, votes, appends nor acknowledges."""
        return self.hard_state.voted_for == CONTROLLER

    def _role_after_restart(self) -> Role:
        state = self.hard_state
        if state.leader == self.me.node_id:
            # Its tail may be gone with the page cache: it may not go on in an epoch it led.
            return Role.RESIGNED
        if state.leader != NO_NODE:
            return Role.FOLLOWER
        return Role.UNATTACHED if state.voted_for is None else Role.VOTED

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

    # ── from role to role ────────────────────────────────────────────────────────────────────

    def _move(self, cause: Cause) -> None:
        before, self.role = self.role, next_role(self.role, cause)
        if self._trace is not None:
            self._trace(f"{before.value} -> {self.role.value}: {cause.value}")

    def _leave_role(self) -> None:
        if self.leadership is not None:
            self._wish(unlead=self.epoch, lead=None, append_voters=None)
            self._orphans += [request for request, _ in self.leadership.parked.values()]
            if self.leadership.change is not None:
                self._orphans.append(self.leadership.change.request)
        self.leadership = self.election = self.fetcher = self._stand_ms = None

    def _become_unattached(self, epoch: Epoch, now_ms: int) -> None:
        """A higher epoch exists: whatever this replica was, it is over."""
        assert epoch > self.epoch, (epoch, self.hard_state)
        self._leave_role()
        self._move(Cause.HIGHER_EPOCH)
        self.hard_state = HardState(epoch, NO_NODE, None, self.life)
        self._await_leader(now_ms)

    def _become_follower(self, leader: NodeId, now_ms: int) -> None:
        assert leader not in (NO_NODE, self.me.node_id), leader
        assert self.leader in (NO_NODE, leader), (self.hard_state, leader)
        self._leave_role()
        self._move(Cause.LEADER_FOUND)
        self.hard_state = HardState(self.epoch, leader, None, self.life)
        self._attempts = 0
        self.fetcher = self._fetcher(leader, now_ms)

    def _learn(self, epoch: Epoch, leader: NodeId, now_ms: int) -> None:
        """What an answer says about who leads."""
        if epoch > self.epoch:
            self._become_unattached(epoch, now_ms)
        if epoch < self.epoch or leader in (NO_NODE, self.me.node_id):
            return
        if self.leader == NO_NODE:
            self._become_follower(leader, now_ms)

    def _await_leader(self, now_ms: int) -> None:
        """A voter stands after a while; an observer asks around."""
        if self.is_voter:
            self._stand_ms = now_ms + self._election_timeout_ms()
        else:
            self._seek(now_ms)

    def _seek(self, now_ms: int) -> None:
        nodes = [*self.log.voters.node_ids, *self._bootstrap]
        others = [node for node in nodes if node != self.me.node_id]
        if not others:
            self.fetcher = None
            return
        self._asked_last = (self._asked_last + 1) % len(others)
        self.fetcher = self._fetcher(others[self._asked_last], now_ms)

    def _fetcher(self, target: NodeId, now_ms: int) -> Fetcher:
        # The followers of one leader must not lose patience all at once.
        jitter_ms = self._chance(max(self.settings.election_timeout_ms // 2, 1))
        return Fetcher(
            target,
            self.settings,
            patience_ms=self.settings.fetch_timeout_ms + jitter_ms,
            now_ms=now_ms,
        )

    def _election_timeout_ms(self) -> int:
        timeout_ms = self.settings.election_timeout_ms
        return timeout_ms + self._chance(timeout_ms)

    def _backoff_ms(self) -> int:
        """After a lost election: by chance, up to a bound that doubles with each."""
        slot_ms = self.settings.succession_slot_ms
        bound_ms = min(slot_ms << min(self._attempts, 10), self.settings.election_backoff_max_ms)
        return slot_ms // 2 + self._chance(max(bound_ms, 1))

    # ── electing and voting ──────────────────────────────────────────────────────────────────

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
        is_mine = request.sender.node_id == self.leader != self.me.node_id
        if self.role is Role.PROSPECTIVE and is_mine:
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
                self._stand_in_turn(nodes.index(self.me.node_id), now_ms, is_named=True)
        self._answer(request)

    def _stand_in_turn(self, position: int, now_ms: int, *, is_named: bool = False) -> None:
        """The leader is known to be gone: the successors stand one slot apart, and meanwhile help
        each other. Hearing of it again, as of every refused connection, puts nothing off. Only the
        turn that a resigning leader names replaces the one that was guessed when it answered a
        fetch with NOT_LEADER, which may arrive before its EndQuorumEpoch."""
        slot_ms = self.settings.succession_slot_ms
        when_ms = now_ms + position * slot_ms + self._chance(max(slot_ms // 2, 1))
        fetcher = self.fetcher
        if fetcher is None:
            self._stand_ms = when_ms
            return
        fetcher.heard = False
        if is_named and not fetcher.has_turn:
            fetcher.has_turn = True
            fetcher.silence_deadline_ms = when_ms
        else:
            fetcher.silence_deadline_ms = min(fetcher.silence_deadline_ms, when_ms)

    def _on_leader_gone(self, fetcher: Fetcher, now_ms: int, *, slots_later: int = 0) -> None:
        if self.is_voter:
            others = [node for node in self.voters.node_ids if node != fetcher.target]
            self._stand_in_turn(others.index(self.me.node_id) + slots_later, now_ms)
        else:
            # An observer asks the next one; not at once, for maybe nobody is there.
            fetcher.silence_deadline_ms = fetcher.next_ms

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
                # It resigned, and its EndQuorumEpoch is on its way or lost; or it restarted.
                self._on_leader_gone(fetcher, now_ms, slots_later=1)
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
        self._wish(truncate=to)

    def _append(self, entries: LogSlice) -> None:
        if not entries.follows(self.log.end):
            raise CommittedAtRisk(f"{entries} does not follow {self.log.end}")
        last = entries.epochs[-1][0]
        if last > self.epoch:
            raise CommittedAtRisk(f"records of epoch {last} from the leader of {self.epoch}")
        self.log.append(entries)
        self._wish(append=entries)

    def _on_fetch_snapshot_response(self, response: FetchSnapshotResponse, now_ms: int) -> None:
        fetcher = self._fetcher_of(response, now_ms)
        if fetcher is None or fetcher.download is None:
            return
        chunk = fetcher.download.on_chunk(response)
        if chunk is None:
            fetcher.on_failure(now_ms)
            return
        self._wish(chunk=chunk)
        if fetcher.download.is_complete:
            fetcher.download = None
            self._installing = chunk.snapshot
            self._wish(install=chunk.snapshot)

    def _leading(self) -> Leadership:
        if self.leadership is None:
            raise NotLeading(f"node {self.me.node_id} does not lead epoch {self.epoch}")
        return self.leadership

    # ── leading: fetches ─────────────────────────────────────────────────────────────────────

    def _epoch_error(self, request: FetchRequest | FetchSnapshotRequest) -> Error:
        if request.epoch < self.epoch:
            return Error.FENCED_EPOCH
        if request.epoch > self.epoch:
            return Error.UNKNOWN_EPOCH
        return Error.NOT_LEADER if self.leadership is None else Error.NONE

    def _on_fetch(self, request: FetchRequest, now_ms: int) -> None:
        error = self._epoch_error(request)
        if error is not Error.NONE:
            self._answer(request, error)
            return
        leadership = self._leading()
        leadership.progress_of(request.sender, self.log, now_ms).heard_ms = now_ms
        difference = self.log.compare(request.log_end)
        if isinstance(difference, SnapshotId):
            self._answer(request, snapshot=difference, high_watermark=self.high_watermark)
        elif isinstance(difference, LogEnd):
            self._answer(request, diverging=difference, high_watermark=self.high_watermark)
        else:
            leadership.on_fetch(request.sender, request.log_end.offset, self.log, now_ms)
            # One question at a time: the same replica's older one need not wait any more.
            if (older := leadership.parked.pop(request.sender, None)) is not None:
                self._answer(older[0], high_watermark=self.high_watermark)
            leadership.parked[request.sender] = (request, now_ms + request.wait_ms)
            self._advance(now_ms)
            self._answer_parked(now_ms)

    def _answer_parked(self, now_ms: int) -> None:
        """Those for whom there is something new, or who waited long enough."""
        if self.leadership is None:
            return
        parked = self.leadership.parked
        for sender, (request, deadline_ms) in list(parked.items()):
            has_more = request.log_end.offset < self.log.end.offset
            if has_more or request.high_watermark < self.high_watermark or now_ms >= deadline_ms:
                del parked[sender]
                self._answer(
                    request,
                    high_watermark=self.high_watermark,
                    read_from=request.log_end.offset if has_more else NO_OFFSET,
                )

    def _on_fetch_snapshot(self, request: FetchSnapshotRequest, now_ms: int) -> None:
        error = self._epoch_error(request)
        if error is not Error.NONE:
            self._answer(request, error)
            return
        self._leading().progress_of(request.sender, self.log, now_ms).heard_ms = now_ms
        size_bytes = self.snapshots.get(request.snapshot)
        if size_bytes is None:
            self._answer(request, Error.SNAPSHOT_NOT_FOUND)
        elif not 0 <= request.position < size_bytes:
            self._answer(request, Error.POSITION_OUT_OF_RANGE)
        else:
            self._answer(
                request,
                snapshot=request.snapshot,
                position=request.position,
                size_bytes=size_bytes,
            )

    # ── leading: committing, the voters ──────────────────────────────────────────────────────

    def _advance(self, now_ms: int) -> None:
        """A replica got further: maybe that moves the high watermark, or the voters' change."""
        leadership = self._leading()
        reached = leadership.committed(self.log)
        if reached > self.high_watermark:
            self._commit(reached)
        self._advance_change(now_ms)
        if self.leadership is not None:
            self._answer_parked(now_ms)

    def _on_voter_change(self, request: VoterChangeRequest, now_ms: int) -> None:
        if not self.is_leader:
            self._answer(request, Error.NOT_LEADER)
            return
        if self.log.voters.is_static:
            voters = changed_static(
                self.log.voters,
                request,
                leader=self.me,
                described=self._leading().described,
                may_change=self._may_change_voters(),
            )
        elif not self._may_change_voters():
            voters = Error.CHANGE_IN_PROGRESS
        elif isinstance(request, UpgradeVersionRequest):
            voters = Error.NONE  # it has that level
        else:
            voters = changed(self.log.voters, request)
        if isinstance(voters, Error):
            self._answer(request, voters)
            return
        self._leading().change = VoterChange(
            request,
            voters,
            target=self.log.end.offset,
            deadline_ms=now_ms + self.settings.voter_change_timeout_ms,
        )
        self._advance_change(now_ms)

    def _may_change_voters(self) -> bool:
        """One at a time, each committed before the next, and only once this leader has committed
        something of its own epoch."""
        leadership = self._leading()
        return (
            leadership.change is None
            and self.log.voters_offset < self.high_watermark
            and NO_OFFSET < leadership.epoch_start < self.high_watermark
        )

    def _advance_change(self, now_ms: int) -> None:
        leadership = self._leading()
        change = leadership.change
        if change is not None and change.stage is Stage.CATCHING_UP:
            newcomer = change.newcomer
            if newcomer is None or (
                leadership.progress_of(newcomer, self.log, now_ms).durable >= change.target
            ):
                change.stage = Stage.APPENDING
                self._wish(append_voters=change.voters)
        elif change is not None and NO_OFFSET < change.end <= self.high_watermark:
            leadership.change = None
            self._answer(change.request)
        if not self.is_voter and self.log.voters_offset < self.high_watermark:
            # It led its own removal; that is done, and the others go on without it.
            self._resign(now_ms)

    # ── leading: time ────────────────────────────────────────────────────────────────────────

    def _tend(self, now_ms: int) -> None:
        """What time does to a leader."""
        leadership = self._leading()
        majority_ms = leadership.majority_deadline_ms(self.log)
        disk_ms = leadership.disk_deadline_ms()
        if (majority_ms is not None and now_ms >= majority_ms) or (
            disk_ms is not None and now_ms >= disk_ms
        ):
            self._resign(now_ms)
            return
        change = leadership.change
        if change is not None and now_ms >= change.deadline_ms:
            leadership.change = None
            self._answer(change.request, Error.TIMED_OUT)
        self._answer_parked(now_ms)
        self._begin_epoch(now_ms)

    def _begin_epoch(self, now_ms: int) -> None:
        for key in self._leading().to_begin(self.log, now_ms):
            request = BeginQuorumEpochRequest(
                sender=self.me,
                to=key,
                epoch=self.epoch,
                request_id=self._number(),
                life=self.life,
            )
            self._send(key.node_id, request)

    def _resign(self, now_ms: int, preferred: NodeId | None = None) -> None:
        """Tells the voters in whose turn to stand; stands itself only after all of them."""
        successors = self._leading().successors(self.log, preferred)
        for key in successors:
            request = EndQuorumEpochRequest(
                sender=self.me,
                epoch=self.epoch,
                successors=successors,
                request_id=self._number(),
                life=self.life,
            )
            self._send(key.node_id, request)
        self._leave_role()
        self._move(Cause.RESIGNATION)
        if self.is_voter:
            self._stand_ms = now_ms + 2 * self._election_timeout_ms()
        else:
            self._seek(now_ms)

    # ── gathering ────────────────────────────────────────────────────────────────────────────

    def _number(self, count: int = 1) -> int:
        first = self._next_request_id
        self._next_request_id += count
        return first

    def _send(self, to: NodeId, message: Request | Response) -> None:
        self._sends.append(Send(to, message))
        if len(self._sends) > HELD_MAX:
            del self._sends[0]

    def _answer(self, request: Request, error: Error = Error.NONE, **fields: object) -> None:
        sender = request.sender
        to = sender.node_id if isinstance(sender, ReplicaKey) else sender
        # Whoever lives another life learns nothing from this one.
        known = error is not Error.WRONG_LIFE
        response = RESPONSE_OF[type(request)](
            sender=self.me.node_id,
            epoch=self.epoch if known else NO_EPOCH,
            leader=self.leader if known else NO_NODE,
            error=error,
            request_id=request.request_id,
            **fields,
        )
        self._send(to, response)

    def _wish(self, **parts: Any) -> None:
        self._wishes = self._wishes._replace(**parts)

    def _commit(self, offset: Offset) -> None:
        assert offset > self.high_watermark, (offset, self.high_watermark)
        self.high_watermark = offset
        self._wish(committed=offset)

    def _finish(self, now_ms: int) -> Effects:
        if self._orphans:
            self._answer_orphans()
        if self.fetcher is not None:
            self._pull(self.fetcher, now_ms)
        self.deadline_ms = self._next_deadline_ms(now_ms)
        if not self.is_settled:
            unlead, persist = self._wishes.unlead, None
            if unlead is not None:
                self._wish(unlead=None)
            if self._persisting is None:
                persist = self._persisting = self.hard_state
            return Effects(persist=persist, unlead=unlead)
        effects, self._wishes = self._wishes, NOTHING
        if self._sends:
            effects = effects._replace(send=tuple(self._sends))
            self._sends = []
        return effects

    def _answer_orphans(self) -> None:
        for request in self._orphans:
            self._answer(request, Error.WRONG_LIFE if self.is_barred else Error.NOT_LEADER)
        self._orphans = []

    def _pull(self, fetcher: Fetcher, now_ms: int) -> None:
        """The next fetch, if it is time; it tells what is on disk, so it waits for the disk."""
        if not fetcher.may_ask(now_ms) or self._installing is not None:
            return
        request: Request
        if fetcher.download is not None:
            request = FetchSnapshotRequest(
                sender=self.me,
                epoch=self.epoch,
                snapshot=fetcher.download.snapshot,
                position=fetcher.download.position,
                request_id=self._number(),
                life=self.life,
            )
        elif self.log.durable >= self.log.end.offset:
            request = FetchRequest(
                sender=self.me,
                epoch=self.epoch,
                log_end=self.log.end,
                high_watermark=self.high_watermark,
                wait_ms=self.settings.fetch_wait_ms,
                request_id=self._number(),
                life=self.life,
            )
        else:
            return
        fetcher.on_sent(request.request_id, now_ms)
        self._send(fetcher.target, request)

    def _next_deadline_ms(self, now_ms: int) -> int | None:
        if self.leadership is not None:
            return self.leadership.deadline_ms(self.log)
        if self.election is not None:
            return self.election.deadline_ms
        fetcher = self.fetcher
        if fetcher is None:
            return self._stand_ms
        due = [fetcher.silence_deadline_ms]
        # Between the answer and the disk there is nothing to wait for but the disk.
        if fetcher.in_flight is not None or fetcher.next_ms > now_ms:
            due.append(fetcher.deadline_ms)
        return min(due)
