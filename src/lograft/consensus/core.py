"""The Raft core of one replica.

The driver's side of the contract: call one method at a time, do the effects it returns, and tell
the core when they are done. Time comes in as `now_ms` and is asked back for by `deadline_ms`.
"""

from typing import TYPE_CHECKING

from lograft.consensus.errors import NotLeading
from lograft.consensus.roles import Cause, Role, next_role
from lograft.consensus.types import (
    NOTHING,
    Effects,
    HardState,
    LeaderChange,
    LogEnd,
    ReplicaKey,
    VoterSet,
)
from lograft.model.types import NO_NODE, NO_OFFSET, Epoch, NodeId, Offset

if TYPE_CHECKING:
    from collections.abc import Callable


class RaftCore:
    __slots__ = (
        "_epoch_start",
        "_granting",
        "_persisting",
        "_trace",
        "deadline_ms",
        "durable_offsets",
        "hard_state",
        "high_watermark",
        "log_end",
        "me",
        "role",
        "voters",
    )

    def __init__(
        self,
        me: ReplicaKey,
        voters: VoterSet,
        *,
        hard_state: HardState,
        log_end: LogEnd,
        high_watermark: Offset = NO_OFFSET,
        trace: "Callable[[str], None] | None" = None,
    ) -> None:
        self.me = me
        self.voters = voters
        #: The newest state that is, or is about to be, on disk.
        self.hard_state = hard_state
        self.log_end = log_end
        #: Everything below is committed. NO_OFFSET: not known in this life of the replica yet.
        self.high_watermark = high_watermark
        self.role = self._role_after_restart()
        #: When `tick` must be called at the latest; None: time changes nothing.
        self.deadline_ms: int | None = None
        #: As leader: up to where each voter has the log on disk.
        self.durable_offsets: dict[NodeId, Offset] = {}
        #: As leader: where the first record of the own epoch lies.
        self._epoch_start = NO_OFFSET
        self._granting: dict[NodeId, None] = {}
        self._persisting: HardState | None = None
        self._trace = trace

    @property
    def epoch(self) -> Epoch:
        return self.hard_state.epoch

    @property
    def leader(self) -> NodeId:
        return self.hard_state.leader

    @property
    def is_leader(self) -> bool:
        """Leads, and its epoch is on disk: it may append."""
        return self.role is Role.LEADER and self._persisting is None

    def start(self, now_ms: int) -> Effects:
        """An only voter has nobody to hear from: it stands at once."""
        if self.voters.is_only(self.me):
            return self._stand(now_ms)
        return NOTHING

    def tick(self, now_ms: int) -> Effects:
        if self.deadline_ms is None or now_ms < self.deadline_ms:
            return NOTHING
        self.deadline_ms = None
        return self._stand(now_ms)

    def on_persisted(self, now_ms: int) -> Effects:
        """What the last effects asked to persist is on disk: go on from there."""
        assert self._persisting is not None, "nothing was to be persisted"
        self._persisting = None
        if self.role is Role.CANDIDATE:
            return self._on_vote(self.me.node_id)
        if self.role is Role.LEADER:
            return Effects(
                lead=LeaderChange(
                    epoch=self.epoch,
                    leader=self.me.node_id,
                    voters=self.voters.node_ids,
                    granting=tuple(self._granting),
                )
            )
        return NOTHING

    def on_appended(self, end: Offset) -> Effects:
        """The leader's log grew to `end`; the first time with the batch that `lead` asked for."""
        if not self.is_leader:
            raise NotLeading(f"node {self.me.node_id} does not lead epoch {self.epoch}")
        assert end >= self.log_end.offset, (end, self.log_end)
        if self._epoch_start == NO_OFFSET:
            self._epoch_start = self.log_end.offset
        self.log_end = LogEnd(self.epoch, end)
        return NOTHING

    def on_durable(self, offset: Offset) -> Effects:
        """The own log is on disk up to `offset`."""
        assert offset <= self.log_end.offset, (offset, self.log_end)
        if self.role is not Role.LEADER:
            return NOTHING
        before = self.durable_offsets.get(self.me.node_id, NO_OFFSET)
        assert offset >= before, "what was on disk is gone"
        self.durable_offsets[self.me.node_id] = offset
        return self._advance()

    def resign(self) -> Effects:
        """Gives up an epoch that this replica leads, for good."""
        if self.role is not Role.LEADER:
            raise NotLeading(f"node {self.me.node_id} does not lead epoch {self.epoch}")
        self._move(Cause.RESIGNATION)
        self._forget_leadership()
        return Effects(unlead=self.epoch)

    def _role_after_restart(self) -> Role:
        state = self.hard_state
        if state.leader == self.me.node_id:
            # Its tail may be gone with the page cache: it may not go on in an epoch it led.
            return Role.RESIGNED
        if state.leader != NO_NODE:
            return Role.FOLLOWER
        return Role.UNATTACHED if state.voted_for is None else Role.VOTED

    def _stand(self, now_ms: int) -> Effects:
        """Pre-vote, then an epoch of its own; an only voter wins its pre-vote by asking itself."""
        if not self.voters.has(self.me):
            return NOTHING
        self._move(Cause.TIMEOUT)
        assert self.voters.is_only(self.me), "elections among several voters are not built yet"
        self._move(Cause.PRE_VOTES_WON)
        self._granting = {}
        # The log's epoch counts too: the file of the hard state may be older than the log.
        epoch = Epoch(max(self.epoch, self.log_end.epoch, 0) + 1)
        return self._persist(HardState(epoch, NO_NODE, self.me))

    def _on_vote(self, voter: NodeId) -> Effects:
        self._granting[voter] = None
        if len(self._granting) < self.voters.majority:
            return NOTHING
        self._move(Cause.VOTES_WON)
        self._forget_leadership()
        return self._persist(HardState(self.epoch, self.me.node_id, None))

    def _persist(self, state: HardState) -> Effects:
        assert self._persisting is None, (self._persisting, state)
        assert state.epoch >= self.epoch, (state, self.hard_state)
        self.hard_state = self._persisting = state
        return Effects(persist=state)

    def _advance(self) -> Effects:
        """The high watermark follows the offset that a majority has on disk, once that lies
        beyond the first record of the own epoch (Raft, section 5.4.2)."""
        durable = sorted(
            (self.durable_offsets.get(node, NO_OFFSET) for node in self.voters.node_ids),
            reverse=True,
        )
        reached = durable[self.voters.majority - 1]
        if self._epoch_start == NO_OFFSET or reached <= self._epoch_start:
            return NOTHING
        if reached <= self.high_watermark:
            return NOTHING
        self.high_watermark = reached
        return Effects(committed=reached)

    def _forget_leadership(self) -> None:
        self.durable_offsets = {}
        self._epoch_start = NO_OFFSET

    def _move(self, cause: Cause) -> None:
        before, self.role = self.role, next_role(self.role, cause)
        if self._trace is not None:
            self._trace(f"{before.value} -> {self.role.value}: {cause.value}")

    def statistics(self) -> dict[str, int | str]:
        return {
            "role": self.role.value,
            "epoch": self.epoch,
            "leader": self.leader,
            "high_watermark": self.high_watermark,
            "log_end_offset": self.log_end.offset,
            "voters": len(self.voters.voters),
        }
