"""Mutants of the mode switch: each omits one safeguard, which the invariants must detect."""

from collections.abc import Callable
from typing import Final

from lograft.consensus.core import RaftCore
from lograft.consensus.messages import (
    BeginQuorumEpochRequest,
    EndQuorumEpochRequest,
    FetchRequest,
    Message,
    VoteRequest,
)
from lograft.consensus.types import Effects, LogEnd
from lograft.metadata import mode_switch
from lograft.metadata.elections import is_reassigning
from lograft.model.errors import ErrorCode, Rejected
from lograft.model.types import NO_NODE, NO_OFFSET, Epoch, NodeId, ReplicationMode
from lograft.replication.isr_follower import IsrFollower
from lograft.replication.raft_modes import ModeReplica
from lograft.replication.raft_port import log_tail
from lograft.replication.replica import IsrReplica
from lograft.replication.types import Assignment
from lograft.wire.records.partition_record import PartitionRecord
from tests.unit.replication.mode_cluster import ModeCluster


class NoBatchCore(RaftCore):
    """Commits and elects with any available replicas."""

    def begin_life(self, life: Epoch, leader: NodeId, now_ms: int) -> Effects:
        if leader == self.me.node_id and self.log.start_of(life) == NO_OFFSET:
            self.log._add_epoch(life, self.log.end.offset)
        return super().begin_life(life, leader, now_ms)


class NoBatch(ModeReplica):
    core_type = NoBatchCore

    def _append_first_batch(self, assignment: Assignment) -> None:
        self._control_end = self.log.end_offset


class LazyFollower(IsrFollower):
    @property
    def waits_for_flush(self) -> bool:
        return False


class LazyFollowers(IsrReplica):
    follower_type = LazyFollower


class LazyLeader(ModeReplica):
    @property
    def can_enter_raft(self) -> bool:
        log = self.log
        durable, log.durable_offset = log.durable_offset, log.end_offset  # type: ignore[misc]
        try:
            return super().can_enter_raft
        finally:
            log.durable_offset = durable  # type: ignore[misc]


class AnyLife(RaftCore):
    def step(self, message: Message, now_ms: int) -> Effects:
        if isinstance(
            message,
            VoteRequest | BeginQuorumEpochRequest | EndQuorumEpochRequest | FetchRequest,
        ):
            object.__setattr__(message, "life", self.life)
        return super().step(message, now_ms)


class AnyLifeReplica(ModeReplica):
    core_type = AnyLife


class Unbarred(RaftCore):
    @property
    def is_barred(self) -> bool:
        return False


class VotesAfterLeaving(ModeReplica):
    core_type = Unbarred

    def find_tail(self, epoch: Epoch) -> LogEnd | Epoch | None:
        raft = self.raft
        if raft is None or self.assignment.leader != NO_NODE or raft.core.epoch > epoch:
            return super().find_tail(epoch)
        if self.assignment.leader_epoch != epoch or self.log.durable_offset < self.log.end_offset:
            return None
        return log_tail(self.log) if raft.core.is_settled else None


class AnswersBeforeFsync(ModeReplica):
    def find_tail(self, epoch: Epoch) -> LogEnd | Epoch | None:
        log = self.log
        durable, log.durable_offset = log.durable_offset, log.end_offset  # type: ignore[misc]
        try:
            return super().find_tail(epoch)
        finally:
            log.durable_offset = durable  # type: ignore[misc]


class AnswersBeforeItIsBound(ModeReplica):
    def find_tail(self, epoch: Epoch) -> LogEnd | Epoch | None:
        raft = self.raft
        if raft is None or raft.core.epoch != epoch or not raft.core.is_barred:
            return super().find_tail(epoch)
        return log_tail(self.log)


def any_isr(image: object, topic: object, index: int, **asked: object) -> PartitionRecord:
    """Enters raft mode with any ISR and with outdated evidence."""
    state = topic.partitions[index]  # type: ignore[attr-defined]
    if state.mode is not ReplicationMode.ENTERING or is_reassigning(state):
        raise Rejected(ErrorCode.INVALID_REQUEST, "")
    return mode_switch._build_record(
        topic,  # type: ignore[arg-type]
        index,
        state,
        mode=ReplicationMode.RAFT,
        life=state.leader_epoch,
        elr=(),
        last_known_elr=(),
    )


def _with(replica_type: type[ModeReplica]) -> Callable[[], ModeCluster]:
    return lambda: ModeCluster(replica_type=replica_type)


def _lazy_followers() -> ModeCluster:
    return ModeCluster(isr_type=LazyFollowers)


def _any_life() -> ModeCluster:
    cluster = ModeCluster(replica_type=AnyLifeReplica)
    cluster.checks_life = False
    return cluster


def _early_appointment() -> ModeCluster:
    cluster = ModeCluster()
    real = cluster.controller.on_tail

    def without_majority(*args: object, **named: object) -> object:
        kept, mode_switch.majority = mode_switch.majority, lambda replicas: 1
        try:
            return real(*args, **named)
        finally:
            mode_switch.majority = kept

    cluster.controller.on_tail = without_majority  # type: ignore[assignment]
    return cluster


def _isr_below_minimum() -> ModeCluster:
    cluster = ModeCluster()
    real = cluster.controller.on_tail
    cluster.controller.on_tail = lambda *args, **named: real(*args, **{**named, "min_isr": 1})
    return cluster


def _early_acts() -> ModeCluster:
    cluster = ModeCluster()
    cluster.acts_before_catch_up = True
    return cluster


def _votes_not_fsynced() -> ModeCluster:
    cluster = ModeCluster()
    cluster.journal_is_fsynced = False
    return cluster


MUTANTS: Final[dict[str, Callable[[], ModeCluster]]] = {
    "no control batch on entering": _with(NoBatch),
    "followers do not fsync on entering": _lazy_followers,
    "the leader does not fsync on entering": _with(LazyLeader),
    "life not checked in a vote": _any_life,
    "a vote after leaving": _with(VotesAfterLeaving),
    "answer before the fsync": _with(AnswersBeforeFsync),
    "answer before the vote for the controller is on disk": _with(AnswersBeforeItIsBound),
    "appointment without a majority": _early_appointment,
    "isr written below MinISR": _isr_below_minimum,
    "acting before the catch-up": _early_acts,
    "votes not fsynced": _votes_not_fsynced,
}
