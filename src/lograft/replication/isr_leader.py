"""The leader's side of ISR replication: one object for one leader epoch of one partition.

The high watermark is the lowest end among the replicas that may be in the ISR. Three rules keep
what is below it:

- it waits for `maximal`, every replica that a proposal in flight may already have made a member;
- it stands still while the committed ISR is smaller than min.insync.replicas, so that those who
  left the ISR since (the ELR, KIP-966) hold everything that was ever committed;
- a follower joins only with all that is committed *and* all that this leader began with, in the
  very registration that fetched it (KIP-903): what it held before a crash does not count.

Everything here is decided in memory; the shell sends proposals, and spaces repeated ones.
"""

from collections.abc import Iterable
from typing import Final

from lograft.model.errors import ErrorCode
from lograft.model.types import NO_EPOCH, BrokerEpoch, NodeId, Offset
from lograft.replication.divergence import diverging_epoch
from lograft.replication.isr_state import AfterRefusal, IsrState, Pending, PendingKind
from lograft.replication.replica_view import FollowerView, ReplicaStatus
from lograft.replication.types import (
    ACCEPTED,
    NO_BROKER_EPOCH,
    NO_EFFECTS,
    NO_EPOCH_END,
    Assignment,
    Brokers,
    Effects,
    EpochEnd,
    FetchVerdict,
    FollowerFetch,
    InSync,
    IsrGranted,
    IsrProposal,
    ReplicaLog,
    ReplicationSettings,
)

#: Looked up once: acknowledgements are many.
NO_ERROR: Final = ErrorCode.NONE


class IsrLeader:
    """A `roles.LeaderRole`."""

    __slots__ = (
        "_brokers",
        "_commits_alone",
        "_followers",
        "_now_ms",
        "_replica_count",
        "durable",
        "durable_only",
        "end",
        "epoch_start",
        "high_watermark",
        "isr",
        "leader_epoch",
        "me",
        "min_isr",
        "settings",
    )

    def __init__(
        self,
        me: NodeId,
        assignment: Assignment,
        *,
        log: ReplicaLog,
        high_watermark: Offset,
        brokers: Brokers,
        settings: ReplicationSettings,
        now_ms: int,
    ) -> None:
        assert assignment.leader == me, assignment
        assert log.log_start_offset <= high_watermark <= log.end_offset, (high_watermark, log)
        self.me = me
        self.leader_epoch = assignment.leader_epoch
        #: Where this leadership began: everything below came from earlier leaders.
        self.epoch_start = log.end_offset
        self.end = log.end_offset
        self.durable = log.durable_offset
        self.durable_only = settings.durable_only
        self.high_watermark = high_watermark
        self.settings = settings
        self.isr = IsrState(assignment)
        self._brokers = brokers
        self._followers: dict[NodeId, FollowerView] = {}
        self._replica_count = 0
        #: min.insync.replicas, or all replicas where there are fewer.
        self.min_isr = 0
        #: One replica that needs no flush: what it appends is committed. Most topics of a
        #: single node are so, and appends are many.
        self._commits_alone = False
        #: The newest time told; appends do not bring one of their own.
        self._now_ms = now_ms
        self._set_replicas(assignment, now_ms=now_ms)

    def begin(self) -> Effects:
        """The first thing that a new leader does."""
        return self._settle(self._propose_recovered())

    # The commit rule: called for every append, so without Effects.

    def on_appended(self, end: Offset) -> bool:
        if self._commits_alone:
            self.end = end
            if end <= self.high_watermark:
                return False
            self.high_watermark = end
            return True
        assert end >= self.end, (end, self.end)
        before, self.end = self.end, end
        if before > self.high_watermark or self.durable_only:
            # Not our own end holds the watermark back: it is not this append that moves it.
            return False
        return self._advance()

    def on_durable(self, durable: Offset) -> bool:
        self.durable = max(self.durable, durable)
        return self._advance()

    # Acknowledgements.

    @property
    def is_below_min_isr(self) -> bool:
        return len(self.isr.committed) < self.min_isr

    def check_append(self, *, acks_all: bool) -> ErrorCode:
        """Before the append: with too few replicas acks=all is refused, and nothing is written."""
        if acks_all and not self._commits_alone and self.is_below_min_isr:
            return ErrorCode.NOT_ENOUGH_REPLICAS
        return NO_ERROR

    def ack_of(self, end: Offset) -> ErrorCode | None:
        """What acks=all is told about an append that ended at `end`; None: it has to wait."""
        if end > self.high_watermark:
            return None
        return NO_ERROR if self._commits_alone else self._ack_code()

    def _ack_code(self) -> ErrorCode:
        """The append is committed, but the ISR may have shrunk below the minimum since."""
        if len(self.isr.maximal) < self.min_isr:
            return ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND
        return ErrorCode.NONE

    # Reading.

    @property
    def knows_latest(self) -> bool:
        """Whether the high watermark can be told as the latest offset: before it has reached the
        start of this epoch an earlier leader may have told a higher one (KIP-207,
        OFFSET_NOT_AVAILABLE)."""
        return self.high_watermark >= self.epoch_start

    def low_watermark(self, log_start: Offset) -> Offset:
        """Everything below is deleted on all replicas that are up; DeleteRecords waits for it.
        `log_start` is the leader's own."""
        lowest = log_start
        for view in self._followers.values():
            if view.log_start_offset < lowest and self._brokers.may_join_isr(view.node_id):
                lowest = view.log_start_offset
        return lowest

    def statuses(self, log_start: Offset) -> list[ReplicaStatus]:
        """Every replica, the leader first."""
        own_epoch = self._brokers.registered_epoch(self.me)
        own = ReplicaStatus(
            self.me,
            log_start,
            self.end,
            0,
            True,
            self._now_ms,
            self._now_ms,
            NO_BROKER_EPOCH if own_epoch is None else own_epoch,
        )
        return [own] + [
            view.status(leader_end=self.end, in_sync=view.node_id in self.isr.committed)
            for view in self._followers.values()
        ]

    # Followers.

    def on_follower_fetch(
        self, fetch: FollowerFetch, *, log_start: Offset, epoch_end: EpochEnd, now_ms: int
    ) -> FetchVerdict:
        """`epoch_end` is what the leader's log knows about the fetch's last epoch."""
        self._now_ms = max(self._now_ms, now_ms)
        view = self._followers.get(fetch.node_id)
        error = self._check_fetch(fetch, view, log_start=log_start, epoch_end=epoch_end)
        if error is not ErrorCode.NONE:
            return FetchVerdict(error, None, NO_EFFECTS)
        assert view is not None
        diverging = self._diverging(fetch, epoch_end)
        if diverging is not None:
            # Its offset says nothing about our log: it does not count.
            return FetchVerdict(ErrorCode.NONE, diverging, NO_EFFECTS)
        assert fetch.offset <= self.end, (fetch, self.end)
        log_start_moved = fetch.log_start_offset > view.log_start_offset
        end_moved = fetch.offset != view.end_offset
        view.on_fetch(fetch, leader_end=self.end, now_ms=now_ms)
        view.is_known_prefix = self._is_known_prefix(fetch, log_start)
        propose = self._propose_expand(view) if view.is_known_prefix else None
        if propose is None and not end_moved and not log_start_moved:
            return ACCEPTED
        effects = self._settle(propose, log_start_moved=log_start_moved)
        return ACCEPTED if effects is NO_EFFECTS else FetchVerdict(ErrorCode.NONE, None, effects)

    def on_follower_polls(
        self, node_id: NodeId, *, broker_epoch: BrokerEpoch, now_ms: int
    ) -> Effects:
        """A follower that asks for nothing new within its session: where it has all there is, it
        is caught up now, and an append that follows finds it so. Its broker may have become fit
        for the ISR since its last fetch."""
        self._now_ms = max(self._now_ms, now_ms)
        view = self._followers.get(node_id)
        if view is None:
            return NO_EFFECTS
        if broker_epoch > view.broker_epoch:
            # It has registered anew without a new life: its log is what its fetch said.
            view.broker_epoch = broker_epoch
        view.on_poll(leader_end=self.end, now_ms=now_ms)
        propose = self._propose_expand(view) if view.is_known_prefix else None
        return NO_EFFECTS if propose is None else self._settle(propose)

    def on_follower_alive(self, node_id: NodeId, *, now_ms: int) -> None:
        """Only a follower that catches up stays in the ISR, however alive it is."""

    def _check_fetch(
        self,
        fetch: FollowerFetch,
        view: FollowerView | None,
        *,
        log_start: Offset,
        epoch_end: EpochEnd,
    ) -> ErrorCode:
        if fetch.leader_epoch != NO_EPOCH:
            if fetch.leader_epoch < self.leader_epoch:
                return ErrorCode.FENCED_LEADER_EPOCH
            if fetch.leader_epoch > self.leader_epoch:
                return ErrorCode.UNKNOWN_LEADER_EPOCH
        if view is None:
            # We have not heard of its assignment yet, or it has not heard of its removal.
            if fetch.leader_epoch == NO_EPOCH:
                return ErrorCode.NOT_LEADER_OR_FOLLOWER
            return ErrorCode.UNKNOWN_LEADER_EPOCH
        if self._is_stale_registration(fetch, view):
            return ErrorCode.NOT_LEADER_OR_FOLLOWER
        if fetch.offset < log_start:
            return ErrorCode.OFFSET_OUT_OF_RANGE
        if fetch.last_fetched_epoch != NO_EPOCH:
            if epoch_end == NO_EPOCH_END:
                return ErrorCode.OFFSET_OUT_OF_RANGE
        elif fetch.offset > self.end:
            return ErrorCode.OFFSET_OUT_OF_RANGE
        return ErrorCode.NONE

    def _is_stale_registration(self, fetch: FollowerFetch, view: FollowerView) -> bool:
        """Whether a later life of the same broker is known already."""
        if fetch.broker_epoch == NO_BROKER_EPOCH:
            return False
        registered = self._brokers.registered_epoch(fetch.node_id)
        newest = view.broker_epoch if registered is None else max(view.broker_epoch, registered)
        return fetch.broker_epoch < newest

    def _diverging(self, fetch: FollowerFetch, epoch_end: EpochEnd) -> EpochEnd | None:
        if fetch.last_fetched_epoch == NO_EPOCH:
            return None
        return diverging_epoch(
            last_fetched_epoch=fetch.last_fetched_epoch, fetch_offset=fetch.offset, own=epoch_end
        )

    def _is_known_prefix(self, fetch: FollowerFetch, log_start: Offset) -> bool:
        """A follower whose whole log lies below our start cannot be compared with what we have
        deleted: it may hold other records there. It drops them when it hears of our start."""
        return fetch.offset > log_start or fetch.log_start_offset >= log_start

    # The ISR.

    def tick(self, now_ms: int) -> Effects:
        """At least every half replica.lag.time.max.ms: drops followers that lag."""
        self._now_ms = max(self._now_ms, now_ms)
        return self._settle(self._propose_shrink())

    def on_granted(self, proposal: IsrProposal, granted: IsrGranted, *, now_ms: int) -> Effects:
        self._now_ms = max(self._now_ms, now_ms)
        if not self.isr.on_granted(proposal, granted):
            return NO_EFFECTS
        self._refresh()
        return self._settle(None)

    def on_refused(self, proposal: IsrProposal, error: ErrorCode) -> Effects:
        """Also for a request that got no answer: any code that names no refusal is asked again."""
        if self.isr.on_refused(proposal, error) is AfterRefusal.RETRY:
            return Effects(propose=proposal)
        return self._settle(None)

    def on_assignment(self, assignment: Assignment, *, now_ms: int) -> Effects:
        """Newer metadata about this same leadership."""
        assert assignment.leader == self.me, assignment
        assert assignment.leader_epoch == self.leader_epoch, assignment
        self._now_ms = max(self._now_ms, now_ms)
        if assignment.partition_epoch < self.isr.partition_epoch:
            return NO_EFFECTS
        # The answer to a proposal may have brought this epoch already, but not its replicas.
        self.isr.on_assignment(assignment)
        self._set_replicas(assignment, now_ms=now_ms)
        return self._settle(self._propose_recovered())

    def on_settings(self, settings: ReplicationSettings) -> Effects:
        self.settings = settings
        self.durable_only = settings.durable_only
        self._refresh()
        return self._settle(None)

    def _set_replicas(self, assignment: Assignment, *, now_ms: int) -> None:
        self._replica_count = len(assignment.replicas)
        before = self._followers
        self._followers = {
            node_id: before.get(node_id)
            or FollowerView(node_id, in_sync=node_id in assignment.isr, now_ms=now_ms)
            for node_id in assignment.replicas
            if node_id != self.me
        }
        self._refresh()

    def _refresh(self) -> None:
        """Settings or replicas changed."""
        self.min_isr = min(self.settings.min_insync_replicas, self._replica_count)
        self._commits_alone = (
            not self._followers and not self.durable_only and self.isr.committed == {self.me}
        )

    def _propose_expand(self, view: FollowerView) -> IsrProposal | None:
        if view.node_id in self.isr.committed or self.isr.pending is not None:
            return None
        if not self._holds_enough_to_join(view) or not self._is_eligible(view):
            return None
        return self._propose(PendingKind.EXPAND, [view.node_id])

    def _holds_enough_to_join(self, view: FollowerView) -> bool:
        return view.end_offset >= self.high_watermark and view.end_offset >= self.epoch_start

    def _is_eligible(self, view: FollowerView) -> bool:
        """Whether the controller would take it, as far as we know: the life of the broker that
        fetched is the one that is registered."""
        registered = self._brokers.registered_epoch(view.node_id)
        if registered is None or not self._brokers.may_join_isr(view.node_id):
            return False
        return view.broker_epoch in (NO_BROKER_EPOCH, registered)

    def _propose_shrink(self) -> IsrProposal | None:
        if self.isr.pending is not None:
            return None
        lagging = [
            node_id
            for node_id in self.isr.committed
            if node_id != self.me and self._lags(self._followers.get(node_id))
        ]
        return self._propose(PendingKind.SHRINK, lagging) if lagging else None

    def _lags(self, view: FollowerView | None) -> bool:
        return view is None or not self._is_caught_up(view)

    def _is_caught_up(self, view: FollowerView) -> bool:
        return view.is_caught_up(
            leader_end=self.end,
            lag_ms_max=self.settings.replica_lag_time_max_ms,
            now_ms=self._now_ms,
        )

    def _propose_recovered(self) -> IsrProposal | None:
        """There is nothing to recover beyond what opening the log did: say so at once, since
        with one replica no change of the ISR would ever carry it."""
        if not self.isr.recovering or self.isr.pending is not None:
            return None
        return self._propose(PendingKind.RECOVER, [])

    def _propose(self, kind: PendingKind, nodes: Iterable[NodeId]) -> IsrProposal:
        changed = frozenset(nodes)
        isr = self.isr.committed
        wanted = isr - changed if kind is PendingKind.SHRINK else isr | changed
        proposal = IsrProposal(
            self.leader_epoch,
            self.isr.partition_epoch,
            tuple(InSync(node_id, self._broker_epoch(node_id)) for node_id in sorted(wanted)),
            recovering=False,
        )
        self.isr.begin(Pending(kind, changed, proposal))
        return proposal

    def _broker_epoch(self, node_id: NodeId) -> BrokerEpoch:
        """Of the registration that we have seen fetching; not the newest that we know of."""
        if node_id == self.me:
            own = self._brokers.registered_epoch(node_id)
            return NO_BROKER_EPOCH if own is None else own
        view = self._followers.get(node_id)
        return NO_BROKER_EPOCH if view is None else view.broker_epoch

    # The high watermark.

    def _settle(self, propose: IsrProposal | None, *, log_start_moved: bool = False) -> Effects:
        moved = self._advance()
        if not moved and propose is None and not log_start_moved:
            return NO_EFFECTS
        return Effects(
            self.high_watermark if moved else None,
            self._ack_code() if moved else ErrorCode.NONE,
            propose,
            log_start_moved,
        )

    def _advance(self) -> bool:
        if self.is_below_min_isr:
            return False
        lowest = min(self.end, self.durable) if self.durable_only else self.end
        for view in self._followers.values():
            if view.end_offset < lowest and self._counts(view):
                lowest = view.end_offset
        if lowest <= self.high_watermark:
            return False
        self.high_watermark = lowest
        return True

    def _counts(self, view: FollowerView) -> bool:
        """A follower outside the ISR counts too while it is about to join: otherwise a steady
        stream of appends would keep the watermark always one step ahead of it."""
        if view.node_id in self.isr.maximal:
            return True
        return self._is_caught_up(view) and self._is_eligible(view)
