"""The state of one replica and its ways from role to role.

Every public method of the core ends in `_finish`, which turns what was gathered on the way into
`Effects`. As long as the newest hard state is not on disk, messages stay inside.
"""

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, Final
from uuid import UUID

from lograft.consensus.election import Election
from lograft.consensus.fetcher import Fetcher
from lograft.consensus.log_view import LogView
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
    RemoveVoterRequest,
    RenameVoterRequest,
    Request,
    Response,
    UpdateVoterRequest,
    UpgradeVersionRequest,
    VoterChangeResponse,
    VoteRequest,
    VoteResponse,
)
from lograft.consensus.roles import Cause, Role, next_role
from lograft.consensus.types import (
    CONTROLLER,
    NOTHING,
    Chance,
    Effects,
    HardState,
    LogEnd,
    RaftSettings,
    ReplicaKey,
    Send,
    SnapshotId,
    VoterSet,
)
from lograft.model.types import NO_EPOCH, NO_NODE, NO_OFFSET, ZERO_UUID, Epoch, NodeId, Offset

if TYPE_CHECKING:
    from lograft.consensus.leadership import Leadership

#: Messages held back while the hard state is being written. Any message may get lost anyway, so
#: the oldest goes first.
HELD_MAX: Final = 1_000

ANSWER_OF: Final[dict[type, Callable[..., Response]]] = {
    VoteRequest: VoteResponse,
    BeginQuorumEpochRequest: BeginQuorumEpochResponse,
    EndQuorumEpochRequest: EndQuorumEpochResponse,
    FetchRequest: FetchResponse,
    FetchSnapshotRequest: FetchSnapshotResponse,
    AddVoterRequest: VoterChangeResponse,
    RemoveVoterRequest: VoterChangeResponse,
    UpdateVoterRequest: VoterChangeResponse,
    UpgradeVersionRequest: VoterChangeResponse,
    RenameVoterRequest: VoterChangeResponse,
}


def middle(bound: int) -> int:
    """The chance of those who brought none."""
    return bound // 2


class Replica:
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
        response = ANSWER_OF[type(request)](
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
