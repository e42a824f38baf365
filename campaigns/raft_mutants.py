"""Mutants of the Raft core: each removes one safeguard, which the simulation must detect."""

from typing import Any, Final

from campaigns.raft_run import RaftOptions, run_raft
from lograft.consensus.core import RaftCore
from lograft.consensus.election import Election
from lograft.consensus.errors import CommittedAtRisk
from lograft.consensus.fetcher import Fetcher
from lograft.consensus.leadership import Leadership
from lograft.consensus.log_view import LogView
from lograft.consensus.messages import (
    BeginQuorumEpochRequest,
    Error,
    FetchRequest,
    FetchResponse,
    FetchSnapshotRequest,
    FetchSnapshotResponse,
    VoteRequest,
)
from lograft.consensus.roles import Role
from lograft.consensus.types import Effects, HardState, LogEnd, LogSlice
from lograft.consensus.voter_change import Stage
from lograft.model.types import NO_NODE, NO_OFFSET, Epoch, Offset

SEEDS_MAX: Final = 1_000


class VoteNotPersisted(RaftCore):
    """A vote is sent, but lost in a crash."""

    def _take_effects(self, now_ms: int) -> Effects:
        effects = super()._take_effects(now_ms)
        state = effects.persist
        if state is None or state.voted_for in (None, self.me):
            return effects
        return effects._replace(persist=HardState(state.epoch, state.leader, None, state.life))


class NothingHeldBack(RaftCore):
    """Messages are sent before the hard state that they depend on is persisted."""

    def _take_effects(self, now_ms: int) -> Effects:
        effects = super()._take_effects(now_ms)
        if effects.persist is not None:
            sends, self._sends = tuple(self._sends), []
            return Effects(persist=effects.persist, step_down=effects.step_down, send=sends)
        return effects


class VoteWithoutLogComparison(RaftCore):
    """The first candidate gets the vote, regardless of its log."""

    def _can_grant(self, request: VoteRequest) -> bool:
        my_end = LogEnd(self.log.end.epoch, self.log.end.offset)
        unchecked = VoteRequest(
            sender=request.sender,
            to=request.to,
            epoch=request.epoch,
            log_end=max(my_end, request.log_end),
            pre_vote=request.pre_vote,
        )
        return super()._can_grant(unchecked)


class TwoVotesAnEpoch(RaftCore):
    """A node can vote twice in an epoch."""

    def _can_grant(self, request: VoteRequest) -> bool:
        if request.pre_vote or self.role is not Role.VOTED:
            return super()._can_grant(request)
        return request.log_end >= self.log.end


class PreVotesCount(RaftCore):
    """A majority of pre-votes elects a leader."""

    def _count_votes(self, election: Election, now_ms: int) -> None:
        if election.pre_vote and election.is_won and len(self.voters.voters) > 1:
            self._become_candidate(now_ms)
            self.hard_state = HardState(self.epoch, NO_NODE, self.me, self.life)
            self._become_leader(election, now_ms)
        else:
            super()._count_votes(election, now_ms)


class _CountsAnyEpoch(Leadership):
    def committed_offset(self, log: LogView) -> Offset:
        start, self.epoch_start = self.epoch_start, NO_OFFSET if self.epoch_start < 0 else Offset(0)
        try:
            return super().committed_offset(log)
        finally:
            self.epoch_start = start


class OldEpochCommitted(RaftCore):
    """Raft's figure 8: records of an older epoch are committed by counting."""

    def _become_leader(self, election: Election, now_ms: int) -> None:
        super()._become_leader(election, now_ms)
        self.leadership = _CountsAnyEpoch(self.me, tuple(election.granting), self.settings, now_ms)


class UnfsyncedCounts(RaftCore):
    """A follower fetches from its log end offset instead of its durable offset."""

    def _append(self, entries: LogSlice) -> None:
        super()._append(entries)
        self.log.durable = self.log.end.offset

    def on_durable(self, offset: Offset, now_ms: int) -> Effects:
        return super().on_durable(max(offset, self.log.durable), now_ms)


class PageCacheTrusted(RaftCore):
    """A restarted replica considers everything in its log durable."""

    def start(self, now_ms: int) -> Effects:
        self.log.durable = self.log.end.offset
        return super().start(now_ms)

    def on_durable(self, offset: Offset, now_ms: int) -> Effects:
        return super().on_durable(max(offset, self.log.durable), now_ms)


class LeaderCountsUnfsynced(RaftCore):
    """A leader counts itself before it has fsynced the record."""

    def on_appended(self, end: Offset, now_ms: int, **rest: Any) -> Effects:
        effects = super().on_appended(end, now_ms, **rest)
        self.log.durable = self.log.end.offset
        return effects

    def on_durable(self, offset: Offset, now_ms: int) -> Effects:
        return super().on_durable(max(offset, self.log.durable), now_ms)


class EpochOfFetchUnchecked(RaftCore):
    """A leader accepts fetches of other epochs, and a follower responses of other leaders."""

    def _epoch_error(self, request: FetchRequest | FetchSnapshotRequest) -> Error:
        return Error.NOT_LEADER if self.leadership is None else Error.NONE

    def _fetcher_of(
        self, response: FetchResponse | FetchSnapshotResponse, now_ms: int
    ) -> Fetcher | None:
        self._learn_leader(response.epoch, response.leader, now_ms)
        fetcher = self.fetcher
        if fetcher is None or response.error is not Error.NONE or self.role is not Role.FOLLOWER:
            return super()._fetcher_of(response, now_ms)
        fetcher.on_response(now_ms)
        fetcher.on_contact(now_ms)
        return fetcher


class FollowsOlderEpoch(RaftCore):
    """A leader of an older epoch is not fenced."""

    def _on_begin_epoch(self, request: BeginQuorumEpochRequest, now_ms: int) -> None:
        if request.epoch < self.epoch and self.role is not Role.LEADER:
            self._leave_role()
            self.role = Role.UNATTACHED
            self.hard_state = HardState(request.epoch, NO_NODE, None, self.life)
        super()._on_begin_epoch(request, now_ms)


class LeadsOnAfterRestart(RaftCore):
    """A restarted leader is a candidate in the epoch that it led before."""

    def _become_candidate(self, now_ms: int) -> None:
        led = self.hard_state if self.leader == self.me.node_id else None
        super()._become_candidate(now_ms)
        if led is not None:
            self.hard_state = HardState(led.epoch, NO_NODE, self.me, self.life)


class SeveralChangesAtOnce(RaftCore):
    """Voters change again before the last change is committed."""

    def _may_change_voters(self) -> bool:
        leadership = self._require_leadership()
        return (leadership.change is None or leadership.change.stage is Stage.COMMITTING) and (
            NO_OFFSET < leadership.epoch_start < self.high_watermark
        )


class ChangeBeforeOwnCommit(RaftCore):
    """A new leader changes the voters before an entry of its epoch is committed."""

    def _may_change_voters(self) -> bool:
        return (
            self._require_leadership().change is None
            and self.log.voters_offset < self.high_watermark
        )


class CutTooDeep(RaftCore):
    """A diverging log is truncated to the start of the epoch, even below committed entries."""

    def _truncate(self, to: Offset) -> None:
        deeper = self.log.start_of(self.log.end.epoch)
        try:
            super()._truncate(min(to, deeper) if deeper > self.log.start.offset else to)
        except CommittedAtRisk:
            self.log.truncate(to)
            self._emit(truncate=to)


class DivergenceUnseen(RaftCore):
    """A follower's log is considered a prefix of the leader's without comparing epochs."""

    def _on_fetch(self, request: FetchRequest, now_ms: int) -> None:
        if self.leadership is not None and request.log_end.offset > self.log.start.offset:
            my_end = min(request.log_end.offset, self.log.end.offset)
            epochs = (Epoch(epoch) for epoch in range(self.epoch, -2, -1))
            ends = (LogEnd(epoch, my_end) for epoch in epochs)
            agreed = next((end for end in ends if self.log.compare(end) is None), request.log_end)
            request = FetchRequest(
                sender=request.sender,
                epoch=request.epoch,
                log_end=agreed,
                high_watermark=request.high_watermark,
                wait_ms=request.wait_ms,
                request_id=request.request_id,
                life=request.life,
            )
        super()._on_fetch(request, now_ms)


class WatermarkBelieved(RaftCore):
    """A follower adopts the leader's high watermark before it has the records."""

    def _on_fetch_response(self, response: FetchResponse, now_ms: int) -> None:
        super()._on_fetch_response(response, now_ms)
        if response.high_watermark > self.high_watermark and response.epoch == self.epoch:
            self.high_watermark = response.high_watermark


RAFT_MUTANTS: Final[tuple[type[RaftCore], ...]] = (
    VoteNotPersisted,
    NothingHeldBack,
    VoteWithoutLogComparison,
    TwoVotesAnEpoch,
    PreVotesCount,
    OldEpochCommitted,
    UnfsyncedCounts,
    PageCacheTrusted,
    LeaderCountsUnfsynced,
    EpochOfFetchUnchecked,
    FollowsOlderEpoch,
    LeadsOnAfterRestart,
    SeveralChangesAtOnce,
    ChangeBeforeOwnCommit,
    CutTooDeep,
    DivergenceUnseen,
    WatermarkBelieved,
)

#: Options that seeds rarely draw, but that a mutant needs: a power loss while a restarted replica
#: still flushes its log.
CHOSEN_OPTIONS: Final[dict[type[RaftCore], RaftOptions]] = {
    PageCacheTrusted: RaftOptions(slow_disk=0.9, fault_interval_ms=120)
}


def hunt_raft(
    mutant: type[RaftCore],
    *,
    seeds_max: int = SEEDS_MAX,
    first: int = 0,
    outcomes_only: bool = False,
) -> tuple[int, str] | None:
    """Returns the number of seeds until the mutant is caught and the violation, or None."""
    for count, seed in enumerate(range(first, first + seeds_max), start=1):
        report = run_raft(
            seed, CHOSEN_OPTIONS.get(mutant), core_type=mutant, outcomes_only=outcomes_only
        )
        if report.violation:
            return count, report.violation
    return None
