"""Builds every change of a partition, so that related fields change together: a reassignment that
has become possible is completed, a leader that cannot stay is replaced, and the replicas with all
committed records are tracked (KIP-966).

The problem. The controller elects the leaders of partitions in isr mode. It does not see their
logs, so it must know from the partition's record alone which replicas have all committed records.

The ISR. A leader commits a record when all members of the ISR have it, and removes a member only
through the controller. Every member of the ISR in the record therefore has all committed records,
unless its broker stopped without closing its logs: its page cache may be lost.

The ELR. The leader commits nothing while the ISR has fewer members than min.insync.replicas. A
replica that leaves the ISR in that state, or by leaving causes it, therefore has all records that
are committed until the ISR is large enough again. These are the eligible leader replicas. The ELR
is emptied when the ISR is large enough again. A broker that registers after an unclean stop is
removed from both lists (`crashed`).

Candidates for leadership, in this order:
1. A member of the ISR.
2. If no member of the ISR is left, an eligible leader replica. It becomes the only member.
3. If both are empty, the last known leader. All replicas that had all committed
   records crashed and may have lost their page caches; this one has probably lost the least.
4. Any replica, if unclean elections are allowed.

After 3 and 4 the partition is `recovering`, because committed records may be lost. Without the
ELR feature (eligible.leader.replicas.version 0), the last member never leaves the ISR in the
record, as in older releases of Kafka: the partition is offline until that broker returns.

Partitions in raft mode are not elected here: their voters do it (`consensus/election.py`), and a
partition that leaves raft mode gets its leader from `mode_switch`.
"""

from enum import Enum
from uuid import UUID

from lograft.metadata.leadership_rules import LeadershipRules
from lograft.metadata.replay import LEADER_UNCHANGED, MODE_UNCHANGED, RECOVERY_UNCHANGED
from lograft.metadata.types import LeaderRecovery, PartitionState, TopicState
from lograft.model.types import NO_NODE, ReplicationMode
from lograft.wire.records.partition_change_record import PartitionChangeRecord


class Election(Enum):
    #: The preferred replica leads if it can: the first one, or the one specified by the request.
    PREFERRED = "preferred"
    #: The current leader stays if it can.
    ONLINE = "online"
    #: The current leader stays if it can; if no eligible replica is online, any other one leads.
    UNCLEAN = "unclean"


class PartitionChange:
    """The next state of a partition: set the fields that change, then call `build` once.

    Invariants of the result: the leader is in the ISR. ISR and ELR are disjoint and contain only
    replicas. The leader epoch increases whenever the leader changes or a replica is removed.
    """

    __slots__ = (
        "_leadership_rules",
        "_rules",
        "adding",
        "before",
        "crashed",
        "directories",
        "election",
        "elr",
        "index",
        "isr",
        "preferred",
        "recovery",
        "removing",
        "replicas",
        "topic",
    )

    def __init__(self, leadership_rules: LeadershipRules, topic: TopicState, index: int) -> None:
        before = topic.partitions[index]
        self._leadership_rules = leadership_rules
        self._rules = leadership_rules.rules_of(topic.name)
        self.topic = topic
        self.index = index
        self.before: PartitionState = before
        self.replicas = before.replicas
        self.removing = before.removing_replicas
        self.adding = before.adding_replicas
        self.isr = before.isr
        self.elr = before.elr
        self.recovery = before.leader_recovery
        self.election = Election.ONLINE
        #: The replica for a preferred election; None for the first replica.
        self.preferred: int | None = None
        #: A broker that stopped without closing its logs and may have lost records.
        self.crashed: int = NO_NODE
        #: The directories of replicas that are new or have moved.
        self.directories: dict[int, UUID] = {}

    def elect_uncleanly_if_allowed(self) -> None:
        """Applies the topic's config for elections that were not requested explicitly."""
        if self._rules.unclean_elections:
            self.election = Election.UNCLEAN

    def remove_from_isr(self, broker_id: int) -> None:
        """The broker is no longer in sync."""
        self.isr = tuple(member for member in self.isr if member != broker_id)

    def build(self) -> PartitionChangeRecord | None:
        """The record of the change; None if nothing changes."""
        before = self.before
        leader = before.leader
        if before.mode is not ReplicationMode.RAFT:
            # (In raft mode the voters complete reassignments, and there is no ELR.)
            self._complete_reassignment()
            self._keep_eligible()
        if controller_elects(before):
            leader = self._elect()
        if not self.isr and not self._leadership_rules.elr_enabled:
            # Nothing else records which replicas have everything.
            self.isr = tuple(member for member in before.isr if member in self.replicas)
        return self._record(leader, last_known=self._last_known(leader))

    def _mode(self) -> ReplicationMode:
        """A partition that is leaving raft mode completes the switch once enough replicas are in
        sync."""
        before = self.before
        if before.mode is not ReplicationMode.LEAVING:
            return before.mode
        return before.mode if self._is_below_minimum() else ReplicationMode.ISR

    def _complete_reassignment(self) -> None:
        """Completes the reassignment when all added replicas are in sync or, if the partition gets
        fewer replicas, when all remaining ones are."""
        if not self.removing and not self.adding:
            return
        isr = tuple(member for member in self.isr if member not in self.removing)
        replicas = tuple(replica for replica in self.replicas if replica not in self.removing)
        if not isr or not replicas:
            return
        needed = replicas if len(self.adding) < len(self.removing) else self.adding
        if all(replica in isr for replica in needed):
            self.isr, self.replicas = isr, replicas
            self.removing = self.adding = ()

    def _keep_eligible(self) -> None:
        """Below the minimum the leader commits nothing. A replica that leaves the ISR then, or by
        leaving takes the ISR below the minimum, therefore has everything that is committed."""
        self.elr = ()
        if self._leadership_rules.elr_enabled and self._is_below_minimum():
            holders = sorted({*self.before.elr, *self.before.isr})
            self.elr = tuple(
                replica
                for replica in holders
                if replica not in self.isr and replica != self.crashed and replica in self.replicas
            )

    def _is_below_minimum(self) -> bool:
        count = len(self.isr)
        return count < self._rules.min_insync_replicas and count < len(self.replicas)

    def _elect(self) -> int:
        before = self.before
        first: tuple[int, ...] = ()
        if self.election is Election.PREFERRED:
            first = (self.replicas[0] if self.preferred is None else self.preferred,)
        candidate: int
        for candidate in (*first, before.leader, *self.replicas):
            if self._is_eligible(candidate) and self._may_lead(candidate):
                if candidate not in self.isr:
                    self.isr = (candidate,)
                    self._keep_eligible()
                return candidate
        unclean = self._elect_last_known()
        if unclean == NO_NODE and self.election is Election.UNCLEAN:
            unclean = next((r for r in self.replicas if self._may_lead(r)), NO_NODE)
        if unclean != NO_NODE:
            self.isr = (unclean,)
            self.elr = ()
            self.recovery = LeaderRecovery.RECOVERING
        return unclean

    def _elect_last_known(self) -> int:
        last = self.before.last_known_elr
        if self._leadership_rules.elr_enabled and not self.isr and not self.elr and len(last) == 1:
            return last[0] if last[0] in self.replicas and self._may_lead(last[0]) else NO_NODE
        return NO_NODE

    def _is_eligible(self, replica: int) -> bool:
        return replica in self.isr or (not self.isr and replica in self.elr)

    def _may_lead(self, replica: int) -> bool:
        return self._leadership_rules.may_lead(self.before, replica, self.directories.get(replica))

    def _last_known(self, leader: int) -> tuple[int, ...]:
        """The leader at the time when the ISR became empty; cleared once there is a new leader."""
        before = self.before
        if not self._leadership_rules.elr_enabled:
            return before.last_known_elr
        if leader != NO_NODE:
            return ()
        if not self.isr and before.isr and before.leader != NO_NODE:
            return (before.leader,)
        return before.last_known_elr

    def _record(self, leader: int, *, last_known: tuple[int, ...]) -> PartitionChangeRecord | None:
        before = self.before
        record = PartitionChangeRecord(partition_id=self.index, topic_id=self.topic.topic_id)
        if leader != before.leader or self._needs_leader_epoch():
            record.leader = leader
        if self.isr != before.isr:
            record.isr = list(self.isr)
        if self.replicas != before.replicas:
            record.replicas = list(self.replicas)
        if self.replicas != before.replicas or self.directories:
            directories = self._directories_now()
            if directories != before.directories:
                record.directories = list(directories)
        if self.removing != before.removing_replicas:
            record.removing_replicas = list(self.removing)
        if self.adding != before.adding_replicas:
            record.adding_replicas = list(self.adding)
        if self.recovery != before.leader_recovery:
            record.leader_recovery_state = self.recovery
        if self.elr != before.elr:
            record.eligible_leader_replicas = list(self.elr)
        if last_known != before.last_known_elr:
            record.last_known_elr = list(last_known)
        if (mode := self._mode()) is not before.mode:
            record.replication_mode = mode
        return record if _has_changes(record) else None

    def _needs_leader_epoch(self) -> bool:
        """A replica that is removed and returns must not be mistaken for the earlier one."""
        before = self.before
        if self.replicas != before.replicas and _loses(before.replicas, self.replicas):
            return True
        return self._leadership_rules.epoch_per_shrink and _loses(before.isr, self.isr)

    def _directories_now(self) -> tuple[UUID, ...]:
        known = dict(zip(self.before.replicas, self.before.directories, strict=True))
        known.update(self.directories)
        return tuple(
            known[replica]
            if replica in known
            else self._leadership_rules.default_directory(replica)
            for replica in self.replicas
        )


def _loses(before: tuple[int, ...], after: tuple[int, ...]) -> bool:
    return any(replica not in after for replica in before)


def _has_changes(record: PartitionChangeRecord) -> bool:
    return (
        record.leader != LEADER_UNCHANGED
        or record.isr is not None
        or record.replicas is not None
        or record.directories is not None
        or record.removing_replicas is not None
        or record.adding_replicas is not None
        or record.leader_recovery_state != RECOVERY_UNCHANGED
        or record.eligible_leader_replicas is not None
        or record.last_known_elr is not None
        or record.replication_mode != MODE_UNCHANGED
    )


def controller_elects(partition: PartitionState) -> bool:
    """In raft mode the replicas elect the leader; in mode leaving, their log ends decide."""
    return partition.mode in (ReplicationMode.ISR, ReplicationMode.ENTERING)


def is_reassigning(partition: PartitionState) -> bool:
    return bool(partition.adding_replicas or partition.removing_replicas)
