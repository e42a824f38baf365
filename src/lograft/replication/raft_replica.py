"""A replica of a partition in raft mode: the Raft core, its roles as the shell uses them, and the
execution of the core's effects.

While the shell truncates the log, nothing is decided: messages are held back and timeouts wait.
"""

from typing import Final

from lograft.consensus.core import RaftCore
from lograft.consensus.messages import FetchRequest, FetchResponse, Message
from lograft.consensus.types import Effects, HardState, LogEnd, SnapshotId
from lograft.model.types import NO_EPOCH, NO_NODE, BrokerEpoch, Epoch, NodeId, Offset
from lograft.replication.raft_port import RaftPort
from lograft.replication.raft_roles import RaftFollower, RaftLeader
from lograft.replication.types import ReplicaLog

#: Maximum number of messages that wait for a truncation; further ones replace the oldest.
HELD_MESSAGES_MAX: Final = 100


class RaftReplica:
    """A replica in raft mode. `ModeReplica` creates one for each life."""

    __slots__ = (
        "_held_messages",
        "_reported_deadline_ms",
        "_request",
        "_response",
        "_role",
        "_truncation",
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
        #: Replicas in the metadata, voters or not: only they may fetch.
        self.replicas = replicas
        self.leader: RaftLeader | None = None
        self.follower: RaftFollower | None = None
        #: Last sign of life from each node on the fetch streams, not yet reported to the core.
        self.alive_ms: dict[NodeId, int] = {}
        #: Voter to which the leader hands over leadership as soon as it is caught up. Until then
        #: the leader rejects appends of clients.
        self.successor: NodeId | None = None
        #: The log is being moved to another log dir: nothing may be decided.
        self.is_paused = False
        self._role: tuple[bool, Epoch, NodeId] | None = None
        #: The core's next fetch, until the stream sends it.
        self._request: FetchRequest | None = None
        #: The core's response to the fetch that it is handling.
        self._response: FetchResponse | None = None
        self._truncation: Offset | None = None
        self._held_messages: list[Message] = []
        self._reported_deadline_ms: int | None = None

    @property
    def high_watermark(self) -> Offset:
        return max(self.core.high_watermark, self.log.log_start_offset)

    @property
    def is_truncating(self) -> bool:
        """Whether the log is unavailable: it is being truncated, or moved to another log dir."""
        return self.is_paused or (self.follower is not None and self.follower.is_truncating)

    @property
    def deadline_ms(self) -> int | None:
        return self.core.deadline_ms

    # ── events ───────────────────────────────────────────────────────────────────────────────

    def start(self) -> None:
        """Starts the core after a restart. The log was recovered, so its durable offset is
        valid."""
        now_ms = self.port.now_ms()
        self._execute_and_report(self.core.start(now_ms))
        self._report_durable()

    def begin_life(self, life: Epoch, leader: NodeId) -> None:
        """Starts a life whose initial hard state is on disk already."""
        now_ms = self.port.now_ms()
        effects = self.core.begin_life(life, leader, now_ms)
        assert effects.persist == HardState(life, leader, None, life), effects
        self._execute_and_report(self.core.on_persisted(now_ms))
        self._report_durable()

    def leave(self, epoch: Epoch) -> None:
        """Votes for the controller, which ends the life in this epoch."""
        self._execute_and_report(self.core.leave_life(epoch, self.port.now_ms()))
        self.port.request_flush()

    def on_leader_known(self, epoch: Epoch, leader: NodeId) -> None:
        if leader != NO_NODE and epoch >= self.core.epoch:
            self._execute_and_report(self.core.on_leader_known(epoch, leader, self.port.now_ms()))

    def step(self, message: Message) -> None:
        if self.is_truncating:
            self._held_messages.append(message)
            del self._held_messages[:-HELD_MESSAGES_MAX]
            return
        self._execute_and_report(self.core.step(message, self.port.now_ms()))

    def tick(self) -> None:
        """Handles an expired `deadline_ms`; a late call is safe."""
        if self.is_truncating:
            return
        now_ms = self.port.now_ms()
        if self.follower is not None:
            last_contact_ms = self.port.last_contact_ms(self.follower.leader)
            if last_contact_ms >= 0:
                self.alive_ms[self.follower.leader] = last_contact_ms
        if self.alive_ms:
            # Most deadlines only check for signs of life.
            self.core.note_alive(self.alive_ms, now_ms)
            self.alive_ms.clear()
            self._reported_deadline_ms = self.core.deadline_ms
        if self.core.deadline_ms is not None and now_ms >= self.core.deadline_ms:
            self._execute_and_report(self.core.tick(now_ms))

    def on_persisted(self) -> None:
        self._execute_and_report(self.core.on_persisted(self.port.now_ms()))

    def on_durable(self, durable: Offset) -> bool:
        view = self.core.log
        reached = min(durable, view.end.offset)
        if reached <= view.durable:
            return False
        now_ms = self.port.now_ms()
        plain = self.core.note_progress(now_ms, log_end=LogEnd(self.core.epoch, reached))
        if plain is not None:
            return plain
        return self.execute(self.core.on_durable(reached, now_ms))

    def on_unreachable(self, node_id: NodeId) -> None:
        """The process of the node has terminated: a connection to it was refused."""
        if not self.is_truncating:
            self._execute_and_report(self.core.on_unreachable(node_id, self.port.now_ms()))

    def resign(self, preferred: NodeId | None = None) -> None:
        if self.core.leadership is not None:
            self._execute_and_report(self.core.resign(self.port.now_ms(), preferred=preferred))

    def hand_over(self, successor: NodeId) -> None:
        """Hands leadership over to a voter once it is caught up; before, it would not be
        elected."""
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

    def on_log_truncated(self) -> None:
        """The log was truncated, or restarted beyond its end."""
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
        self._execute_and_report(core.on_durable(min(log.durable_offset, view.end.offset), now_ms))
        self._step_held()

    def _step_held(self) -> None:
        held, self._held_messages = self._held_messages, []
        for message in held:
            self.step(message)

    def resume(self) -> None:
        """Continues after the move of the log."""
        self.is_paused = False
        fetcher, now_ms = self.core.fetcher, self.port.now_ms()
        if fetcher is not None and fetcher.in_flight is not None:
            # Its response may have arrived in the meantime, and was ignored.
            self._execute_and_report(self.core.on_request_failed(fetcher.in_flight, now_ms))
        self._step_held()
        self.report_deadline()

    def _report_durable(self) -> None:
        if self.on_durable(self.log.durable_offset):
            self.port.on_committed()

    # ── effects of the core ──────────────────────────────────────────────────────────────────

    def _execute_and_report(self, effects: Effects) -> None:
        """Executes effects that did not arise in a call of one of the roles."""
        if self.execute(effects):
            self.port.on_committed()

    def execute(self, effects: Effects) -> bool:
        """Executes the effects, and returns whether the high watermark advanced."""
        moved = False
        pending = [effects]
        for effects in pending:
            if effects.persist is not None:
                self.port.persist(effects.persist)
            if effects.truncate is not None:
                self._truncation = effects.truncate
            for to, message in effects.send:
                self._route(to, message)
            moved = moved or effects.committed is not None
            if effects.lead is not None:
                voters = self.core.voters
                end = self.port.append_control(effects.lead, voters)
                if end is None:
                    break
                pending.append(self.core.on_appended(end, self.port.now_ms(), voters=voters))
                self.port.request_flush()
            if effects.append_voters is not None:
                end = self.port.append_voters(self.core.epoch, effects.append_voters)
                if end is None:
                    break
                pending.append(
                    self.core.on_appended(end, self.port.now_ms(), voters=effects.append_voters)
                )
                self.port.request_flush()
        self._update_role()
        self.report_deadline()
        return moved

    def report_deadline(self) -> None:
        if self.core.deadline_ms != self._reported_deadline_ms:
            self._reported_deadline_ms = self.core.deadline_ms
            self.port.deadline_changed()

    def _route(self, to: NodeId, message: Message) -> None:
        if isinstance(message, FetchRequest):
            self._request = message
            self.port.fetch_ready()
        elif isinstance(message, FetchResponse):
            self._response = message
        else:
            self.port.send(to, message)

    def take_request(self, now_ms: int) -> FetchRequest | None:
        deadline_ms = self.core.deadline_ms
        if self._request is None and deadline_ms is not None and now_ms >= deadline_ms:
            self.tick()
        request, self._request = self._request, None
        return request

    def take_response(self) -> FetchResponse | None:
        response, self._response = self._response, None
        return response

    def take_truncation(self) -> Offset | None:
        offset, self._truncation = self._truncation, None
        return offset

    def _update_role(self) -> None:
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
