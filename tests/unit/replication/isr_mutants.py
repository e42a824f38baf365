"""Mutants of replication: each omits one rule, which the invariants of the cluster must detect."""

from collections.abc import Callable
from dataclasses import dataclass

from lograft.model.errors import ErrorCode
from lograft.model.types import BrokerEpoch, NodeId, Offset
from lograft.replication.isr_follower import IsrFollower
from lograft.replication.isr_leader import IsrLeader
from lograft.replication.replica import IsrReplica
from lograft.replication.replica_view import FollowerView
from lograft.replication.types import (
    NO_BROKER_EPOCH,
    Effects,
    EpochEnd,
    FollowerEffects,
    FollowerFetch,
    IsrProposal,
    LeaderResponse,
)
from tests.unit.replication.isr_cluster import IsrCluster


@dataclass(frozen=True)
class Mutant:
    name: str
    leader: type[IsrLeader] = IsrLeader
    follower: type[IsrFollower] = IsrFollower
    change: Callable[[IsrCluster], None] | None = None
    #: Detected only if every acknowledgement waits for a flush.
    durable_only: bool = False

    def __str__(self) -> str:
        return self.name

    def replica_type(self) -> type[IsrReplica]:
        class MutantReplica(IsrReplica):
            leader_type = self.leader
            follower_type = self.follower

        return MutantReplica


class CommittedIsrOnly(IsrLeader):
    def _counts_for_watermark(self, view: FollowerView) -> bool:
        return view.node_id in self.isr.committed


class ShrinksAtOnce(IsrLeader):
    def _propose_shrink(self) -> IsrProposal | None:
        proposal = super()._propose_shrink()
        pending = self.isr.pending
        if proposal is not None and pending is not None:
            self.isr.maximal = self.isr.committed - pending.nodes
        return proposal


class ForgetsUnknownOutcomes(IsrLeader):
    def on_rejected(self, proposal: IsrProposal, error: ErrorCode) -> Effects:
        return super().on_rejected(proposal, ErrorCode.OPERATION_NOT_ATTEMPTED)


class CommitsBelowMin(IsrLeader):
    def _advance(self) -> bool:
        lowest = min(self.end, self.durable) if self.durable_only else self.end
        for view in self._followers.values():
            if self._counts_for_watermark(view):
                lowest = min(lowest, view.end_offset)
        moved = lowest > self.high_watermark
        self.high_watermark = max(lowest, self.high_watermark)
        return moved


class NoEpochStart(IsrLeader):
    def _has_enough_to_join(self, view: FollowerView) -> bool:
        return view.end_offset >= self.high_watermark


class JoinsAnywhere(IsrLeader):
    def _has_enough_to_join(self, view: FollowerView) -> bool:
        return True


class JoinsUnknown(IsrLeader):
    def _is_known_prefix(self, fetch: FollowerFetch, log_start: Offset) -> bool:
        return True


class NoDivergenceCheck(IsrLeader):
    def _find_divergence(self, fetch: FollowerFetch, epoch_end: EpochEnd) -> EpochEnd | None:
        return None


class NoLeaderEpochCheck(IsrLeader):
    def _check_fetch(
        self,
        fetch: FollowerFetch,
        view: FollowerView | None,
        *,
        log_start: Offset,
        epoch_end: EpochEnd,
    ) -> ErrorCode:
        return super()._check_fetch(
            fetch._replace(leader_epoch=self.leader_epoch),
            view,
            log_start=log_start,
            epoch_end=epoch_end,
        )


class AnyBrokerEpoch(IsrLeader):
    def _is_eligible(self, view: FollowerView) -> bool:
        return self._brokers.can_join_isr(view.node_id)

    def _broker_epoch(self, node_id: NodeId) -> BrokerEpoch:
        return NO_BROKER_EPOCH


class OldRegistrationsCount(IsrLeader):
    def _is_stale_registration(self, fetch: FollowerFetch, view: FollowerView) -> bool:
        return False


class TellsLatestAtOnce(IsrLeader):
    can_report_latest = True


class CountsUnflushed(IsrLeader):
    def on_appended(self, end: Offset) -> bool:
        self.durable = end
        return super().on_appended(end)


class FetchesUnflushed(IsrFollower):
    waits_for_flush = False


class RaisesBeforeCutting(IsrFollower):
    """KAFKA-14704."""

    def on_response(
        self, fetch: FollowerFetch, answer: LeaderResponse, *, now_ms: int
    ) -> FollowerEffects:
        if self._is_in_flight(fetch):
            self._raise_high_watermark(min(answer.high_watermark, self._log.end_offset))
        return super().on_response(fetch, answer, now_ms=now_ms)


class WatermarkFollowsBlindly(IsrFollower):
    def _raise_high_watermark(self, to: Offset) -> bool:
        moved = to != self.high_watermark
        self.high_watermark = to
        return moved


class TakesLateAnswers(IsrFollower):
    def on_response(
        self, fetch: FollowerFetch, answer: LeaderResponse, *, now_ms: int
    ) -> FollowerEffects:
        if self._in_flight is not None and not answer.has_records:
            fetch = self._in_flight
        return super().on_response(fetch, answer, now_ms=now_ms)


class CutsToLeadersEnd(IsrFollower):
    """Uses the leader's end of an epoch that the follower does not have (before KIP-279)."""

    def on_response(
        self, fetch: FollowerFetch, answer: LeaderResponse, *, now_ms: int
    ) -> FollowerEffects:
        if answer.diverging is not None and self._is_in_flight(fetch):
            return self._truncate(min(answer.diverging.end_offset, self._log.end_offset))
        return super().on_response(fetch, answer, now_ms=now_ms)


def _no_unclean_detection(cluster: IsrCluster) -> None:
    cluster.controller.detects_unclean_shutdown = False


def _no_broker_epochs_at_controller(cluster: IsrCluster) -> None:
    cluster.controller.checks_broker_epochs = False


def _same_epoch_without_replica(cluster: IsrCluster) -> None:
    cluster.controller.new_epoch_without_replica = False


def _acts_before_catch_up(cluster: IsrCluster) -> None:
    cluster.acts_before_catch_up = True


#: Detected by random schedules.
MUTANTS = [
    Mutant("high watermark from the committed ISR only", leader=CommittedIsrOnly),
    Mutant("a shrink counts before the controller took it", leader=ShrinksAtOnce),
    Mutant("high watermark moves below min.insync.replicas", leader=CommitsBelowMin),
    Mutant("expansion without the start of the epoch", leader=NoEpochStart),
    Mutant("expansion of whoever fetches", leader=JoinsAnywhere),
    Mutant("no divergence check on fetch", leader=NoDivergenceCheck),
    Mutant("latest offset told before the epoch start", leader=TellsLatestAtOnce),
    Mutant("leader counts what is not on disk", leader=CountsUnflushed, durable_only=True),
    Mutant("follower fetches before its flush", follower=FetchesUnflushed, durable_only=True),
    Mutant("follower raises its watermark before it cuts", follower=RaisesBeforeCutting),
    Mutant("follower's watermark follows the leader's down", follower=WatermarkFollowsBlindly),
    Mutant("follower cuts to the leader's end", follower=CutsToLeadersEnd),
    Mutant("unclean shutdowns are not noticed", change=_no_unclean_detection),
    Mutant("a broker acts on metadata before its registration", change=_acts_before_catch_up),
]

#: These need several unlikely events in sequence: a guided schedule each (test_isr_guided.py).
UNKNOWN_OUTCOME = Mutant("an unknown outcome is a refusal", leader=ForgetsUnknownOutcomes)
NO_LEADER_EPOCH = Mutant("no leader epoch check on fetch", leader=NoLeaderEpochCheck)
NO_BROKER_EPOCH_SENT = Mutant("expansion without broker epoch", leader=AnyBrokerEpoch)
NO_BROKER_EPOCH_READ = Mutant(
    "controller ignores broker epochs", change=_no_broker_epochs_at_controller
)
OLD_REGISTRATION = Mutant("fetches of an older registration count", leader=OldRegistrationsCount)
LATE_ANSWERS = Mutant("follower takes late answers", follower=TakesLateAnswers)
SAME_EPOCH_WITHOUT_REPLICA = Mutant(
    "a replica goes without a new epoch", change=_same_epoch_without_replica
)
JOINS_UNKNOWN = Mutant("expansion of a log that cannot be compared", leader=JoinsUnknown)
