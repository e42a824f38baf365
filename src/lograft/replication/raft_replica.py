"""One replica of a partition in raft mode: a Raft core, its roles as the shell knows them, and the
way of the core's effects to the shell.

Everything that asks something of the log waits while the shell cuts it: messages are held, time
stands still.
"""

from typing import Final

from lograft.consensus.core import RaftCore
from lograft.consensus.messages import FetchRequest, FetchResponse, Message
from lograft.consensus.types import Effects, HardState, LogEnd, SnapshotId
from lograft.model.types import NO_EPOCH, NO_NODE, BrokerEpoch, Epoch, NodeId, Offset
from lograft.replication.raft_port import RaftPort
from lograft.replication.raft_roles import RaftFollower, RaftLeader
from lograft.replication.types import ReplicaLog

#: Messages that wait for a cut; any of them may get lost.
HELD_MAX: Final = 100


class RaftReplica:
    __slots__ = (
        "_answer",
        "_cut",
        "_held",
        "_request",
        "_role",
        "_told_deadline_ms",
        "alive_ms",
        "broker_epoch",
        "core",
        "follower",
        "is_paused",
        "leader",
        "log",
        "port",
        "replicas",
        "successor",
    )

    def __init__(
        self,
        core: RaftCore,
        *,
        log: ReplicaLog,
        port: RaftPort,
        broker_epoch: BrokerEpoch,
        replicas: tuple[NodeId, ...],
    ) -> None:
        self.core = core
        self.log = log
        self.port = port
        self.broker_epoch = broker_epoch
        #: Who may fetch: those that the metadata names, voters or not.
        self.replicas = replicas
        self.leader: RaftLeader | None = None
        self.follower: RaftFollower | None = None
        #: When the stream between this node and another last stood for this partition too.
        self.alive_ms: dict[NodeId, int] = {}
        #: Whom the leader hands over to as soon as that one has everything; meanwhile it appends
        #: nothing for clients.
        self.successor: NodeId | None = None
        #: The log changes its log dir: nothing may be decided meanwhile.
        self.is_paused = False
        self._role: tuple[bool, Epoch, NodeId] | None = None
        #: The core's next fetch, until the stream takes it.
        self._request: FetchRequest | None = None
        #: The core's answer to the fetch that it is being asked.
        self._answer: FetchResponse | None = None
        self._cut: Offset | None = None
        self._held: list[Message] = []
        self._told_deadline_ms: int | None = None

    @property
    def high_watermark(self) -> Offset:
        return max(self.core.high_watermark, self.log.log_start_offset)

    @property
    def is_cutting(self) -> bool:
        """Whether the log cannot be used now: it is being cut, or changes its log dir."""
        return self.is_paused or (self.follower is not None and self.follower.is_cutting)

    @property
    def deadline_ms(self) -> int | None:
        return self.core.deadline_ms

    # ── what happens ─────────────────────────────────────────────────────────────────────────

    def start(self) -> None:
        """After a restart: the log was recovered, so all of it is on disk as far as it says."""
        now_ms = self.port.now_ms()
        self._tell(self.core.start(now_ms))
        self._tell_durable()

    def begin_life(self, life: Epoch, leader: NodeId) -> None:
        """The hard state of the life's beginning is on disk already."""
        now_ms = self.port.now_ms()
        effects = self.core.begin_life(life, leader, now_ms)
        assert effects.persist == HardState(life, leader, None, life), effects
        self._tell(self.core.on_persisted(now_ms))
        self._tell_durable()

    def leave(self, epoch: Epoch) -> None:
        """An election that the controller wins."""
        self._tell(self.core.leave_life(epoch, self.port.now_ms()))
        self.port.request_flush()

    def on_leader_known(self, epoch: Epoch, leader: NodeId) -> None:
        if leader != NO_NODE and epoch >= self.core.epoch:
            self._tell(self.core.on_leader_known(epoch, leader, self.port.now_ms()))

    def step(self, message: Message) -> None:
        if self.is_cutting:
            self._held.append(message)
            del self._held[:-HELD_MAX]
            return
        self._tell(self.core.step(message, self.port.now_ms()))

    def tick(self) -> None:
        """When `deadline_ms` is over; later is safe."""
        if self.is_cutting:
            return
        now_ms = self.port.now_ms()
        if self.follower is not None:
            last_contact_ms = self.port.last_contact_ms(self.follower.leader)
            if last_contact_ms >= 0:
                self.alive_ms[self.follower.leader] = last_contact_ms
        if self.alive_ms:
            # Most deadlines only ask whether the other side is there.
            self.core.note_alive(self.alive_ms, now_ms)
            self.alive_ms.clear()
            self._told_deadline_ms = self.core.deadline_ms
        if self.core.deadline_ms is not None and now_ms >= self.core.deadline_ms:
            self._tell(self.core.tick(now_ms))

    def on_persisted(self) -> None:
        self._tell(self.core.on_persisted(self.port.now_ms()))

    def on_durable(self, durable: Offset) -> bool:
        view = self.core.log
        reached = min(durable, view.end.offset)
        if reached <= view.durable:
            return False
        now_ms = self.port.now_ms()
        plain = self.core.note_progress(now_ms, log_end=LogEnd(self.core.epoch, reached))
        if plain is not None:
            return plain
        return self.do(self.core.on_durable(reached, now_ms))

    def on_unreachable(self, node_id: NodeId) -> None:
        """Its process is gone: a connection to it was refused."""
        if not self.is_cutting:
            self._tell(self.core.on_unreachable(node_id, self.port.now_ms()))

    def resign(self, preferred: NodeId | None = None) -> None:
        if self.core.leadership is not None:
            self._tell(self.core.resign(self.port.now_ms(), preferred=preferred))

    def hand_over(self, successor: NodeId) -> None:
        """To a certain voter: once it has all there is, or it would not be elected."""
        self.successor = successor
        self.advance_hand_over()

    def advance_hand_over(self) -> None:
        leadership, successor = self.core.leadership, self.successor
        if leadership is None or successor is None:
            return
        end = self.core.log.end.offset
        for progress in leadership.replicas():
            if progress.key.node_id == successor and progress.durable >= end:
                self.resign(successor)
                return

    def on_log_cut(self) -> None:
        """The log was cut, or begun anew behind its end."""
        core, log, view = self.core, self.log, self.core.log
        if log.log_start_offset > view.end.offset:
            view.replace(SnapshotId(log.log_start_offset, NO_EPOCH), core.voters)
            core.high_watermark = max(core.high_watermark, log.log_start_offset)
        elif log.end_offset < view.end.offset:
            view.truncate(log.end_offset)
        view.durable = min(view.durable, log.durable_offset)
        self._request = None
        now_ms = self.port.now_ms()
        if core.fetcher is not None:
            core.fetcher.on_response(now_ms)
        self._tell(core.on_durable(min(log.durable_offset, view.end.offset), now_ms))
        self._step_held()

    def _step_held(self) -> None:
        held, self._held = self._held, []
        for message in held:
            self.step(message)

    def resume(self) -> None:
        """After a pause."""
        self.is_paused = False
        fetcher, now_ms = self.core.fetcher, self.port.now_ms()
        if fetcher is not None and fetcher.in_flight is not None:
            # Its answer may have come meanwhile, and was not looked at.
            self._tell(self.core.on_request_failed(fetcher.in_flight, now_ms))
        self._step_held()
        self.tell_deadline()

    def _tell_durable(self) -> None:
        if self.on_durable(self.log.durable_offset):
            self.port.committed()

    # ── the core's effects ───────────────────────────────────────────────────────────────────

    def _tell(self, effects: Effects) -> None:
        """For what did not come through one of the roles."""
        if self.do(effects):
            self.port.committed()

    def do(self, effects: Effects) -> bool:
        """Carries them out; says whether the high watermark moved."""
        moved = False
        pending = [effects]
        for one in pending:
            if one.persist is not None:
                self.port.persist(one.persist)
            if one.truncate is not None:
                self._cut = one.truncate
            for to, message in one.send:
                self._route(to, message)
            moved = moved or one.committed is not None
            if one.lead is not None:
                voters = self.core.voters
                end = self.port.append_control(one.lead, voters)
                if end is None:
                    break
                pending.append(self.core.on_appended(end, self.port.now_ms(), voters=voters))
                self.port.request_flush()
            if one.append_voters is not None:
                end = self.port.append_voters(self.core.epoch, one.append_voters)
                if end is None:
                    break
                pending.append(
                    self.core.on_appended(end, self.port.now_ms(), voters=one.append_voters)
                )
                self.port.request_flush()
        self._settle_role()
        self.tell_deadline()
        return moved

    def tell_deadline(self) -> None:
        if self.core.deadline_ms != self._told_deadline_ms:
            self._told_deadline_ms = self.core.deadline_ms
            self.port.deadline_changed()

    def _route(self, to: NodeId, message: Message) -> None:
        if isinstance(message, FetchRequest):
            self._request = message
            self.port.fetch_ready()
        elif isinstance(message, FetchResponse):
            self._answer = message
        else:
            self.port.send(to, message)

    def take_request(self, now_ms: int) -> FetchRequest | None:
        deadline_ms = self.core.deadline_ms
        if self._request is None and deadline_ms is not None and now_ms >= deadline_ms:
            self.tick()
        request, self._request = self._request, None
        return request

    def take_answer(self) -> FetchResponse | None:
        answer, self._answer = self._answer, None
        return answer

    def take_cut(self) -> Offset | None:
        cut, self._cut = self._cut, None
        return cut

    def _settle_role(self) -> None:
        core = self.core
        role: tuple[bool, Epoch, NodeId] | None = None
        if core.is_leader:
            role = (True, core.epoch, core.me.node_id)
        elif core.fetcher is not None:
            role = (False, core.epoch, core.fetcher.target)
        if role == self._role:
            return
        self._role = role
        self.successor = None
        self.alive_ms.clear()
        self.leader = self.follower = None
        if role is not None and role[0]:
            self.leader = RaftLeader(self)
        elif role is not None:
            self.follower = RaftFollower(self, role[2])
        self.port.role_changed()
