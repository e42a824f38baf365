"""The replicas of a partition in all modes, the controller's decisions, and the messages between
them.

Every possible event is a method that a schedule may call; `check` must hold after each of them.
Messages are delivered in any order, late or never; each broker receives metadata after its own
delay; an fsync, of the log or of the journal, takes until a schedule completes it. Invariants: no
acknowledged record is missing in a later leader's log, an epoch has one leader, and below the high
watermark all replicas are equal.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

from lograft.consensus.messages import Message as RaftMessage
from lograft.consensus.types import (
    HardState,
    LeaderChange,
    LogEnd,
    RaftSettings,
    ReplicaKey,
    VoterSet,
)
from lograft.metadata.mode_switch import LogEndPosition
from lograft.model.errors import ErrorCode, Rejected
from lograft.model.types import BrokerEpoch, Epoch, NodeId, Offset, ReplicationMode
from lograft.replication.raft_modes import ModeReplica, voters_of
from lograft.replication.replica import IsrReplica
from lograft.replication.roles import FollowerRole, RoleChange
from lograft.replication.types import (
    AcceptedIsr,
    Effects,
    EpochEnd,
    FollowerEffects,
    FollowerFetch,
    IsrProposal,
    LeaderResponse,
    ReplicationSettings,
)
from lograft.wire.messages.alter_partition import BrokerState
from tests.unit.replication.list_log import Entry, ListLog
from tests.unit.replication.mode_controller import ModeController, Written, disk_of

RECORDS_PER_FETCH_MAX = 2
RAFT_SETTINGS = RaftSettings(
    election_timeout_ms=100,
    election_backoff_max_ms=100,
    fetch_timeout_ms=200,
    request_timeout_ms=300,
    retry_backoff_ms=5,
)
ISR, ENTERING = ReplicationMode.ISR, ReplicationMode.ENTERING
RAFT, LEAVING = ReplicationMode.RAFT, ReplicationMode.LEAVING


class Violation(AssertionError):
    """An invariant does not hold."""


class Wait(NamedTuple):
    end: Offset
    entry: Entry


@dataclass(slots=True)
class Message:
    name: str
    deliver: Callable[[], None]
    lost: Callable[[], None]


@dataclass
class Node:
    """A broker with one replica."""

    node_id: NodeId
    broker_epoch: BrokerEpoch
    cluster: "ModeCluster"
    log: ListLog = field(default_factory=ListLog)
    #: The journal on disk, and the states that are being written to it.
    journal: HardState = field(default_factory=HardState)
    persists: list[HardState] = field(default_factory=list)
    #: The number of them that cannot be replaced by a later one any more.
    being_written: int = 1
    up: bool = True
    process: int = 0
    seen: int = -1
    checkpoint: int = 0
    high_watermark_seen: int = 0
    replica: ModeReplica | None = None
    waits: list[Wait] = field(default_factory=list)

    # The port of its replica.

    def now_ms(self) -> int:
        return self.cluster.now_ms

    def persist(self, state: HardState) -> None:
        """Of the waiting states only the newest is written."""
        self.persists[self.being_written :] = [state]

    def send(self, to: NodeId, message: RaftMessage) -> None:
        self.cluster.send_raft(self, to, message)

    def append_control(self, change: LeaderChange, voters: VoterSet) -> Offset:
        self.cluster.controls += 1
        self.log.append(self.log.end_offset, [Entry(change.epoch, -self.cluster.controls)])
        return self.log.end_offset

    def append_voters(self, epoch: Epoch, voters: VoterSet) -> Offset:
        raise NotImplementedError

    def request_flush(self) -> None:
        pass

    def voters_since(self, offset: Offset) -> Iterable[tuple[Offset, VoterSet]]:
        voters = voters_of(self.cluster.controller.history[-1].assignment)
        for number, entry in enumerate(self.log.read(offset, self.log.end_offset)):
            if entry.uid < 0:
                yield Offset(offset + number), voters

    def epochs(self) -> Iterable[tuple[Epoch, Offset]]:
        return [(Epoch(e.epoch), Offset(e.start_offset)) for e in self.log.epochs.entries]

    def role_changed(self) -> None:
        if self.replica is not None and self.replica.raft is not None:
            self.waits.clear()

    def fetch_ready(self) -> None:
        pass

    def on_committed(self) -> None:
        self.cluster.release(self)

    def last_contact_ms(self, node_id: NodeId) -> int:
        return -1

    def deadline_changed(self) -> None:
        pass


class ImageBrokers:
    def __init__(self, node: Node, history: list[Written]) -> None:
        self._node = node
        self._history = history

    def registered_epoch(self, node_id: NodeId) -> BrokerEpoch | None:
        return self._history[self._node.seen].brokers[node_id][0]

    def can_join_isr(self, node_id: NodeId) -> bool:
        return not self._history[self._node.seen].brokers[node_id][1]


class ModeCluster:
    #: Mutants override these.
    journal_is_fsynced = True
    acts_before_catch_up = False
    checks_life = True

    def __init__(
        self,
        *,
        nodes: int = 3,
        min_isr: int = 2,
        replica_type: type[ModeReplica] = ModeReplica,
        isr_type: type[IsrReplica] = IsrReplica,
        chance: Callable[[int], int] = lambda bound: bound // 2,
    ) -> None:
        ids = tuple(NodeId(number) for number in range(1, nodes + 1))
        self.controller = ModeController(ids, min_isr=min_isr)
        self.settings = ReplicationSettings(
            min_insync_replicas=min_isr, replica_lag_time_max_ms=100, replica_fetch_backoff_ms=20
        )
        self.replica_type = replica_type
        self.isr_type = isr_type
        self.chance = chance
        self.now_ms = 0
        self.controls = 0
        self.records = 0
        self.messages: list[Message] = []
        self.acked: dict[int, tuple[Entry, int]] = {}
        self.committed: list[Entry] = []
        self.leaders: dict[int, NodeId] = {}
        #: Replicas that lost records in ISR mode and have not been in sync since.
        self.lost: set[NodeId] = set()
        self.nodes = {node: Node(node, BrokerEpoch(node), self) for node in ids}
        for node in self.nodes.values():
            self._open(node)
            self.learn(node)

    # Events.

    def produce(self, node: Node) -> None:
        leader = node.replica.leader if node.replica is not None else None
        if leader is None or leader.check_append(acks_all=True) is not ErrorCode.NONE:
            return
        self.records += 1
        entry = Entry(leader.leader_epoch, self.records)
        node.log.append(node.log.end_offset, [entry])
        node.waits.append(Wait(node.log.end_offset, entry))
        leader.on_appended(node.log.end_offset)
        self.release(node)

    def fetch(self, node: Node) -> None:
        follower = node.replica.follower if node.replica is not None else None
        if follower is None:
            return
        fetch = follower.next_fetch(self.now_ms)
        if fetch is None:
            return
        leader = self.nodes[follower.leader]

        def arrive() -> None:
            answer, entries = self._answer(leader, fetch)
            self._send(
                f"answer {leader.node_id}>{node.node_id}",
                node,
                lambda: self._on_answer(node, follower, fetch, answer, entries),
                lambda: follower.on_request_failed(fetch, now_ms=self.now_ms),
            )

        self._send(
            f"fetch {node.node_id}>{leader.node_id}",
            node,
            arrive,
            lambda: follower.on_request_failed(fetch, now_ms=self.now_ms),
            reaches=leader,
        )

    def flush(self, node: Node) -> None:
        """The current contents of the log are on disk."""
        if not node.up:
            return
        node.log.flush()
        assert node.replica is not None
        leader = node.replica.leader
        if leader is not None:
            leader.on_durable(node.log.durable_offset)
            self.release(node)
        elif node.replica.raft is not None:
            node.replica.raft.on_durable(node.log.durable_offset)

    def persist(self, node: Node) -> None:
        """One entry of the journal is on disk."""
        if not node.persists or node.replica is None:
            return
        state = node.persists.pop(0)
        if self.journal_is_fsynced:
            node.journal = state
        node.being_written = 0
        if node.replica.on_persisted(state):
            self._apply(node)
        node.being_written = 1
        self.release(node)

    def tick(self, node: Node, passed_ms: int = 0) -> None:
        self.now_ms += passed_ms
        replica = node.replica
        if replica is None:
            return
        raft = replica.raft
        if raft is not None:
            if raft.deadline_ms is not None and self.now_ms >= raft.deadline_ms:
                raft.tick()
        elif replica.leader is not None:
            self._do(node, replica.leader.tick(self.now_ms))

    def stand(self, node: Node) -> None:
        """Its timeout for the leader has expired."""
        raft = node.replica.raft if node.replica is not None else None
        if raft is None or raft.core.leadership is not None or raft.is_truncating:
            return
        if raft.core.fetcher is not None:
            raft.core.fetcher.has_contact = False
            raft.core.fetcher.contact_deadline_ms = self.now_ms
        if raft.core.deadline_ms is not None:
            raft.core.deadline_ms = self.now_ms
            raft.tick()

    def learn(self, node: Node, count: int = 1) -> None:
        """The node reads this much more of the metadata log."""
        for _ in range(count):
            if node.replica is None or node.seen + 1 >= len(self.controller.history):
                return
            node.seen += 1
            self._apply(node)

    def ask_raft(self, node: Node) -> None:
        """A leader with the evidence requests the next mode."""
        replica = node.replica
        if replica is None or not replica.can_enter_raft:
            return
        assignment = replica.assignment
        isr = [BrokerState(broker_id=member, broker_epoch=-1) for member in assignment.isr]

        def arrive() -> None:
            self._alter(
                node,
                leader_epoch=assignment.leader_epoch,
                partition_epoch=assignment.partition_epoch,
                isr=isr,
                mode=RAFT,
            )

        self._send(f"ask {node.node_id}", node, arrive, lambda: None)

    def report(self, node: Node) -> None:
        """A leader that was elected by the voters reports to the controller."""
        raft = node.replica.raft if node.replica is not None else None
        if raft is None or raft.leader is None or not raft.leader.is_serving:
            return
        core = raft.core
        epoch, life, voters = core.epoch, core.life, core.voters.node_ids
        isr = [BrokerState(broker_id=member, broker_epoch=-1) for member in voters]

        def arrive() -> None:
            self._alter(
                node,
                leader_epoch=epoch,
                partition_epoch=0,
                isr=isr,
                mode=RAFT,
                life=life,
                voters=voters,
            )

        self._send(f"report {node.node_id}", node, arrive, lambda: None)

    def ask_tail(self, node: Node) -> None:
        """The controller requests a replica's log end offset."""
        if not self.controller.is_collecting:
            return
        epoch = self.controller.state.leader_epoch

        def arrive() -> None:
            if node.replica is None:
                return
            tail = node.replica.find_tail(Epoch(epoch))
            if tail is None:
                return
            answer = LogEndPosition(*tail) if isinstance(tail, LogEnd) else int(tail)
            self._send(
                f"tail {node.node_id}",
                node,
                lambda: self.controller.on_response(node.node_id, epoch, answer),
                lambda: None,
                from_controller=True,
            )

        self._send(
            f"ask tail {node.node_id}",
            node,
            arrive,
            lambda: None,
            reaches=node,
            from_controller=True,
        )

    def kill(self, node: Node, *, keep: int | None = None) -> None:
        """The process ends. `keep` is the number of records not on disk that survive a power
        loss."""
        if not node.up:
            return
        node.up = False
        node.process += 1
        node.replica = None
        node.waits.clear()
        node.persists.clear()
        if keep is not None:
            node.log.truncate(min(node.log.end_offset, node.log.durable_offset + keep))
        if self.controller.state.mode in (ISR, ENTERING):
            self.lost.add(node.node_id)
        node.log.reopen()
        node.checkpoint = min(node.checkpoint, node.log.end_offset)

    def may_stop(self, node: Node) -> bool:
        """In raft mode any node at any time; ISR mode tolerates MinISR-1 unclean stops."""
        if self.controller.state.mode in (RAFT, LEAVING):
            return True
        return len(self.lost | {node.node_id}) <= self.settings.min_insync_replicas - 1

    def start(self, node: Node) -> None:
        if node.up:
            return
        node.broker_epoch = self.controller.register(node.node_id)
        node.up = True
        # Recovery fsyncs the existing records.
        node.log.flush()
        registered_at = len(self.controller.history) - 1
        self._open(node)
        node.seen = max(0, registered_at - 3) if self.acts_before_catch_up else registered_at
        self._apply(node)

    @property
    def has_given_up(self) -> bool:
        """All replicas in sync stopped uncleanly, some of them before ISR mode began, and the
        controller elected the last leader: a loss that it reports."""
        return any(written.state.leader_recovery for written in self.controller.history)

    def unfence(self, node: Node) -> None:
        if node.up:
            self.controller.unfence(node.node_id)

    def fence(self, node: Node) -> None:
        self.controller.fence(node.node_id)

    def deliver(self, number: int = 0) -> None:
        self.messages.pop(number).deliver()

    def lose(self, number: int) -> None:
        self.messages.pop(number).lost()

    # Messages.

    def _send(
        self,
        name: str,
        sender: Node,
        deliver: Callable[[], None],
        lost: Callable[[], None],
        *,
        reaches: Node | None = None,
        from_controller: bool = False,
    ) -> None:
        process = sender.process

        def arrive() -> None:
            if reaches is not None and not reaches.up:
                gone()
            elif from_controller or sender.process == process:
                deliver()

        def gone() -> None:
            if sender.process == process:
                lost()

        self.messages.append(Message(name, arrive, gone))

    def send_raft(self, sender: Node, to: NodeId, message: RaftMessage) -> None:
        target = self.nodes[to]

        def arrive() -> None:
            raft = target.replica.raft if target.replica is not None else None
            if raft is not None:
                raft.step(message)
                self.release(target)

        name = f"{type(message).__name__} {sender.node_id}>{to}"
        self.messages.append(Message(name, arrive, lambda: None))

    def _alter(
        self,
        node: Node,
        *,
        leader_epoch: int,
        partition_epoch: int,
        isr: list[BrokerState],
        recovering: bool = False,
        mode: int = -1,
        life: int = -1,
        voters: tuple[NodeId, ...] = (),
    ) -> AcceptedIsr | ErrorCode:
        try:
            reply = self.controller.alter(
                node.node_id,
                node.broker_epoch,
                leader_epoch=leader_epoch,
                partition_epoch=partition_epoch,
                isr=isr,
                recovering=recovering,
                mode=mode,
                life=life,
                voters=voters,
            )
        except Rejected as refusal:
            return refusal.code
        if reply.error_code:
            return ErrorCode(reply.error_code)
        return AcceptedIsr(
            Epoch(reply.leader_epoch),
            reply.partition_epoch,
            tuple(NodeId(member) for member in reply.isr),
            recovering=bool(reply.leader_recovery_state),
        )

    def _answer(self, at: Node, fetch: FollowerFetch) -> tuple[LeaderResponse, list[Entry]]:
        leader = at.replica.leader if at.replica is not None else None
        if leader is None:
            return LeaderResponse(ErrorCode.NOT_LEADER_OR_FOLLOWER), []
        raft = at.replica.raft if at.replica is not None else None
        if not self.checks_life and raft is not None:
            fetch = fetch._replace(life=raft.core.life)
        verdict = leader.on_follower_fetch(
            fetch,
            log_start=at.log.log_start_offset,
            epoch_end=EpochEnd(*at.log.epoch_end(fetch.last_fetched_epoch)),
            now_ms=self.now_ms,
        )
        self._do(at, verdict.effects)
        if verdict.error is not ErrorCode.NONE:
            return LeaderResponse(verdict.error), []
        entries = (
            at.log.read(fetch.offset, fetch.offset + RECORDS_PER_FETCH_MAX)
            if verdict.diverging is None
            else []
        )
        high_watermark = leader.high_watermark
        answer = LeaderResponse(
            ErrorCode.NONE,
            high_watermark,
            at.log.log_start_offset,
            verdict.diverging,
            bool(entries),
        )
        return answer, entries

    def _on_answer(
        self,
        node: Node,
        follower: FollowerRole,
        fetch: FollowerFetch,
        answer: LeaderResponse,
        entries: list[Entry],
    ) -> None:
        if node.replica is None or node.replica.follower is not follower:
            return
        effects = follower.on_response(fetch, answer, now_ms=self.now_ms)
        if effects.append:
            node.log.append(fetch.offset, entries)
            effects = follower.on_appended()
        self._do_follower(node, follower, effects)

    def _do_follower(self, node: Node, follower: FollowerRole, effects: FollowerEffects) -> None:
        if effects.truncate_to is not None:
            node.log.truncate(effects.truncate_to)
            self._do_follower(node, follower, follower.on_log_truncated())
        elif effects.fetch_bounds:
            leader = self.nodes[follower.leader]
            bounds = follower.on_leader_bounds(
                ErrorCode.NONE,
                log_start=leader.log.log_start_offset,
                end=leader.log.end_offset,
                now_ms=self.now_ms,
            )
            self._do_follower(node, follower, bounds)
        elif effects.restart_at is not None:
            raise NotImplementedError(effects)

    def _do(self, node: Node, effects: Effects) -> None:
        if effects.high_watermark is not None:
            self.release(node)
        if effects.propose is not None:
            self._propose(node, effects.propose)

    def _propose(self, node: Node, proposal: IsrProposal) -> None:
        def tell(reply: AcceptedIsr | ErrorCode) -> None:
            leader = node.replica.leader if node.replica is not None else None
            if leader is None:
                return
            if isinstance(reply, ErrorCode):
                self._do(node, leader.on_rejected(proposal, reply))
            else:
                self._do(node, leader.on_accepted(proposal, reply, now_ms=self.now_ms))

        def arrive() -> None:
            isr = [
                BrokerState(broker_id=member.node_id, broker_epoch=member.broker_epoch)
                for member in proposal.isr
            ]
            reply = self._alter(
                node,
                leader_epoch=proposal.leader_epoch,
                partition_epoch=proposal.partition_epoch,
                isr=isr,
                recovering=proposal.recovering,
            )
            self._send(
                f"granted {node.node_id}",
                node,
                lambda: tell(reply),
                lambda: tell(ErrorCode.NETWORK_EXCEPTION),
            )

        self._send(f"alter {node.node_id}", node, arrive, lambda: tell(ErrorCode.NETWORK_EXCEPTION))

    # Events inside a node.

    def _open(self, node: Node) -> None:
        node.high_watermark_seen = 0
        isr = self.isr_type(
            node.node_id,
            broker_epoch=node.broker_epoch,
            log=node.log,
            high_watermark=Offset(node.checkpoint),
            brokers=ImageBrokers(node, self.controller.history),
            settings=self.settings,
        )
        node.replica = self.replica_type(
            ReplicaKey(node.node_id, disk_of(node.node_id)),
            isr,
            log=node.log,
            brokers=ImageBrokers(node, self.controller.history),
            settings=self.settings,
            raft_settings=RAFT_SETTINGS,
            chance=self.chance,
            port=node,
            journal=node.journal,
        )

    def _apply(self, node: Node) -> None:
        assert node.replica is not None
        assignment = self.controller.history[node.seen].assignment
        change, effects = node.replica.on_assignment(assignment, now_ms=self.now_ms)
        if change in (RoleChange.LEADER, RoleChange.FOLLOWER, RoleChange.NONE):
            node.waits.clear()
        if change is RoleChange.LEADER:
            node.log.assign_epoch(assignment.leader_epoch)
        self._do(node, effects)

    def release(self, node: Node) -> None:
        leader = node.replica.leader if node.replica is not None else None
        if leader is None:
            return
        waiting = []
        for wait in node.waits:
            code = leader.ack_of(wait.end)
            if code is None:
                waiting.append(wait)
            elif code is ErrorCode.NONE:
                at = wait.end - 1
                if at in self.acked:
                    raise Violation(f"two records acknowledged at {at}")
                self.acked[at] = (wait.entry, leader.leader_epoch)
        node.waits = waiting

    # Invariants.

    def check(self) -> None:
        for node in self.nodes.values():
            if node.replica is not None:
                self._check_watermark(node, node.replica)
                if node.replica.leader is not None:
                    self._check_leader(node, node.replica.leader.leader_epoch)
        isr = self.controller.state.isr
        self.lost -= {node for node in self.lost if node in isr and self.nodes[node].up}

    def _check_leader(self, node: Node, epoch: Epoch) -> None:
        if self.leaders.setdefault(epoch, node.node_id) != node.node_id:
            raise Violation(f"{node.node_id} and {self.leaders[epoch]} lead epoch {epoch}")
        for offset, (entry, acked_in) in self.acked.items():
            if acked_in < epoch and node.log.read(offset, offset + 1) != [entry]:
                raise Violation(
                    f"{entry} at {offset}, acknowledged in epoch {acked_in}, is not in the log of"
                    f" {node.node_id}, which leads epoch {epoch}"
                )

    def _check_watermark(self, node: Node, replica: ModeReplica) -> None:
        log, high_watermark = node.log, replica.high_watermark
        if not 0 <= high_watermark <= log.end_offset:
            raise Violation(f"{node.node_id} has watermark {high_watermark} in {log}")
        if high_watermark < node.high_watermark_seen:
            raise Violation(f"the watermark of {node.node_id} fell to {high_watermark}")
        node.high_watermark_seen = high_watermark
        if high_watermark > len(self.committed):
            self.committed += log.read(len(self.committed), high_watermark)
        if log.read(0, high_watermark) != self.committed[:high_watermark]:
            raise Violation(f"{node.node_id} disagrees below {high_watermark}")

    # The end of a run.

    def settle(self, rounds: int = 60) -> None:
        """No more faults: all nodes run and make progress."""
        for node in self.nodes.values():
            self.start(node)
        for _ in range(rounds):
            self.now_ms += 20
            self.controller.step()
            for node in self.nodes.values():
                self.learn(node, len(self.controller.history))
                self.unfence(node)
                self.tick(node)
                self.flush(node)
                self.persist(node)
                self.fetch(node)
                self.ask_raft(node)
                self.report(node)
                self.ask_tail(node)
            for _ in range(len(self.messages) * 3):
                if self.messages:
                    self.deliver()
            self.check()

    def check_settled(self, desired: ReplicationMode) -> None:
        state = self.controller.state
        if state.mode is not desired:
            raise Violation(f"{desired.text} was requested, but the mode is {state}")
        leaders = [
            node
            for node in self.nodes.values()
            if node.replica is not None and node.replica.leader is not None
        ]
        newest = max(leaders, key=lambda node: node.replica.leader.leader_epoch, default=None)  # type: ignore[union-attr]
        if newest is None:
            raise Violation("nobody leads")
        before = len(self.acked)
        self.produce(newest)
        self.settle(20)
        if len(self.acked) != before + 1:
            raise Violation("nothing is acknowledged")
        for node in self.nodes.values():
            if node.log.entries != newest.log.entries:
                raise Violation(f"{node.node_id} and its leader differ")
