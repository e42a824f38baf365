"""The Raft core of one replica: takes events and returns `Effects`.

The contract with the driver is in the docstring of the room (`consensus/__init__.py`), the
reasoning about elections in `election.py`.

The core owns the state of a replica that is independent of its role: hard state, log, high
watermark, role. State of a role is an object that exists as long as the replica has the role:
`Election`, `Fetcher` (with `SnapshotDownload`), `Leadership` (with `VoterChange`). Every public
method ends in `_take_effects`, which returns the effects collected during the call. As long as the
newest hard state is not on disk, it holds messages back.
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
from lograft.consensus.voter_change import Stage, VoterChange, change_static_voters, change_voters
from lograft.model.types import NO_EPOCH, NO_NODE, NO_OFFSET, ZERO_UUID, Epoch, NodeId, Offset

#: Maximum number of messages held back while the hard state is being written. Beyond it the oldest
#: is dropped, which is safe because any message may be lost.
HELD_MESSAGES_MAX: Final = 1_000


def middle(bound: int) -> int:
    """Returns half the bound: the default in place of random numbers."""
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
        """`voters` is the initial set, of the snapshot or the configuration; `voter_history` are
        the sets in the log, `epochs` the start offsets of its epochs."""
        #: Identity of this replica: its node id and the id of its current log dir.
        self.key = me
        #: Ids of the log dirs from which the replica was moved here, including its votes. It is
        #: the same replica, so it also accepts requests for these identities.
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
        #: Sizes of the snapshots that other replicas may fetch.
        self.snapshots: dict[SnapshotId, int] = {}
        if snapshot is not None:
            self.snapshots[snapshot] = snapshot_size_bytes
            high_watermark = max(high_watermark, snapshot.end_offset)
        #: The newest state, on disk or about to be written.
        self.hard_state = hard_state
        #: Everything below is committed. NO_OFFSET if unknown since the start of the process.
        self.high_watermark = high_watermark
        self.role = self._role_after_restart()
        #: Latest time for the next call of `tick`; None if no time-out is pending.
        self.deadline_ms: int | None = None
        #: While PROSPECTIVE or CANDIDATE.
        self.election: Election | None = None
        #: While FOLLOWER, and while an observer searches for the leader.
        self.fetcher: Fetcher | None = None
        #: While LEADER.
        self.leadership: Leadership | None = None
        #: While UNATTACHED, VOTED or RESIGNED: when a voter starts an election.
        self._election_due_ms: int | None = None
        #: Elections started since the last known leader.
        self._attempts = 0
        #: A snapshot with which the driver is replacing the log.
        self._installing: SnapshotId | None = None
        #: Nodes that an observer asks for the leader, in addition to the known voters.
        self._bootstrap = bootstrap
        self._last_target = 0
        self._chance = chance
        self._trace = trace
        self._next_request_id = first_request_id
        self._on_disk = hard_state
        self._unpersisted: HardState | None = None
        #: Effects of the current call so far, which `_take_effects` returns.
        self._effects = NOTHING
        self._sends: list[Send] = []
        #: Requests pending at the end of a leadership, to be rejected.
        self._orphans: list[Request] = []

    # ── state ────────────────────────────────────────────────────────────────────────────────

    @property
    def me(self) -> ReplicaKey:
        """The identity of this replica in the voter set; if not a voter, that of its log dir."""
        if self.past_directories:
            voter = self.log.voters.find(self.key.node_id)
            if voter is not None and voter.key.directory_id in self.past_directories:
                return voter.key
        return self.key

    @property
    def unlisted_directory(self) -> UUID:
        """The current log dir, if the voter set still has another one or none; else ZERO_UUID."""
        if not self.is_voter:
            return ZERO_UUID
        voter = self.log.voters.find(self.key.node_id)
        is_listed = voter is None or voter.key == self.key
        return ZERO_UUID if is_listed else self.key.directory_id

    def has_name(self, key: ReplicaKey) -> bool:
        return key.matches(self.key) or (
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
    def unpersisted_state(self) -> HardState | None:
        """The state of the last `persist` effect until it is on disk."""
        return self._unpersisted

    @property
    def is_leader(self) -> bool:
        """Leads, and its epoch is on disk: it may append."""
        return self.role is Role.LEADER and self.is_settled

    @property
    def is_barred(self) -> bool:
        """Whether the controller has ended the group's life: the replica starts no election,
        and neither votes, appends nor acknowledges."""
        return self.hard_state.voted_for == CONTROLLER

    def _role_after_restart(self) -> Role:
        state = self.hard_state
        if state.leader == self.me.node_id:
            # The tail of its log may have been lost with the page cache, so the replica must not
            # continue to lead this epoch.
            return Role.RESIGNED
        if state.leader != NO_NODE:
            return Role.FOLLOWER
        return Role.UNATTACHED if state.voted_for is None else Role.VOTED

    # ── events ───────────────────────────────────────────────────────────────────────────────

    def start(self, now_ms: int) -> Effects:
        """Starts the replica. A sole voter starts an election immediately."""
        if self.is_barred:
            return self._take_effects(now_ms)
        if self.voters.is_only(self.me):
            self._start_election(now_ms)
        elif self.role is Role.FOLLOWER:
            self.fetcher = self._fetcher(self.leader, now_ms)
        elif self.is_voter:
            # Earlier than the usual timeout: pre-votes are harmless, and clients are waiting.
            self._election_due_ms = now_ms + self._chance(
                max(self.settings.election_timeout_ms // 4, 1)
            )
        else:
            self._search_leader(now_ms)
        return self._take_effects(now_ms)

    def tick(self, now_ms: int) -> Effects:
        if self.deadline_ms is None or now_ms < self.deadline_ms:
            return NOTHING
        if self.leadership is not None:
            self._tick_leader(now_ms)
        elif self.election is not None:
            self._end_election(now_ms)
        elif self.fetcher is not None:
            self._tick_fetcher(self.fetcher, now_ms)
        else:
            self._start_election(now_ms)
        return self._take_effects(now_ms)

    def step(self, message: Message, now_ms: int) -> Effects:
        """Handles a message, which may be reordered, delayed or duplicated."""
        if isinstance(message, PeerRequest):
            error = self._request_error(message)
            if error is not None:
                self._respond(message, error)
                return self._take_effects(now_ms)
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
                    self._learn_leader(message.epoch, message.leader, now_ms)
        return self._take_effects(now_ms)

    def _request_error(self, request: PeerRequest) -> Error | None:
        """Returns the error if the request must be rejected before it is handled."""
        if request.life != self.life or self.is_barred:
            return Error.WRONG_LIFE
        return None if is_plausible(request, self.epoch) else Error.INVALID

    def on_persisted(self, now_ms: int) -> Effects:
        """The state of the last `persist` effect is on disk."""
        assert self._unpersisted is not None, "no state is being persisted"
        self._on_disk, self._unpersisted = self._unpersisted, None
        if self.is_settled and self.role is Role.CANDIDATE and self.election is not None:
            self.election.grant(self.me.node_id)
            self._count_votes(self.election, now_ms)
        elif self.is_settled and self.leadership is not None:
            if self.leadership.epoch_start == NO_OFFSET:
                change = LeaderChange(
                    epoch=self.epoch,
                    leader=self.me.node_id,
                    voters=self.voters.node_ids,
                    granting=self.leadership.granting,
                )
                self._emit(lead=change)
                self.leadership.on_unflushed(now_ms)
            self._announce_leadership(now_ms)
        return self._take_effects(now_ms)

    def on_appended(self, end: Offset, now_ms: int, *, voters: VoterSet | None = None) -> Effects:
        """The leader appended up to `end`; the first call reports the batch of the `lead` effect.
        A voter set in the last record applies from now on."""
        leadership = self._require_leadership()
        if not self.is_leader:
            raise NotLeading(f"node {self.me.node_id} does not lead epoch {self.epoch} yet")
        if leadership.epoch_start == NO_OFFSET:
            leadership.epoch_start = self.log.end.offset
        if voters is not None and self.voters.is_static:
            leadership.on_directories_known(voters)
        self.log.grow(self.epoch, end, voters)
        leadership.on_unflushed(now_ms)
        if voters is not None and leadership.change is not None:
            leadership.change.on_appended(end)
            request = leadership.change.request
            if isinstance(request, RenameVoterRequest):
                new = ReplicaKey(request.key.node_id, request.directory_id)
                leadership.rename(request.key, new)
        self._complete_fetches(now_ms)
        return self._take_effects(now_ms)

    def on_durable(self, offset: Offset, now_ms: int) -> Effects:
        """The local log is on disk up to `offset`."""
        assert offset <= self.log.end.offset, (offset, self.log.end)
        assert offset >= self.log.durable, "durable records were lost"
        self.log.durable = offset
        if self.leadership is not None:
            self.leadership.on_flushed(self.log, now_ms)
            self._advance(now_ms)
        return self._take_effects(now_ms)

    def on_snapshot(self, snapshot: SnapshotId, size_bytes: int, now_ms: int) -> Effects:
        """The driver wrote a snapshot of committed records, which are also on disk in the local
        log. Otherwise a crash could leave a log that diverges from the snapshot before its end."""
        assert snapshot.end_offset <= self.high_watermark, (snapshot, self.high_watermark)
        assert snapshot.end_offset <= self.log.durable, (snapshot, self.log.durable)
        self.snapshots[snapshot] = size_bytes
        if self.log.snapshot is None or snapshot > self.log.snapshot:
            self.log.snapshot = snapshot
        return self._take_effects(now_ms)

    def on_snapshot_deleted(self, snapshot: SnapshotId) -> None:
        assert snapshot != self.log.snapshot, (
            "the newest snapshot covers the deleted start of the log"
        )
        self.snapshots.pop(snapshot, None)

    def on_log_start(self, snapshot: SnapshotId) -> None:
        """The driver deleted the log below the end of one of its snapshots."""
        self.log.advance_start(LogEnd(snapshot.epoch, snapshot.end_offset))

    def on_installed(
        self, snapshot: SnapshotId, *, size_bytes: int, voters: VoterSet, now_ms: int
    ) -> Effects:
        """The snapshot has replaced the log, on disk."""
        assert self._installing == snapshot, (self._installing, snapshot)
        assert self.leadership is None, "a leader never loads a snapshot"
        self._installing = None
        self.snapshots = {snapshot: size_bytes}
        self.log.replace(snapshot, voters)
        if snapshot.end_offset > self.high_watermark:
            self._commit(snapshot.end_offset)
        return self._take_effects(now_ms)

    def on_unreachable(self, node_id: NodeId, now_ms: int) -> Effects:
        """The process of the node has terminated: the connection closed, and a new one was refused.
        (A timeout is no such proof.) The voters of a lost leader start elections at once, one after
        the other."""
        if self.election is not None and self.election.on_unreachable(node_id):
            self._count_votes(self.election, now_ms)
        fetcher = self.fetcher
        if fetcher is not None and fetcher.target == node_id:
            fetcher.on_failure(now_ms)
            self._on_leader_gone(fetcher, now_ms)
        return self._take_effects(now_ms)

    def on_disconnected(self, node_id: NodeId, now_ms: int) -> Effects:
        """The connection broke, so the response to the request in flight is lost: retries soon. It
        proves nothing about the other process; the next connection attempt will."""
        fetcher = self.fetcher
        if fetcher is not None and fetcher.target == node_id and fetcher.in_flight is not None:
            fetcher.on_failure(now_ms)
        return self._take_effects(now_ms)

    def on_request_failed(self, request_id: int, now_ms: int) -> Effects:
        """The fetch failed, or its response could not be used: retries after a backoff."""
        if self.fetcher is not None and self.fetcher.in_flight == request_id:
            self.fetcher.on_failure(now_ms)
        return self._take_effects(now_ms)

    def on_leader_known(self, epoch: Epoch, leader: NodeId, now_ms: int) -> Effects:
        """A node outside the group, such as the controller, reported the leader of an epoch."""
        if not self.is_barred:
            self._learn_leader(epoch, leader, now_ms)
        return self._take_effects(now_ms)

    def note_alive(self, last_contact_ms: Mapping[NodeId, int], now_ms: int) -> None:
        """Counts a sign of life of each node, at its time, as a fetch without records. Many groups
        on the same pair of nodes share one stream between them. To a follower it means that the
        node still leads this epoch, to a leader that the node still follows it. There are no
        effects, but `deadline_ms` may be postponed."""
        if self.leadership is not None:
            for node_id, when_ms in last_contact_ms.items():
                voter = self.voters.find(node_id)
                if voter is not None:
                    progress = self.leadership.progress_of(voter.key, self.log, when_ms)
                    progress.last_contact_ms = max(progress.last_contact_ms, when_ms)
        elif self.fetcher is not None and self.role is Role.FOLLOWER:
            when = last_contact_ms.get(self.leader)
            if when is not None:
                self.fetcher.on_contact(when)
        self.deadline_ms = self._next_deadline_ms(now_ms)

    # ── fast path of a leader, without effects ───────────────────────────────────────────────

    def note_appended(self, end: Offset, now_ms: int) -> bool:
        """Like `on_appended`, for plain records of a leader that has started its epoch. Returns
        False if `on_appended` must be called instead."""
        leadership = self.leadership
        if leadership is None or leadership.pending_fetches or leadership.epoch_start == NO_OFFSET:
            return False
        if not self.is_leader:
            return False
        self.log.end = LogEnd(self.epoch, end)
        leadership.on_unflushed(now_ms)
        disk_ms = leadership.flush_deadline_ms()
        if disk_ms is not None and (self.deadline_ms is None or disk_ms < self.deadline_ms):
            self.deadline_ms = disk_ms
        return True

    def note_progress(
        self, now_ms: int, *, sender: ReplicaKey | None = None, log_end: LogEnd
    ) -> bool | None:
        """Like `on_durable` of the local log (without a sender), or like a fetch of a voter whose
        log is a prefix of this one. Returns whether the high watermark advanced; None if the
        general path must be taken instead."""
        leadership, log = self.leadership, self.log
        if leadership is None or leadership.pending_fetches or leadership.change is not None:
            return None
        if not self.is_leader or not self.is_voter:
            return None
        if sender is None:
            assert log.durable <= log_end.offset <= log.end.offset, (log_end, log.durable, log.end)
            log.durable = log_end.offset
            leadership.on_flushed(log, now_ms)
        else:
            if log.compare(log_end) is not None:
                return None
            leadership.on_fetch(sender, log_end.offset, log, now_ms)
        reached = leadership.committed_offset(log)
        if reached <= self.high_watermark:
            return False
        self.high_watermark = reached
        return True

    def resign(self, now_ms: int, *, preferred: NodeId | None = None) -> Effects:
        """Resigns for good in the epoch that this replica leads and names successors: before a
        shutdown, in favour of a preferred leader, or after a disk failure."""
        self._require_leadership()
        self._resign(now_ms, preferred)
        return self._take_effects(now_ms)

    # ── lives: groups that the controller starts and ends ────────────────────────────────────

    def begin_life(self, life: Epoch, leader: NodeId, now_ms: int) -> Effects:
        """Starts a life of the group, in which it elects its leaders itself. A life is identified
        by its first epoch, whose leader is given. The hard state of an earlier life is replaced,
        even if its epoch is higher. The log of the leader must already contain a batch of the
        epoch."""
        if life <= self.life:
            return NOTHING
        self._leave_role()
        self.hard_state = HardState(life, leader, None, life)
        if leader == self.me.node_id:
            self.role = Role.LEADER
            self.leadership = Leadership(self.me, (), self.settings, now_ms)
            self.leadership.epoch_start = self.log.start_of(life)
            assert self.leadership.epoch_start != NO_OFFSET, (
                "the leader's log has no batch of its epoch"
            )
        else:
            self.role = Role.FOLLOWER
            self.fetcher = self._fetcher(leader, now_ms)
        if self._trace is not None:
            self._trace(f"{self.role.value}: life {life} started")
        return self._take_effects(now_ms)

    def leave_life(self, epoch: Epoch, now_ms: int) -> Effects:
        """Ends the life with an election that the controller wins: the replica votes for it in
        `epoch` and is barred until the next life. Does nothing if the replica's epoch is already
        as high: the controller then needs a higher one."""
        if epoch <= self.epoch:
            return NOTHING
        self._become_unattached(epoch, now_ms)
        self._move(Cause.VOTE_GIVEN)
        self._leave_role()
        self.hard_state = HardState(epoch, NO_NODE, CONTROLLER, self.life)
        return self._take_effects(now_ms)

    # ── another log dir ──────────────────────────────────────────────────────────────────────

    def on_moved(self, key: ReplicaKey, past_directories: Iterable[UUID]) -> None:
        """The log and the hard state were moved to another log dir of the node and are on disk."""
        assert key.node_id == self.key.node_id, (key, self.key)
        self.key, self.past_directories = key, frozenset(past_directories)

    # ── transitions ──────────────────────────────────────────────────────────────────────────

    def _move(self, cause: Cause) -> None:
        before, self.role = self.role, next_role(self.role, cause)
        if self._trace is not None:
            self._trace(f"{before.value} -> {self.role.value}: {cause.value}")

    def _leave_role(self) -> None:
        if self.leadership is not None:
            self._emit(step_down=self.epoch, lead=None, append_voters=None)
            self._orphans += [request for request, _ in self.leadership.pending_fetches.values()]
            if self.leadership.change is not None:
                self._orphans.append(self.leadership.change.request)
        self.leadership = self.election = self.fetcher = self._election_due_ms = None

    def _become_unattached(self, epoch: Epoch, now_ms: int) -> None:
        """Enters a higher epoch and leaves the role of the old one."""
        assert epoch > self.epoch, (epoch, self.hard_state)
        self._leave_role()
        self._move(Cause.HIGHER_EPOCH)
        self.hard_state = HardState(epoch, NO_NODE, None, self.life)
        self._wait_for_leader(now_ms)

    def _become_follower(self, leader: NodeId, now_ms: int) -> None:
        assert leader not in (NO_NODE, self.me.node_id), leader
        assert self.leader in (NO_NODE, leader), (self.hard_state, leader)
        self._leave_role()
        self._move(Cause.LEADER_FOUND)
        self.hard_state = HardState(self.epoch, leader, None, self.life)
        self._attempts = 0
        self.fetcher = self._fetcher(leader, now_ms)

    def _learn_leader(self, epoch: Epoch, leader: NodeId, now_ms: int) -> None:
        """Adopts the epoch and leader of a response if they are newer."""
        if epoch > self.epoch:
            self._become_unattached(epoch, now_ms)
        if epoch < self.epoch or leader in (NO_NODE, self.me.node_id):
            return
        if self.leader == NO_NODE:
            self._become_follower(leader, now_ms)

    def _wait_for_leader(self, now_ms: int) -> None:
        """A voter starts an election after a timeout; an observer searches for the leader."""
        if self.is_voter:
            self._election_due_ms = now_ms + self._election_timeout_ms()
        else:
            self._search_leader(now_ms)

    def _search_leader(self, now_ms: int) -> None:
        nodes = [*self.log.voters.node_ids, *self._bootstrap]
        others = [node for node in nodes if node != self.me.node_id]
        if not others:
            self.fetcher = None
            return
        self._last_target = (self._last_target + 1) % len(others)
        self.fetcher = self._fetcher(others[self._last_target], now_ms)

    def _fetcher(self, target: NodeId, now_ms: int) -> Fetcher:
        # The followers of one leader must not time out all at once.
        jitter_ms = self._chance(max(self.settings.election_timeout_ms // 2, 1))
        return Fetcher(
            target,
            self.settings,
            timeout_ms=self.settings.fetch_timeout_ms + jitter_ms,
            now_ms=now_ms,
        )

    def _election_timeout_ms(self) -> int:
        timeout_ms = self.settings.election_timeout_ms
        return timeout_ms + self._chance(timeout_ms)

    def _backoff_ms(self) -> int:
        """Returns a random backoff after a lost election; its bound doubles with each of them."""
        slot_ms = self.settings.succession_slot_ms
        bound_ms = min(slot_ms << min(self._attempts, 10), self.settings.election_backoff_max_ms)
        return slot_ms // 2 + self._chance(max(bound_ms, 1))

    # ── electing and voting ──────────────────────────────────────────────────────────────────

    def _start_election(self, now_ms: int) -> None:
        """Starts with pre-votes (KIP-996); a sole voter wins with its own."""
        if self.is_barred:
            self._election_due_ms = None
            return
        if self._installing is not None:
            self._election_due_ms = now_ms + self._election_timeout_ms()
            return
        if not self.is_voter:
            # A snapshot may have removed it from the voter set in the meantime.
            self._election_due_ms = None
            self._search_leader(now_ms)
            return
        self._leave_role()
        self._move(Cause.TIMEOUT)
        self._attempts += 1
        self.election = Election(
            self.voters, pre_vote=True, deadline_ms=now_ms + self._election_timeout_ms()
        )
        self.election.grant(self.me.node_id)
        self._request_votes(self.election)
        self._count_votes(self.election, now_ms)

    def _become_candidate(self, now_ms: int) -> None:
        self._move(Cause.PRE_VOTES_WON)
        # The epoch of the log counts, too: the file with the hard state may be older than the log.
        epoch = Epoch(max(self.epoch, self.log.end.epoch, 0) + 1)
        self.hard_state = HardState(epoch, NO_NODE, self.me, self.life)
        # Its own vote counts once it is on disk. Until then the requests are held back, too.
        self.election = Election(
            self.voters, pre_vote=False, deadline_ms=now_ms + self._election_timeout_ms()
        )
        self._request_votes(self.election)

    def _request_votes(self, election: Election) -> None:
        requests = election.requests(
            self.me,
            self.epoch,
            self.log.end,
            life=self.life,
            first_id=self._take_request_ids(len(self.voters.voters)),
        )
        for request in requests:
            self._send(request.to.node_id, request)

    def _become_leader(self, election: Election, now_ms: int) -> None:
        self._leave_role()
        self._move(Cause.VOTES_WON)
        self.hard_state = HardState(self.epoch, self.me.node_id, None, self.life)
        self._attempts = 0
        self.leadership = Leadership(self.me, tuple(election.granting), self.settings, now_ms)

    def _count_votes(self, election: Election, now_ms: int) -> None:
        if election.is_won:
            if election.pre_vote:
                self._become_candidate(now_ms)
            else:
                self._become_leader(election, now_ms)
        elif election.cannot_win and not election.is_lost:
            election.is_lost = True
            if election.pre_vote:
                self._abandon_election(Cause.ELECTION_LOST, now_ms)
            else:
                election.deadline_ms = now_ms + self._backoff_ms()

    def _end_election(self, now_ms: int) -> None:
        election = self.election
        assert election is not None
        if election.pre_vote:
            self._abandon_election(Cause.TIMEOUT, now_ms)
        else:
            self._start_election(now_ms)

    def _abandon_election(self, cause: Cause, now_ms: int) -> None:
        """Returns to the previous leader, or waits for the next attempt, after lost pre-votes."""
        leader, attempts = self.leader, self._attempts
        if leader not in (NO_NODE, self.me.node_id):
            self._become_follower(leader, now_ms)
            assert self.fetcher is not None
            self._attempts = attempts
            self.fetcher.contact_deadline_ms = now_ms + self._election_timeout_ms()
        else:
            self._leave_role()
            self._move(cause)
            self._election_due_ms = now_ms + self._backoff_ms()

    def _on_vote_response(self, response: VoteResponse, now_ms: int) -> None:
        if self.is_barred:
            return
        self._learn_leader(response.epoch, response.leader, now_ms)
        election = self.election
        if election is None or not election.is_pending(response.request_id, response.sender):
            return
        granted = response.granted and response.epoch == self.epoch
        election.on_response(response.request_id, granted=granted)
        self._count_votes(election, now_ms)

    def _on_vote_request(self, request: VoteRequest, now_ms: int) -> None:
        if not self._is_addressee(request):
            self._respond(request, Error.WRONG_VOTER)
            return
        if request.epoch < self.epoch:
            self._respond(request, Error.FENCED_EPOCH)
            return
        if request.epoch > self.epoch:
            self._become_unattached(request.epoch, now_ms)
        granted = self._can_grant(request)
        if granted and not request.pre_vote:
            self._grant_vote(request, now_ms)
        self._respond(request, granted=granted, pre_vote=request.pre_vote)

    def _can_grant(self, request: VoteRequest) -> bool:
        """Whether this replica can vote for the sender. The sender need not be in the known voter
        set, since this log may lack the newest set."""
        if request.log_end < self.log.end:
            return False
        if request.pre_vote:
            has_leader = self.fetcher is not None and self.fetcher.has_contact
            return self.role is not Role.LEADER and not has_leader
        voted_for = self.hard_state.voted_for
        # A static quorum stores votes without a directory id, as Kafka does.
        return self.leader == NO_NODE and (voted_for is None or voted_for.matches(request.sender))

    def _grant_vote(self, request: VoteRequest, now_ms: int) -> None:
        if self.role is not Role.VOTED:
            self._leave_role()
            self._move(Cause.VOTE_GIVEN)
        self.hard_state = HardState(self.epoch, NO_NODE, request.sender, self.life)
        self._wait_for_leader(now_ms)

    def _is_addressee(self, request: VoteRequest | BeginQuorumEpochRequest) -> bool:
        """A node that restarted with another disk must not respond for the old one."""
        return self.has_name(request.to)

    # ── following ────────────────────────────────────────────────────────────────────────────

    def _on_begin_epoch(self, request: BeginQuorumEpochRequest, now_ms: int) -> None:
        if not self._is_addressee(request):
            self._respond(request, Error.WRONG_VOTER)
            return
        if request.epoch < self.epoch or (
            request.epoch == self.epoch and self.leader not in (NO_NODE, request.sender.node_id)
        ):
            self._respond(request, Error.FENCED_EPOCH)
            return
        self._learn_leader(request.epoch, request.sender.node_id, now_ms)
        is_mine = request.sender.node_id == self.leader != self.me.node_id
        if self.role is Role.PROSPECTIVE and is_mine:
            # Its fetch timeout for this same leader had expired.
            self._become_follower(self.leader, now_ms)
        self._respond(request)

    def _on_end_epoch(self, request: EndQuorumEpochRequest, now_ms: int) -> None:
        if request.epoch < self.epoch:
            self._respond(request, Error.FENCED_EPOCH)
            return
        if request.epoch > self.epoch:
            self._become_unattached(request.epoch, now_ms)
        is_follower = self.role is Role.FOLLOWER and self.leader == request.sender.node_id
        if self.is_voter and (is_follower or self.role in (Role.UNATTACHED, Role.VOTED)):
            nodes = [key.node_id for key in request.successors]
            if self.me.node_id in nodes:
                self._schedule_election(nodes.index(self.me.node_id), now_ms, is_named=True)
        self._respond(request)

    def _schedule_election(self, position: int, now_ms: int, *, is_named: bool = False) -> None:
        """Schedules an election after the loss of the leader. Successors start theirs one slot
        apart, and grant votes to each other until then. Further reports of the loss, such as
        refused connections, do not postpone the election. Only the position that a resigning leader
        names replaces the one that was assumed when it rejected a fetch with NOT_LEADER, which may
        arrive before its EndQuorumEpoch."""
        slot_ms = self.settings.succession_slot_ms
        when_ms = now_ms + position * slot_ms + self._chance(max(slot_ms // 2, 1))
        fetcher = self.fetcher
        if fetcher is None:
            self._election_due_ms = when_ms
            return
        fetcher.has_contact = False
        if is_named and not fetcher.has_election_turn:
            fetcher.has_election_turn = True
            fetcher.contact_deadline_ms = when_ms
        else:
            fetcher.contact_deadline_ms = min(fetcher.contact_deadline_ms, when_ms)

    def _on_leader_gone(self, fetcher: Fetcher, now_ms: int, *, slots_later: int = 0) -> None:
        if self.is_voter:
            others = [node for node in self.voters.node_ids if node != fetcher.target]
            self._schedule_election(others.index(self.me.node_id) + slots_later, now_ms)
        else:
            # An observer tries the next node after the backoff: that one may be down as well.
            fetcher.contact_deadline_ms = fetcher.next_ms

    def _tick_fetcher(self, fetcher: Fetcher, now_ms: int) -> None:
        if fetcher.in_flight is not None and now_ms >= fetcher.request_deadline_ms:
            fetcher.on_failure(now_ms)
        if now_ms < fetcher.contact_deadline_ms:
            return
        if not self.is_voter:
            self._search_leader(now_ms)
        elif self.log.durable < self.log.end.offset or self._installing is not None:
            # It did not fetch because its own disk is slow. That is no reason to start an
            # election, but it must not block the elections of others either.
            fetcher.has_contact = False
            fetcher.contact_deadline_ms = now_ms + self.settings.fetch_timeout_ms
        else:
            self._start_election(now_ms)

    def _fetcher_of(
        self, response: FetchResponse | FetchSnapshotResponse, now_ms: int
    ) -> Fetcher | None:
        """Returns the fetcher that waits for this response; None if there is none, or if the
        response is an error."""
        if self.is_barred:
            return None
        self._learn_leader(response.epoch, response.leader, now_ms)
        fetcher = self.fetcher
        if (
            fetcher is None
            or fetcher.in_flight != response.request_id
            or fetcher.target != response.sender
        ):
            return None
        is_from_leader = response.epoch == self.epoch and response.sender == self.leader
        if response.error is not Error.NONE or not is_from_leader or self.role is not Role.FOLLOWER:
            fetcher.on_failure(now_ms)
            if response.error in (Error.SNAPSHOT_NOT_FOUND, Error.POSITION_OUT_OF_RANGE):
                fetcher.download = None
            if not self.is_voter:
                fetcher.contact_deadline_ms = min(fetcher.contact_deadline_ms, fetcher.next_ms)
            elif is_from_leader and response.error is Error.NOT_LEADER and fetcher.has_contact:
                # It resigned, and its EndQuorumEpoch is delayed or lost; or it restarted.
                self._on_leader_gone(fetcher, now_ms, slots_later=1)
            return None
        fetcher.on_response(now_ms)
        fetcher.on_contact(now_ms)
        return fetcher

    def _on_fetch_response(self, response: FetchResponse, now_ms: int) -> None:
        fetcher = self._fetcher_of(response, now_ms)
        if fetcher is None:
            return
        if response.snapshot is not None:
            if response.snapshot.end_offset < self.high_watermark:
                raise CommittedAtRisk(
                    f"the leader of epoch {self.epoch} offers {response.snapshot}, which ends below"
                    f" the high watermark {self.high_watermark}"
                )
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
                f"the log of the leader of epoch {self.epoch} diverges at {to}, below the high"
                f" watermark {self.high_watermark} or beyond the log end {self.log.end.offset}"
            )
        self.log.truncate(to)
        self._emit(truncate=to)

    def _append(self, entries: LogSlice) -> None:
        if not entries.follows(self.log.end):
            raise CommittedAtRisk(f"{entries} does not follow {self.log.end}")
        last = entries.epochs[-1][0]
        if last > self.epoch:
            raise CommittedAtRisk(f"records of epoch {last} from the leader of {self.epoch}")
        self.log.append(entries)
        self._emit(append=entries)

    def _on_fetch_snapshot_response(self, response: FetchSnapshotResponse, now_ms: int) -> None:
        fetcher = self._fetcher_of(response, now_ms)
        if fetcher is None or fetcher.download is None:
            return
        chunk = fetcher.download.on_chunk(response)
        if chunk is None:
            fetcher.on_failure(now_ms)
            return
        self._emit(chunk=chunk)
        if fetcher.download.is_complete:
            fetcher.download = None
            self._installing = chunk.snapshot
            self._emit(install=chunk.snapshot)

    def _require_leadership(self) -> Leadership:
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
            self._respond(request, error)
            return
        leadership = self._require_leadership()
        leadership.progress_of(request.sender, self.log, now_ms).last_contact_ms = now_ms
        difference = self.log.compare(request.log_end)
        if isinstance(difference, SnapshotId):
            self._respond(request, snapshot=difference, high_watermark=self.high_watermark)
        elif isinstance(difference, LogEnd):
            self._respond(request, diverging=difference, high_watermark=self.high_watermark)
        else:
            leadership.on_fetch(request.sender, request.log_end.offset, self.log, now_ms)
            # A replica has one fetch in flight: an older one of it was abandoned.
            if (older := leadership.pending_fetches.pop(request.sender, None)) is not None:
                self._respond(older[0], high_watermark=self.high_watermark)
            leadership.pending_fetches[request.sender] = (request, now_ms + request.wait_ms)
            self._advance(now_ms)
            self._complete_fetches(now_ms)

    def _complete_fetches(self, now_ms: int) -> None:
        """Responds to delayed fetches for which there is something new or that have timed out."""
        if self.leadership is None:
            return
        pending_fetches = self.leadership.pending_fetches
        for sender, (request, deadline_ms) in list(pending_fetches.items()):
            has_more = request.log_end.offset < self.log.end.offset
            if has_more or request.high_watermark < self.high_watermark or now_ms >= deadline_ms:
                del pending_fetches[sender]
                self._respond(
                    request,
                    high_watermark=self.high_watermark,
                    read_from=request.log_end.offset if has_more else NO_OFFSET,
                )

    def _on_fetch_snapshot(self, request: FetchSnapshotRequest, now_ms: int) -> None:
        error = self._epoch_error(request)
        if error is not Error.NONE:
            self._respond(request, error)
            return
        self._require_leadership().progress_of(
            request.sender, self.log, now_ms
        ).last_contact_ms = now_ms
        size_bytes = self.snapshots.get(request.snapshot)
        if size_bytes is None:
            self._respond(request, Error.SNAPSHOT_NOT_FOUND)
        elif not 0 <= request.position < size_bytes:
            self._respond(request, Error.POSITION_OUT_OF_RANGE)
        else:
            self._respond(
                request,
                snapshot=request.snapshot,
                position=request.position,
                size_bytes=size_bytes,
            )

    # ── leading: commits and voter changes ───────────────────────────────────────────────────

    def _advance(self, now_ms: int) -> None:
        """Advances the high watermark and the voter change after progress of a replica."""
        leadership = self._require_leadership()
        reached = leadership.committed_offset(self.log)
        if reached > self.high_watermark:
            self._commit(reached)
        self._advance_change(now_ms)
        if self.leadership is not None:
            self._complete_fetches(now_ms)

    def _on_voter_change(self, request: VoterChangeRequest, now_ms: int) -> None:
        if not self.is_leader:
            self._respond(request, Error.NOT_LEADER)
            return
        if self.log.voters.is_static:
            voters = change_static_voters(
                self.log.voters,
                request,
                leader=self.me,
                descriptions=self._require_leadership().descriptions,
                may_change=self._may_change_voters(),
            )
        elif not self._may_change_voters():
            voters = Error.CHANGE_IN_PROGRESS
        elif isinstance(request, UpgradeVersionRequest):
            voters = Error.NONE  # kraft.version is 1 already
        else:
            voters = change_voters(self.log.voters, request)
        if isinstance(voters, Error):
            self._respond(request, voters)
            return
        self._require_leadership().change = VoterChange(
            request,
            voters,
            target=self.log.end.offset,
            deadline_ms=now_ms + self.settings.voter_change_timeout_ms,
        )
        self._advance_change(now_ms)

    def _may_change_voters(self) -> bool:
        """Each change must be committed before the next, and this leader must have committed a
        record of its own epoch."""
        leadership = self._require_leadership()
        return (
            leadership.change is None
            and self.log.voters_offset < self.high_watermark
            and NO_OFFSET < leadership.epoch_start < self.high_watermark
        )

    def _advance_change(self, now_ms: int) -> None:
        leadership = self._require_leadership()
        change = leadership.change
        if change is not None and change.stage is Stage.CATCHING_UP:
            new_voter = change.new_voter
            if new_voter is None or (
                leadership.progress_of(new_voter, self.log, now_ms).durable >= change.target
            ):
                change.stage = Stage.APPENDING
                self._emit(append_voters=change.voters)
        elif change is not None and NO_OFFSET < change.end <= self.high_watermark:
            leadership.change = None
            self._respond(change.request)
        if not self.is_voter and self.log.voters_offset < self.high_watermark:
            # The leader's own removal from the voter set is committed.
            self._resign(now_ms)

    # ── leading: time ────────────────────────────────────────────────────────────────────────

    def _tick_leader(self, now_ms: int) -> None:
        """Handles the timeouts of a leader."""
        leadership = self._require_leadership()
        majority_ms = leadership.majority_deadline_ms(self.log)
        disk_ms = leadership.flush_deadline_ms()
        if (majority_ms is not None and now_ms >= majority_ms) or (
            disk_ms is not None and now_ms >= disk_ms
        ):
            self._resign(now_ms)
            return
        change = leadership.change
        if change is not None and now_ms >= change.deadline_ms:
            leadership.change = None
            self._respond(change.request, Error.TIMED_OUT)
        self._complete_fetches(now_ms)
        self._announce_leadership(now_ms)

    def _announce_leadership(self, now_ms: int) -> None:
        for key in self._require_leadership().voters_to_notify(self.log, now_ms):
            request = BeginQuorumEpochRequest(
                sender=self.me,
                to=key,
                epoch=self.epoch,
                request_id=self._take_request_ids(),
                life=self.life,
            )
            self._send(key.node_id, request)

    def _resign(self, now_ms: int, preferred: NodeId | None = None) -> None:
        """Sends the voters the order of succession, and starts an election itself only after all
        of them."""
        successors = self._require_leadership().successors(self.log, preferred)
        for key in successors:
            request = EndQuorumEpochRequest(
                sender=self.me,
                epoch=self.epoch,
                successors=successors,
                request_id=self._take_request_ids(),
                life=self.life,
            )
            self._send(key.node_id, request)
        self._leave_role()
        self._move(Cause.RESIGNATION)
        if self.is_voter:
            self._election_due_ms = now_ms + 2 * self._election_timeout_ms()
        else:
            self._search_leader(now_ms)

    # ── collecting effects ───────────────────────────────────────────────────────────────────

    def _take_request_ids(self, count: int = 1) -> int:
        first = self._next_request_id
        self._next_request_id += count
        return first

    def _send(self, to: NodeId, message: Request | Response) -> None:
        self._sends.append(Send(to, message))
        if len(self._sends) > HELD_MESSAGES_MAX:
            del self._sends[0]

    def _respond(self, request: Request, error: Error = Error.NONE, **fields: object) -> None:
        sender = request.sender
        to = sender.node_id if isinstance(sender, ReplicaKey) else sender
        # Epoch and leader of this life mean nothing in another one.
        is_same_life = error is not Error.WRONG_LIFE
        response = RESPONSE_OF[type(request)](
            sender=self.me.node_id,
            epoch=self.epoch if is_same_life else NO_EPOCH,
            leader=self.leader if is_same_life else NO_NODE,
            error=error,
            request_id=request.request_id,
            **fields,
        )
        self._send(to, response)

    def _emit(self, **parts: Any) -> None:
        self._effects = self._effects._replace(**parts)

    def _commit(self, offset: Offset) -> None:
        assert offset > self.high_watermark, (offset, self.high_watermark)
        self.high_watermark = offset
        self._emit(committed=offset)

    def _take_effects(self, now_ms: int) -> Effects:
        if self._orphans:
            self._reject_orphans()
        if self.fetcher is not None:
            self._send_fetch(self.fetcher, now_ms)
        self.deadline_ms = self._next_deadline_ms(now_ms)
        if not self.is_settled:
            step_down, persist = self._effects.step_down, None
            if step_down is not None:
                self._emit(step_down=None)
            if self._unpersisted is None:
                persist = self._unpersisted = self.hard_state
            return Effects(persist=persist, step_down=step_down)
        effects, self._effects = self._effects, NOTHING
        if self._sends:
            effects = effects._replace(send=tuple(self._sends))
            self._sends = []
        return effects

    def _reject_orphans(self) -> None:
        for request in self._orphans:
            self._respond(request, Error.WRONG_LIFE if self.is_barred else Error.NOT_LEADER)
        self._orphans = []

    def _send_fetch(self, fetcher: Fetcher, now_ms: int) -> None:
        """Sends the next fetch when due. A fetch reports what is on disk, so it waits until all
        appended records are."""
        if not fetcher.can_fetch(now_ms) or self._installing is not None:
            return
        request: Request
        if fetcher.download is not None:
            request = FetchSnapshotRequest(
                sender=self.me,
                epoch=self.epoch,
                snapshot=fetcher.download.snapshot,
                position=fetcher.download.position,
                request_id=self._take_request_ids(),
                life=self.life,
            )
        elif self.log.durable >= self.log.end.offset:
            request = FetchRequest(
                sender=self.me,
                epoch=self.epoch,
                log_end=self.log.end,
                high_watermark=self.high_watermark,
                wait_ms=self.settings.fetch_wait_ms,
                request_id=self._take_request_ids(),
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
            return self._election_due_ms
        due = [fetcher.contact_deadline_ms]
        # Between a response and the flush of its records, only the disk can cause progress.
        if fetcher.in_flight is not None or fetcher.next_ms > now_ms:
            due.append(fetcher.deadline_ms)
        return min(due)
