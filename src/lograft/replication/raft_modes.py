"""A replica of a partition that switches modes: isr, entering, raft, leaving, and isr again.

isr         The rules of ISR replication.
entering    The same, but records count only once they are fsynced. A leader starts with a batch of
            its own epoch (leader change, voters), and requests raft mode when all in-sync replicas
            have fetched past it.
raft        The start of the life is written to the vote journal, then a Raft core takes over.
leaving     Without a leader: the replica votes for the controller, on disk, fsyncs its whole log,
            and then reports its log end. Until a record of a higher epoch arrives, it neither
            appends, votes, acknowledges nor starts elections. With a leader: the rules of ISR
            replication with fsync, and nothing is committed before all replicas are in sync.

Why a switch is safe is explained at the head of `metadata/mode_switch.py`. `ModeReplica` implements
`roles.PartitionReplica`; its other methods are for the shell of raft mode.
"""

from collections.abc import Iterable
from dataclasses import replace
from typing import Final
from uuid import UUID

from lograft.consensus.core import RaftCore
from lograft.consensus.types import (
    CONTROLLER,
    Chance,
    HardState,
    LeaderChange,
    LogEnd,
    RaftSettings,
    ReplicaKey,
    VoterSet,
)
from lograft.model.types import (
    NO_NODE,
    NO_OFFSET,
    ZERO_UUID,
    BrokerEpoch,
    Epoch,
    Offset,
    ReplicationMode,
)
from lograft.replication.raft_port import PartitionLogView, RaftPort, epochs_of_records, log_tail
from lograft.replication.raft_replica import RaftReplica
from lograft.replication.replica import IsrReplica
from lograft.replication.roles import FollowerRole, LeaderRole, RoleChange
from lograft.replication.types import (
    NO_EFFECTS,
    Assignment,
    Brokers,
    Effects,
    ReplicaLog,
    ReplicationSettings,
)

#: Number of epochs in which the log is searched for voter sets: each epoch starts with one.
EPOCHS_WITH_VOTERS: Final = 3
#: More than any number of replicas: nothing is committed before all of them are in sync.
ALL_REPLICAS: Final = 1 << 30


class ModeReplica:
    #: Replaced by the mutants of the model test.
    core_type: type[RaftCore] = RaftCore

    def __init__(
        self,
        me: ReplicaKey,
        isr: IsrReplica,
        *,
        log: ReplicaLog,
        brokers: Brokers,
        settings: ReplicationSettings,
        raft_settings: RaftSettings,
        chance: Chance,
        port: RaftPort,
        journal: HardState,
        past_directories: Iterable[UUID] = (),
    ) -> None:
        """Takes over from `isr`, the replica in isr mode until now. `journal` is the state of this
        partition in the vote journal."""
        self.me = me
        #: Log dirs of this node from which the replica was moved, including its votes.
        self.past_directories = tuple(past_directories)
        self.broker_epoch = isr.broker_epoch
        self.log = log
        self.assignment = isr.assignment
        self.raft: RaftReplica | None = None
        #: State in the vote journal, on disk.
        self.journal = journal
        #: While an assignment is being applied; its caller reads the roles afterwards.
        self.is_applying = False
        self._writing: HardState | None = None
        self._brokers = brokers
        self._settings = settings
        self._raft_settings = raft_settings
        self._chance = chance
        self._port = port
        #: End of the first batch of a leader's entering or leaving epoch.
        self._control_end = NO_OFFSET
        self._isr = isr

    def _build_isr(self, high_watermark: Offset) -> IsrReplica:
        return type(self._isr)(
            self.me.node_id,
            broker_epoch=self.broker_epoch,
            log=self.log,
            high_watermark=high_watermark,
            brokers=self._brokers,
            settings=self._settings_in(self.assignment),
        )

    # ── PartitionReplica ─────────────────────────────────────────────────────────────────────

    @property
    def leader(self) -> LeaderRole | None:
        return self._isr.leader if self.raft is None else self.raft.leader

    @property
    def follower(self) -> FollowerRole | None:
        return self._isr.follower if self.raft is None else self.raft.follower

    @property
    def high_watermark(self) -> Offset:
        return self._isr.high_watermark if self.raft is None else self.raft.high_watermark

    def on_registered(self, broker_epoch: BrokerEpoch) -> None:
        self.broker_epoch = broker_epoch
        self._isr.on_registered(broker_epoch)
        if self.raft is not None:
            self.raft.broker_epoch = broker_epoch

    def on_settings(self, settings: ReplicationSettings) -> Effects:
        self._settings = settings
        if self.raft is not None:
            return NO_EFFECTS
        return self._isr.on_settings(self._settings_in(self.assignment))

    def _settings_in(self, assignment: Assignment) -> ReplicationSettings:
        if assignment.mode is ReplicationMode.ISR:
            return self._settings
        settings = self._settings._replace(durable_only=True)
        if assignment.mode is ReplicationMode.LEAVING:
            return settings._replace(min_insync_replicas=ALL_REPLICAS)
        return settings

    def on_assignment(self, assignment: Assignment, *, now_ms: int) -> tuple[RoleChange, Effects]:
        if assignment.partition_epoch <= self.assignment.partition_epoch:
            return RoleChange.STALE, NO_EFFECTS
        self.is_applying = True
        try:
            return self._apply(assignment, now_ms=now_ms)
        finally:
            self.is_applying = False

    def _apply(self, assignment: Assignment, *, now_ms: int) -> tuple[RoleChange, Effects]:
        if assignment.mode is ReplicationMode.RAFT:
            return self._on_raft(assignment)
        if assignment.mode is ReplicationMode.LEAVING and assignment.leader == NO_NODE:
            return self._on_leaving(assignment)
        return self._on_isr(assignment, now_ms=now_ms)

    # ── rules of isr mode: isr, entering, leaving with a leader ──────────────────────────────

    def _on_isr(self, assignment: Assignment, *, now_ms: int) -> tuple[RoleChange, Effects]:
        if self._is_superseded_by_vote(assignment):
            return RoleChange.STALE, NO_EFFECTS
        before, self.assignment = self.assignment, assignment
        # The same leader in the next epoch: its log cannot have been truncated in between.
        continues_role = (
            self.raft is None
            and self._isr.leader is not None
            and assignment.mode is ReplicationMode.ENTERING
            and assignment.leader == before.leader
            and assignment.leader_epoch == before.leader_epoch + 1
        )
        released: Offset | None = None
        if self.raft is not None:
            raft, self.raft = self.raft, None
            raft.leader = raft.follower = None
            self._isr = self._build_isr(raft.high_watermark)
        elif before.mode is not assignment.mode:
            # The rules of isr are less strict than those of leaving, and may commit more records.
            released = self._isr.on_settings(self._settings_in(assignment)).high_watermark
        change, effects = self._isr.on_assignment(assignment, now_ms=now_ms)
        if released is not None and effects.high_watermark is None:
            effects = replace(effects, high_watermark=released)
        if change is RoleChange.LEADER and assignment.mode is not ReplicationMode.ISR:
            self._append_first_batch(assignment)
        if assignment.mode is not ReplicationMode.ISR:
            self._port.request_flush()
        return RoleChange.CONTINUES if continues_role else change, effects

    def _is_superseded_by_vote(self, assignment: Assignment) -> bool:
        """Whether the assignment is older than the epoch in which the replica voted for the
        controller: that vote applies until a record of a higher epoch arrives."""
        journal = self.journal
        return (
            journal.voted_for == CONTROLLER
            and assignment.life == journal.life
            and assignment.leader_epoch <= journal.epoch
        )

    def _append_first_batch(self, assignment: Assignment) -> None:
        """Appends the first batch of an entering or leaving epoch. Raft elects and commits by
        records of the leader's own epoch (figure 8 of its paper), so every such leader first writes
        one. It also contains the voter set."""
        leader = self._isr.leader
        assert leader is not None
        voters = voters_of(assignment)
        change = LeaderChange(assignment.leader_epoch, self.me.node_id, voters.node_ids, ())
        end = self._port.append_control(change, voters)
        self._control_end = NO_OFFSET if end is None else end
        if end is None:
            return
        leader.on_appended(end)
        # A follower needs that batch to join the ISR.
        leader.epoch_start = self._control_end

    @property
    def can_enter_raft(self) -> bool:
        """Whether this leader can request raft mode: its log and those of all in-sync replicas are
        on disk beyond the first batch of its epoch."""
        leader = self._isr.leader
        if (
            self.raft is not None
            or leader is None
            or self.assignment.mode is not ReplicationMode.ENTERING
            or self._control_end == NO_OFFSET
            or leader.isr.pending is not None
            or leader.isr.partition_epoch != self.assignment.partition_epoch
            or self.log.durable_offset < self._control_end
        ):
            return False
        in_sync = leader.isr.committed
        if len(in_sync) < len(self.assignment.replicas) // 2 + 1:
            return False
        return all(
            status.end_offset >= self._control_end
            for status in leader.statuses(self.log.log_start_offset)
            if status.node_id in in_sync
        )

    # ── raft ─────────────────────────────────────────────────────────────────────────────────

    def _on_raft(self, assignment: Assignment) -> tuple[RoleChange, Effects]:
        raft = self.raft
        if raft is not None and raft.core.life == assignment.life:
            self.assignment = assignment
            raft.replicas = assignment.replicas
            roles = raft.leader, raft.follower
            raft.on_leader_known(assignment.leader_epoch, assignment.leader)
            same = roles == (raft.leader, raft.follower)
            return RoleChange.UPDATED if same else RoleChange.FOLLOWER, NO_EFFECTS
        initial = HardState(assignment.leader_epoch, assignment.leader, None, assignment.life)
        if self.journal.life != assignment.life:
            # Applied once that is on disk; until then, as if the metadata record were not there.
            self._write(initial)
            return RoleChange.STALE, NO_EFFECTS
        # From here on the core writes the journal. Its state may supersede an initial state that
        # a newer record requested, which is then never reported as written.
        self._writing = None
        before, self.assignment = self.assignment, assignment
        # The roles continue if this leader has led this same epoch until now.
        continues_role = (
            raft is None
            and before.mode is ReplicationMode.ENTERING
            and before.leader_epoch == assignment.leader_epoch == assignment.life
            and before.leader == assignment.leader
            and self.journal == initial
            and (self._isr.leader is not None or self._isr.follower is not None)
        )
        high_watermark = self.high_watermark
        if continues_role:
            self.raft = self._build_raft(assignment, HardState(), high_watermark)
            self.raft.begin_life(assignment.life, assignment.leader)
            return RoleChange.CONTINUES, NO_EFFECTS
        self.raft = self._build_raft(assignment, self.journal, high_watermark)
        self.raft.start()
        self.raft.on_leader_known(assignment.leader_epoch, assignment.leader)
        return RoleChange.NONE, NO_EFFECTS

    def _build_raft(
        self, assignment: Assignment, hard_state: HardState, high_watermark: Offset
    ) -> RaftReplica:
        log, port = self.log, self._port
        tail = log_tail(log)
        known = epochs_of_records(port.epochs(), start=log.log_start_offset, end=log.end_offset)
        recent = known[-EPOCHS_WITH_VOTERS:]
        since = recent[0][1] if recent else log.log_start_offset
        core = self.core_type(
            self.me,
            voters_of(assignment),
            hard_state=hard_state,
            log_end=tail,
            high_watermark=high_watermark,
            settings=self._raft_settings,
            chance=self._chance,
            epochs=known,
            voter_history=port.voters_since(since),
            view=PartitionLogView,
            past_directories=self.past_directories,
        )
        if tail.offset > 0 and not known:
            core.log.start = core.log.end = LogEnd(tail.epoch, tail.offset)
        return RaftReplica(
            core,
            log=log,
            port=port,
            broker_epoch=self.broker_epoch,
            replicas=assignment.replicas,
        )

    # ── leaving ──────────────────────────────────────────────────────────────────────────────

    def _on_leaving(self, assignment: Assignment) -> tuple[RoleChange, Effects]:
        if self._writing is not None and self.raft is None:
            # The start of the life is still being written; its end is applied after that.
            return RoleChange.STALE, NO_EFFECTS
        self.assignment = assignment
        if self.raft is None or self.raft.core.life != assignment.life:
            journal = self.journal
            if journal.life != assignment.life:
                journal = HardState(life=assignment.life)
            high_watermark = self.high_watermark
            self.raft = self._build_raft(assignment, journal, high_watermark)
            self.raft.on_durable(self.log.durable_offset)
        self.raft.leave(assignment.leader_epoch)
        return RoleChange.NONE, NO_EFFECTS

    def find_tail(self, epoch: Epoch) -> LogEnd | Epoch | None:
        """Returns the response to the controller that ends a life in `epoch`: the log end; or an
        epoch, if the controller needs a higher one than that; or None if the replica is not
        ready."""
        raft = self.raft
        if raft is None or self.assignment.mode is not ReplicationMode.LEAVING:
            return None
        core = raft.core
        if self.assignment.leader != NO_NODE or self.assignment.leader_epoch != epoch:
            return None
        if core.epoch > epoch or (core.epoch == epoch and not core.is_barred):
            return core.epoch
        is_bound = core.is_barred and core.is_settled and core.epoch == epoch
        if not is_bound or self.log.durable_offset < self.log.end_offset or raft.is_truncating:
            return None
        return log_tail(self.log)

    # ── another log dir ──────────────────────────────────────────────────────────────────────

    def on_moved(self, key: ReplicaKey, past_directories: Iterable[UUID]) -> None:
        """The log and its state in the vote journal were moved to another log dir."""
        self.me, self.past_directories = key, tuple(past_directories)
        if self.raft is not None:
            self.raft.core.on_moved(key, self.past_directories)

    # ── the journal ──────────────────────────────────────────────────────────────────────────

    def _write(self, state: HardState) -> None:
        if self._writing != state:
            self._writing = state
            self._port.persist(state)

    def on_persisted(self, state: HardState) -> bool:
        """The state is on disk. Returns whether the assignment must be applied again."""
        self.journal = state
        if self._writing is not None:
            if self._writing == state:
                self._writing = None
            return True
        raft = self.raft
        if raft is not None and raft.core.unpersisted_state == state:
            raft.on_persisted()
        return False


def voters_of(assignment: Assignment) -> VoterSet:
    """Returns the initial voters, for a log without a voter set: all replicas except those that are
    being added."""
    directories = assignment.directories or (ZERO_UUID,) * len(assignment.replicas)
    return VoterSet.of(
        ReplicaKey(node, directory)
        for node, directory in zip(assignment.replicas, directories, strict=True)
        if node not in assignment.adding
    )
