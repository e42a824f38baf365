"""The replicas of a partition, a controller and the messages between them, one step at a time.

Every possible event is a method that a schedule may call; `check` must hold after each of them.
Messages are delivered in any order, late or never; each broker receives metadata after its own
delay. The invariants are those of docs/reliability.md: D1 (no acknowledged record is lost), D2 and
D7 (committed prefixes are equal), D6 (high watermarks), D8 (evidence for an acknowledgement), M6
and M7 (ISR and ELR have the committed records).
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple

from lograft.model.errors import ErrorCode
from lograft.model.types import BrokerEpoch, Epoch, NodeId, Offset
from lograft.replication.replica import IsrReplica
from lograft.replication.roles import RoleChange
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
from tests.unit.replication.controller_stub import ControllerStub, Image
from tests.unit.replication.list_log import Entry, ListLog

RECORDS_PER_FETCH_MAX = 3


class Violation(AssertionError):
    """An invariant does not hold."""


class Wait(NamedTuple):
    end: Offset
    epoch: Epoch
    entry: Entry


@dataclass(slots=True)
class Message:
    """A message in flight; `lost` is what its sender notices if it never arrives."""

    name: str
    deliver: Callable[[], None]
    lost: Callable[[], None]


@dataclass(slots=True)
class Node:
    """A broker with one replica."""

    node_id: NodeId
    broker_epoch: BrokerEpoch
    log: ListLog = field(default_factory=ListLog)
    up: bool = True
    #: Counts its processes: messages of an earlier one are dropped.
    life: int = 0
    #: How much of the controller's history it has read, and where its registration is in it.
    seen: int = -1
    registered_at: int = 0
    high_watermark_checkpoint: int = 0
    high_watermark_seen: int = 0
    #: It lost records that were not on disk, and the controller does not know yet.
    lossy: bool = False
    replica: IsrReplica | None = None
    waits: list[Wait] = field(default_factory=list)


class ImageBrokers:
    """The brokers as in a node's metadata image."""

    def __init__(self, node: Node, history: list[Image]) -> None:
        self._node = node
        self._history = history

    def registered_epoch(self, node_id: NodeId) -> BrokerEpoch | None:
        return self._history[self._node.seen].brokers[node_id].epoch

    def can_join_isr(self, node_id: NodeId) -> bool:
        return not self._history[self._node.seen].brokers[node_id].fenced


class IsrCluster:
    def __init__(
        self,
        *,
        nodes: int = 3,
        replicas: int = 3,
        min_isr: int = 2,
        durable_only: bool = False,
        unclean_elections: bool = False,
        replica_type: type[IsrReplica] = IsrReplica,
    ) -> None:
        ids = tuple(NodeId(number) for number in range(1, nodes + 1))
        self.controller = ControllerStub(
            ids, replicas=replicas, min_isr=min_isr, unclean_elections=unclean_elections
        )
        self.settings = ReplicationSettings(
            min_insync_replicas=min_isr,
            replica_lag_time_max_ms=100,
            replica_fetch_backoff_ms=20,
            durable_only=durable_only,
            unclean_elections=unclean_elections,
        )
        self.replica_type = replica_type
        self.now_ms = 0
        self.messages: list[Message] = []
        self.acked: dict[int, Entry] = {}
        self.acks_given = 0
        self.committed: list[Entry] = []
        #: Replicas that lost records and have not been in sync since: at most MinISR-1.
        self.lost: set[NodeId] = set()
        self.latest_returned = 0
        self.latest_epoch_told = -1
        self.records = 0
        self.acts_before_catch_up = False
        self.nodes = {node_id: Node(node_id, BrokerEpoch(node_id)) for node_id in ids}
        for node in self.nodes.values():
            self._open(node)
            self.learn(node, 1)

    # Events.

    def produce(self, node: Node) -> None:
        """One record with acks=all to a node that considers itself leader."""
        leader = node.replica.leader if node.replica is not None else None
        if leader is None or leader.check_append(acks_all=True) is not ErrorCode.NONE:
            return
        self.records += 1
        entry = Entry(leader.leader_epoch, self.records)
        node.log.append(node.log.end_offset, [entry])
        node.waits.append(Wait(node.log.end_offset, leader.leader_epoch, entry))
        leader.on_appended(node.log.end_offset)
        self._release(node)

    def fetch(self, node: Node) -> None:
        follower = node.replica.follower if node.replica is not None else None
        if follower is None:
            return
        fetch = follower.next_fetch(self.now_ms)
        if fetch is None:
            return
        leader = self.nodes[follower.leader]
        life = node.life
        self._send(
            f"fetch {node.node_id}>{leader.node_id}",
            node,
            lambda: self._on_fetch(leader, node, fetch, life),
            lambda: follower.on_request_failed(fetch, now_ms=self.now_ms),
        )

    def deliver(self, number: int) -> None:
        self.messages.pop(number).deliver()

    def lose(self, number: int) -> None:
        self.messages.pop(number).lost()

    def learn(self, node: Node, count: int = 1) -> None:
        """The node reads this much more of the metadata log."""
        for _ in range(count):
            if node.replica is None or node.seen + 1 >= len(self.controller.history):
                return
            node.seen += 1
            self._apply(node)

    def tick(self, node: Node, passed_ms: int) -> None:
        self.now_ms += passed_ms
        if node.replica is not None and node.replica.leader is not None:
            self._do(node, node.replica.leader.tick(self.now_ms))

    def flush(self, node: Node) -> None:
        if not node.up:
            return
        node.log.flush()
        assert node.replica is not None
        if node.replica.leader is not None:
            node.replica.leader.on_durable(node.log.durable_offset)
            self._release(node)

    def checkpoint(self, node: Node) -> None:
        if node.replica is not None:
            node.high_watermark_checkpoint = node.replica.high_watermark

    def delete_records(self, node: Node, count: int) -> None:
        replica = node.replica
        if replica is None or replica.leader is None:
            return
        to = min(replica.high_watermark, node.log.log_start_offset + count)
        if to > node.log.log_start_offset:
            node.log.advance_start(to)

    def kill(self, node: Node, *, keep: int | None = None) -> None:
        """The process ends. `keep` is the number of records not on disk that survive a power
        loss."""
        if not node.up:
            return
        node.up = False
        node.life += 1
        node.replica = None
        node.waits.clear()
        if keep is not None:
            node.log.truncate(min(node.log.end_offset, node.log.durable_offset + keep))
            node.lossy = True
            if not self.settings.durable_only:
                self.lost.add(node.node_id)
        node.log.reopen()

    def may_lose_power(self, node: Node) -> bool:
        """Whether the guarantee of ISR mode would still hold if this node lost its tail now."""
        if self.settings.durable_only:
            return True
        return len(self.lost | {node.node_id}) <= self.settings.min_insync_replicas - 1

    def start(self, node: Node) -> None:
        if node.up:
            return
        clean = not node.lossy or self.settings.durable_only
        node.broker_epoch = self.controller.register(node.node_id, clean=clean)
        node.lossy = False
        node.up = True
        node.registered_at = len(self.controller.history) - 1
        self._open(node)
        if self.acts_before_catch_up:
            node.seen = max(0, node.registered_at - 4)
        else:
            node.seen = node.registered_at
        self._apply(node)

    def fence(self, node: Node) -> None:
        """The controller got no heartbeat for too long: the broker is down, paused or isolated."""
        if self.controller.is_active(node.node_id):
            self.controller.fence(node.node_id)

    def unfence(self, node: Node) -> None:
        if node.up and not self.controller.is_active(node.node_id):
            self.controller.unfence(node.node_id)

    # Messages.

    def _send(
        self, name: str, sender: Node, deliver: Callable[[], None], lost: Callable[[], None]
    ) -> None:
        life = sender.life
        self.messages.append(
            Message(name, deliver, lambda: lost() if sender.life == life else None)
        )

    def _on_fetch(self, at: Node, sender: Node, fetch: FollowerFetch, life: int) -> None:
        answer, entries = self._answer(at, fetch)

        def deliver() -> None:
            if sender.life == life:
                self._on_answer(sender, fetch, answer, entries)

        def lost() -> None:
            follower = sender.replica.follower if sender.replica is not None else None
            if follower is not None:
                follower.on_request_failed(fetch, now_ms=self.now_ms)

        self._send(f"answer {at.node_id}>{sender.node_id}", sender, deliver, lost)

    def _answer(self, at: Node, fetch: FollowerFetch) -> tuple[LeaderResponse, list[Entry]]:
        leader = at.replica.leader if at.replica is not None else None
        if leader is None:
            return LeaderResponse(ErrorCode.NOT_LEADER_OR_FOLLOWER), []
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
        answer = LeaderResponse(
            ErrorCode.NONE,
            leader.high_watermark,
            at.log.log_start_offset,
            verdict.diverging,
            bool(entries),
        )
        return answer, entries

    def _on_answer(
        self, node: Node, fetch: FollowerFetch, answer: LeaderResponse, entries: list[Entry]
    ) -> None:
        follower = node.replica.follower if node.replica is not None else None
        if follower is None:
            return
        effects = follower.on_response(fetch, answer, now_ms=self.now_ms)
        if effects.append:
            node.log.append(fetch.offset, entries)
            effects = follower.on_appended()
        self._do_follower(node, effects)

    def _do_follower(self, node: Node, effects: FollowerEffects) -> None:
        assert node.replica is not None
        follower = node.replica.follower
        assert follower is not None
        if effects.advance_log_start is not None:
            node.log.advance_start(effects.advance_log_start)
        if effects.truncate_to is not None:
            if effects.lost_records:
                self._forget_committed(node, effects.truncate_to)
            node.log.truncate(effects.truncate_to)
            self._do_follower(node, follower.on_log_truncated())
        elif effects.restart_at is not None:
            node.log.restart_at(effects.restart_at)
            self._do_follower(node, follower.on_log_truncated())
        elif effects.fetch_bounds:
            leader = self.nodes[follower.leader]
            replica = leader.replica
            error = ErrorCode.NOT_LEADER_OR_FOLLOWER
            if replica is not None and replica.leader is not None:
                same = replica.leader.leader_epoch == follower.leader_epoch
                error = ErrorCode.NONE if same else ErrorCode.UNKNOWN_LEADER_EPOCH
            self._do_follower(
                node,
                follower.on_leader_bounds(
                    error,
                    log_start=leader.log.log_start_offset,
                    end=leader.log.end_offset,
                    now_ms=self.now_ms,
                ),
            )

    def _forget_committed(self, node: Node, to: Offset) -> None:
        """After an unclean election, earlier losses are no violations."""
        assert self.settings.unclean_elections, (node, to)
        node.high_watermark_seen = min(node.high_watermark_seen, to)

    def _do(self, node: Node, effects: Effects) -> None:
        if effects.high_watermark is not None:
            assert effects.acks is ErrorCode.NONE, effects
            self._release(node)
        if effects.propose is not None:
            self._propose(node, effects.propose)

    def _propose(self, node: Node, proposal: IsrProposal) -> None:
        life = node.life
        epoch = node.broker_epoch

        def refused(error: ErrorCode) -> None:
            leader = node.replica.leader if node.replica is not None else None
            if node.life == life and leader is not None:
                self._do(node, leader.on_rejected(proposal, error))

        def granted() -> None:
            reply = self.controller.alter_partition(node.node_id, epoch, proposal)
            self._send(
                f"granted {node.node_id}" if not isinstance(reply, ErrorCode) else "refused",
                node,
                lambda: tell(reply),
                lambda: refused(ErrorCode.NETWORK_EXCEPTION),
            )

        def tell(reply: AcceptedIsr | ErrorCode) -> None:
            leader = node.replica.leader if node.replica is not None else None
            if isinstance(reply, ErrorCode):
                refused(reply)
            elif node.life == life and leader is not None:
                self._do(node, leader.on_accepted(proposal, reply, now_ms=self.now_ms))

        self._send(
            f"alter {node.node_id}",
            node,
            granted,
            lambda: refused(ErrorCode.NETWORK_EXCEPTION),
        )

    # Events inside a node.

    def _open(self, node: Node) -> None:
        node.high_watermark_seen = 0
        node.replica = self.replica_type(
            node.node_id,
            broker_epoch=node.broker_epoch,
            log=node.log,
            high_watermark=Offset(node.high_watermark_checkpoint),
            brokers=ImageBrokers(node, self.controller.history),
            settings=self.settings,
        )

    def _apply(self, node: Node) -> None:
        assert node.replica is not None
        assignment = self.controller.history[node.seen].assignment
        if node.node_id not in assignment.replicas:
            self._delete_log(node)
            return
        change, effects = node.replica.on_assignment(assignment, now_ms=self.now_ms)
        if change in (RoleChange.LEADER, RoleChange.FOLLOWER, RoleChange.NONE):
            node.waits.clear()
        if change is RoleChange.LEADER:
            node.log.assign_epoch(assignment.leader_epoch)
        self._do(node, effects)

    def _delete_log(self, node: Node) -> None:
        """A reassignment removed the replica; if it returns, its log is empty."""
        node.log.restart_at(0)
        node.high_watermark_checkpoint = 0
        node.waits.clear()
        self._open(node)

    def _release(self, node: Node) -> None:
        assert node.replica is not None
        leader = node.replica.leader
        assert leader is not None
        waiting = []
        for wait in node.waits:
            code = leader.ack_of(wait.end)
            if code is None:
                waiting.append(wait)
            elif code is ErrorCode.NONE:
                assert wait.epoch == leader.leader_epoch, (wait, leader.leader_epoch)
                self._check_evidence(wait)
                if wait.end - 1 in self.acked and not self.settings.unclean_elections:
                    raise Violation(f"D4: two records acknowledged at {wait.end - 1}")
                self.acked[wait.end - 1] = wait.entry
                self.acks_given += 1
        node.waits = waiting

    # Invariants.

    def _check_evidence(self, wait: Wait) -> None:
        """D8. Nodes that lost power after they confirmed the record count for it."""
        held = 0
        for node in self.nodes.values():
            log = node.log
            end = log.durable_offset if self.settings.durable_only else log.end_offset
            if log.log_start_offset >= wait.end or (
                end >= wait.end and log.read(wait.end - 1, wait.end) == [wait.entry]
            ):
                held += 1
        if held + len(self.lost) < self.controller.min_isr:
            raise Violation(f"D8: {wait} acknowledged with {held} copies")

    def check(self) -> None:
        for node in self.nodes.values():
            if node.replica is not None:
                self._check_watermark(node, node.replica)
        self._check_membership()
        self._check_latest()

    def _check_watermark(self, node: Node, replica: IsrReplica) -> None:
        log = node.log
        high_watermark = replica.high_watermark
        if not log.log_start_offset <= high_watermark <= log.end_offset:
            raise Violation(f"D6: {node.node_id} has watermark {high_watermark} in {log}")
        if high_watermark < node.high_watermark_seen:
            raise Violation(f"D6: watermark of {node.node_id} fell to {high_watermark}")
        node.high_watermark_seen = high_watermark
        if self.settings.unclean_elections:
            return
        known = len(self.committed)
        start = log.log_start_offset
        if high_watermark > known:
            # The records between were deleted below the log start offset in the response.
            assert start <= known, (node, known)
            self.committed += log.read(known, high_watermark)
        if log.read(start, high_watermark) != self.committed[start:high_watermark]:
            raise Violation(f"D2/D7: {node.node_id} disagrees below {high_watermark}")

    def _check_membership(self) -> None:
        image = self.controller.image
        isr, elr = set(image.assignment.isr), image.elr
        if isr & elr or not (isr | elr) <= set(image.assignment.replicas):
            raise Violation(f"M6: isr {isr}, elr {set(elr)}")
        if len(isr) >= self.controller.min_isr and elr:
            raise Violation(f"M6: isr {isr} suffices, but elr {set(elr)}")
        self.lost -= {node_id for node_id in isr if not self.nodes[node_id].lossy}
        if self.settings.unclean_elections:
            return
        for node_id in isr | elr:
            node = self.nodes[node_id]
            if node.lossy and not self.settings.durable_only:
                continue
            start, end = node.log.log_start_offset, len(self.committed)
            if start < end and node.log.read(start, end) != self.committed[start:end]:
                raise Violation(f"M6: {node_id} is eligible without all of {end} records")

    def _check_latest(self) -> None:
        """The newest leader never returns a latest offset below that of an older one."""
        newest = self.controller.image.assignment.leader_epoch
        for node in self.nodes.values():
            leader = node.replica.leader if node.replica is not None else None
            if leader is None or leader.leader_epoch < self.latest_epoch_told:
                continue
            if leader.leader_epoch == newest and leader.can_report_latest:
                latest = leader.high_watermark
                if latest < self.latest_returned and not self.settings.unclean_elections:
                    raise Violation(f"D6: latest offset went back to {latest}")
                self.latest_returned = latest
                self.latest_epoch_told = leader.leader_epoch

    # The end of a run.

    def heal(self) -> None:
        """No more faults: all nodes run, and within a bounded number of steps all replicas are
        equal."""
        for node in self.nodes.values():
            self.start(node)
        for _ in range(60):
            self.now_ms += 30
            for node in self.nodes.values():
                self.learn(node, len(self.controller.history))
                self.unfence(node)
                self.flush(node)
                self.tick(node, 0)
                self.fetch(node)
            while self.messages:
                self.deliver(0)
            self.check()

    def check_healed(self) -> None:
        assignment = self.controller.image.assignment
        if assignment.leader < 0:
            raise Violation("L1: nobody leads")
        if set(assignment.isr) != set(assignment.replicas):
            raise Violation(f"L1: only {assignment.isr} are in sync")
        leader = self.nodes[assignment.leader]
        before = self.acks_given
        self.produce(leader)
        self.heal()
        if self.acks_given != before + 1:
            raise Violation("L1: nothing is acknowledged")
        for node_id in assignment.replicas:
            node = self.nodes[node_id]
            start = max(node.log.log_start_offset, leader.log.log_start_offset)
            if node.log.read(start, node.log.end_offset) != leader.log.read(
                start, leader.log.end_offset
            ):
                raise Violation(f"D7: {node.node_id} and its leader differ")
        if self.settings.unclean_elections:
            return
        for offset, entry in self.acked.items():
            if offset >= leader.log.log_start_offset and leader.log.read(offset, offset + 1) != [
                entry
            ]:
                raise Violation(f"D1: {entry} at {offset} was acknowledged and is lost")
