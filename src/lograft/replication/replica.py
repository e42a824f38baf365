"""A replica of a partition in ISR mode: leader, follower or neither, according to the metadata.

Invariants: partition epochs and leader epochs only increase; the high watermark is passed from role
to role and never decreases, except after an unclean election that loses records; a leader or
follower object serves one leader epoch and is discarded with it, so no state of one epoch can be
mistaken for state of the next.
"""

from typing import ClassVar

from lograft.model.types import BrokerEpoch, NodeId, Offset
from lograft.replication.isr_follower import IsrFollower
from lograft.replication.isr_leader import IsrLeader
from lograft.replication.roles import RoleChange
from lograft.replication.types import (
    NO_ASSIGNMENT,
    NO_EFFECTS,
    Assignment,
    Brokers,
    Effects,
    ReplicaLog,
    ReplicationSettings,
)


class IsrReplica:
    __slots__ = (
        "_brokers",
        "_high_watermark",
        "_log",
        "assignment",
        "broker_epoch",
        "follower",
        "leader",
        "me",
        "settings",
    )

    #: Replaced by the mutants of the model test.
    leader_type: ClassVar[type[IsrLeader]] = IsrLeader
    follower_type: ClassVar[type[IsrFollower]] = IsrFollower

    def __init__(
        self,
        me: NodeId,
        *,
        broker_epoch: BrokerEpoch,
        log: ReplicaLog,
        high_watermark: Offset,
        brokers: Brokers,
        settings: ReplicationSettings,
    ) -> None:
        """`high_watermark` comes from the checkpoint. Records below it survived the last crash;
        after a crash that could lose them, the broker reports that to the controller first."""
        self.me = me
        self.broker_epoch = broker_epoch
        self.assignment = NO_ASSIGNMENT
        self.leader: IsrLeader | None = None
        self.follower: IsrFollower | None = None
        self.settings = settings
        self._log = log
        self._brokers = brokers
        self._high_watermark = max(log.log_start_offset, min(high_watermark, log.end_offset))

    @property
    def high_watermark(self) -> Offset:
        if self.leader is not None:
            return self.leader.high_watermark
        if self.follower is not None:
            return self.follower.high_watermark
        return self._high_watermark

    def on_assignment(self, assignment: Assignment, *, now_ms: int) -> tuple[RoleChange, Effects]:
        """Applies an assignment. Metadata arrives in order, but a leader also learns its own
        changes from the responses to its proposals, so the same metadata may be stale."""
        before = self.assignment
        if assignment.partition_epoch <= before.partition_epoch:
            return RoleChange.STALE, NO_EFFECTS
        assert assignment.leader_epoch >= before.leader_epoch, (before, assignment)
        self.assignment = assignment
        if assignment.leader_epoch == before.leader_epoch:
            assert assignment.leader == before.leader, (before, assignment)
            if self.leader is not None:
                return RoleChange.UPDATED, self.leader.on_assignment(assignment, now_ms=now_ms)
            if (self.follower is not None) == self._is_follower(assignment):
                return RoleChange.UPDATED, NO_EFFECTS
        return self._take_role(assignment, now_ms=now_ms)

    def _is_follower(self, assignment: Assignment) -> bool:
        return (
            self.me in assignment.replicas
            and assignment.leader >= 0
            and self.me != assignment.leader
        )

    def _take_role(self, assignment: Assignment, *, now_ms: int) -> tuple[RoleChange, Effects]:
        self._high_watermark = self.high_watermark
        self.leader = self.follower = None
        if assignment.leader == self.me:
            self.leader = self.leader_type(
                self.me,
                assignment,
                log=self._log,
                high_watermark=self._high_watermark,
                brokers=self._brokers,
                settings=self.settings,
                now_ms=now_ms,
            )
            return RoleChange.LEADER, self.leader.begin()
        if self._is_follower(assignment):
            self.follower = self.follower_type(
                self.me,
                broker_epoch=self.broker_epoch,
                leader=assignment.leader,
                leader_epoch=assignment.leader_epoch,
                log=self._log,
                high_watermark=self._high_watermark,
                settings=self.settings,
                can_lose_committed=assignment.recovering or self.settings.unclean_elections,
            )
            return RoleChange.FOLLOWER, NO_EFFECTS
        return RoleChange.NONE, NO_EFFECTS

    def on_registered(self, broker_epoch: BrokerEpoch) -> None:
        self.broker_epoch = broker_epoch
        if self.follower is not None:
            self.follower.broker_epoch = broker_epoch

    def on_settings(self, settings: ReplicationSettings) -> Effects:
        self.settings = settings
        if self.follower is not None:
            self.follower.settings = settings
            self.follower.can_lose_committed |= settings.unclean_elections
        return self.leader.on_settings(settings) if self.leader is not None else NO_EFFECTS
