"""The leader's side of ISR replication: one object for one leader epoch of one partition.

The high watermark is the lowest log end among the replicas that may be in the ISR. Three rules
protect the records below it:

- it waits for `maximal`: every replica that a proposal in flight may already have added;
- it does not advance while the committed ISR is smaller than min.insync.replicas, so that replicas
  that left the ISR since (the ELR, KIP-966) have every committed record;
- a follower joins only with all committed records *and* everything in the leader's log at the start
  of its epoch, fetched under the current registration of its broker (KIP-903): records that it had
  before a crash do not count.

All decisions are made in memory; the shell sends proposals and limits the rate of retries.
"""

from collections.abc import Iterable
from typing import Final

from lograft.model.errors import ErrorCode
from lograft.model.types import NO_EPOCH, BrokerEpoch, NodeId, Offset
from lograft.replication.divergence import diverging_epoch
from lograft.replication.isr_state import IsrState, Pending, PendingKind, RejectionAction
from lograft.replication.replica_view import FollowerView, ReplicaStatus
from lograft.replication.types import (
    ACCEPTED,
    NO_BROKER_EPOCH,
    NO_EFFECTS,
    NO_EPOCH_END,
    AcceptedIsr,
    Assignment,
    Brokers,
    Effects,
    EpochEnd,
    FetchVerdict,
    FollowerFetch,
    InSync,
    IsrProposal,
    ReplicaLog,
    ReplicationSettings,
)

#: Looked up once, since acknowledgements are frequent.
NO_ERROR: Final = ErrorCode.NONE


class IsrLeader:
    """The leader of a partition in isr mode (`roles.LeaderRole`)."""

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
        #: Log end at the start of this leadership: everything below came from earlier leaders.
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
        #: The only replica, without the need for a flush: its appends are committed at once. That
        #: is the case for most topics of a single node, and appends are frequent.
        self._commits_alone = False
        #: Time of the last event; appends do not carry one.
        self._now_ms = now_ms
        self._set_replicas(assignment, now_ms=now_ms)

    def begin(self) -> Effects:
        """Returns the first effects of a new leader."""
        return self._collect_effects(self._propose_recovered())

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
            # Other log ends hold the high watermark back, so this append cannot advance it.
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
        """Rejects acks=all before the append if the ISR is too small, so that nothing is
        written."""
        if acks_all and not self._commits_alone and self.is_below_min_isr:
            return ErrorCode.NOT_ENOUGH_REPLICAS
        return NO_ERROR

    def ack_of(self, end: Offset) -> ErrorCode | None:
        """Returns the result of an acks=all append that ended at `end`; None if it must wait."""
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
    def can_report_latest(self) -> bool:
        """Whether the high watermark can be reported as the latest offset. Before it has reached
        the start of this epoch, an earlier leader may have reported a higher one (KIP-207,
        OFFSET_NOT_AVAILABLE)."""
        return self.high_watermark >= self.epoch_start

    def low_watermark(self, log_start: Offset) -> Offset:
        """Returns the offset below which all live replicas have deleted their records, for which
        DeleteRecords waits. `log_start` is the leader's."""
        lowest = log_start
        for view in self._followers.values():
            if view.log_start_offset < lowest and self._brokers.can_join_isr(view.node_id):
                lowest = view.log_start_offset
        return lowest

    def statuses(self, log_start: Offset) -> list[ReplicaStatus]:
        """Returns the status of every replica, the leader first."""
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
        """Checks a fetch. `epoch_end` is the end of the fetch's last epoch in the leader's log."""
        self._now_ms = max(self._now_ms, now_ms)
        view = self._followers.get(fetch.node_id)
        error = self._check_fetch(fetch, view, log_start=log_start, epoch_end=epoch_end)
        if error is not ErrorCode.NONE:
            return FetchVerdict(error, None, NO_EFFECTS)
        assert view is not None
        diverging = self._find_divergence(fetch, epoch_end)
        if diverging is not None:
            # Its offset belongs to a diverging log, so it does not count.
            return FetchVerdict(ErrorCode.NONE, diverging, NO_EFFECTS)
        assert fetch.offset <= self.end, (fetch, self.end)
        log_start_moved = fetch.log_start_offset > view.log_start_offset
        end_moved = fetch.offset != view.end_offset
        view.on_fetch(fetch, leader_end=self.end, now_ms=now_ms)
        view.is_known_prefix = self._is_known_prefix(fetch, log_start)
        propose = self._propose_expand(view) if view.is_known_prefix else None
        if propose is None and not end_moved and not log_start_moved:
            return ACCEPTED
        effects = self._collect_effects(propose, log_start_moved=log_start_moved)
        return ACCEPTED if effects is NO_EFFECTS else FetchVerdict(ErrorCode.NONE, None, effects)

    def on_follower_poll(
        self, node_id: NodeId, *, broker_epoch: BrokerEpoch, now_ms: int
    ) -> Effects:
        """Handles a follower that polls within its session at an unchanged position. If it has
        everything, it is caught up as of now. Its broker may also have become eligible for the ISR
        since its last fetch."""
        self._now_ms = max(self._now_ms, now_ms)
        view = self._followers.get(node_id)
        if view is None:
            return NO_EFFECTS
        if broker_epoch > view.broker_epoch:
            # The broker registered again without a restart: its log is still the fetched one.
            view.broker_epoch = broker_epoch
        view.on_poll(leader_end=self.end, now_ms=now_ms)
        propose = self._propose_expand(view) if view.is_known_prefix else None
        return NO_EFFECTS if propose is None else self._collect_effects(propose)

    def on_follower_alive(self, node_id: NodeId, *, now_ms: int) -> None:
        """Does nothing: a sign of life does not keep a follower that lags in the ISR."""

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
            # Our metadata lacks its assignment, or its metadata lacks its removal.
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
        """Whether a later registration of the same broker is known."""
        if fetch.broker_epoch == NO_BROKER_EPOCH:
            return False
        registered = self._brokers.registered_epoch(fetch.node_id)
        newest = view.broker_epoch if registered is None else max(view.broker_epoch, registered)
        return fetch.broker_epoch < newest

    def _find_divergence(self, fetch: FollowerFetch, epoch_end: EpochEnd) -> EpochEnd | None:
        if fetch.last_fetched_epoch == NO_EPOCH:
            return None
        return diverging_epoch(
            last_fetched_epoch=fetch.last_fetched_epoch, fetch_offset=fetch.offset, own=epoch_end
        )

    def _is_known_prefix(self, fetch: FollowerFetch, log_start: Offset) -> bool:
        """Whether the follower's log is known to be a prefix of ours. A log that is entirely below
        our log start cannot be compared with the deleted records, and may differ from them. The
        follower deletes it when it receives our log start."""
        return fetch.offset > log_start or fetch.log_start_offset >= log_start

    # The ISR.

    def tick(self, now_ms: int) -> Effects:
        """Proposes to remove lagging followers. Called at least every half
        replica.lag.time.max.ms."""
        self._now_ms = max(self._now_ms, now_ms)
        return self._collect_effects(self._propose_shrink())

    def on_accepted(self, proposal: IsrProposal, accepted: AcceptedIsr, *, now_ms: int) -> Effects:
        self._now_ms = max(self._now_ms, now_ms)
        if not self.isr.on_accepted(proposal, accepted):
            return NO_EFFECTS
        self._refresh()
        return self._collect_effects(None)

    def on_rejected(self, proposal: IsrProposal, error: ErrorCode) -> Effects:
        """Handles an error response, or a request without a response: codes that do not tell
        whether the proposal was applied are retried."""
        if self.isr.on_rejected(proposal, error) is RejectionAction.RETRY:
            return Effects(propose=proposal)
        return self._collect_effects(None)

    def on_assignment(self, assignment: Assignment, *, now_ms: int) -> Effects:
        """Newer metadata about this same leadership."""
        assert assignment.leader == self.me, assignment
        assert assignment.leader_epoch == self.leader_epoch, assignment
        self._now_ms = max(self._now_ms, now_ms)
        if assignment.partition_epoch < self.isr.partition_epoch:
            return NO_EFFECTS
        # The response to a proposal may have contained this epoch already, but not its replicas.
        self.isr.on_assignment(assignment)
        self._set_replicas(assignment, now_ms=now_ms)
        return self._collect_effects(self._propose_recovered())

    def on_settings(self, settings: ReplicationSettings) -> Effects:
        self.settings = settings
        self.durable_only = settings.durable_only
        self._refresh()
        return self._collect_effects(None)

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
        if not self._has_enough_to_join(view) or not self._is_eligible(view):
            return None
        return self._propose(PendingKind.EXPAND, [view.node_id])

    def _has_enough_to_join(self, view: FollowerView) -> bool:
        return view.end_offset >= self.high_watermark and view.end_offset >= self.epoch_start

    def _is_eligible(self, view: FollowerView) -> bool:
        """Whether the controller would accept the follower, as far as we know: the broker epoch of
        its last fetch is the registered one."""
        registered = self._brokers.registered_epoch(view.node_id)
        if registered is None or not self._brokers.can_join_isr(view.node_id):
            return False
        return view.broker_epoch in (NO_BROKER_EPOCH, registered)

    def _propose_shrink(self) -> IsrProposal | None:
        if self.isr.pending is not None:
            return None
        lagging = [
            node_id
            for node_id in self.isr.committed
            if node_id != self.me and self._is_lagging(self._followers.get(node_id))
        ]
        return self._propose(PendingKind.SHRINK, lagging) if lagging else None

    def _is_lagging(self, view: FollowerView | None) -> bool:
        return view is None or not self._is_caught_up(view)

    def _is_caught_up(self, view: FollowerView) -> bool:
        return view.is_caught_up(
            leader_end=self.end,
            lag_ms_max=self.settings.replica_lag_time_max_ms,
            now_ms=self._now_ms,
        )

    def _propose_recovered(self) -> IsrProposal | None:
        """Reports the recovery from an unclean election. Opening the log has done all that was
        needed. It is reported at once, since with one replica there may never be an ISR change."""
        if not self.isr.recovering or self.isr.pending is not None:
            return None
        return self._propose(PendingKind.RECOVER, [])

    def _propose(self, kind: PendingKind, nodes: Iterable[NodeId]) -> IsrProposal:
        changed = frozenset(nodes)
        isr = self.isr.committed
        proposed = isr - changed if kind is PendingKind.SHRINK else isr | changed
        proposal = IsrProposal(
            self.leader_epoch,
            self.isr.partition_epoch,
            tuple(InSync(node_id, self._broker_epoch(node_id)) for node_id in sorted(proposed)),
            recovering=False,
        )
        self.isr.begin(Pending(kind, changed, proposal))
        return proposal

    def _broker_epoch(self, node_id: NodeId) -> BrokerEpoch:
        """Returns the broker epoch of the last fetch, not the newest registered one."""
        if node_id == self.me:
            own = self._brokers.registered_epoch(node_id)
            return NO_BROKER_EPOCH if own is None else own
        view = self._followers.get(node_id)
        return NO_BROKER_EPOCH if view is None else view.broker_epoch

    # The high watermark.

    def _collect_effects(
        self, propose: IsrProposal | None, *, log_start_moved: bool = False
    ) -> Effects:
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
            if view.end_offset < lowest and self._counts_for_watermark(view):
                lowest = view.end_offset
        if lowest <= self.high_watermark:
            return False
        self.high_watermark = lowest
        return True

    def _counts_for_watermark(self, view: FollowerView) -> bool:
        """Whether the high watermark waits for the follower. One outside the ISR counts, too, while
        it is about to join: otherwise, under constant appends, the high watermark would always be
        one step ahead of it."""
        if view.node_id in self.isr.maximal:
            return True
        return self._is_caught_up(view) and self._is_eligible(view)
