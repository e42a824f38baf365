"""Runs a group of Raft cores with faults, from a seed: messages delayed, lost and duplicated, power
losses, pauses, network partitions, slow disks, voter changes, snapshots, leaders that resign.

`RaftChecks` checks every step. At the end all faults are cleared, and the group must elect a
leader, commit, and bring every replica to the same offset."""

import heapq
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final
from uuid import UUID

from campaigns.raft_checks import RaftChecks, ensure
from campaigns.raft_node import RaftNode, Snapshot
from lograft.consensus.core import RaftCore
from lograft.consensus.messages import (
    AddVoterRequest,
    Message,
    RemoveVoterRequest,
    UpdateVoterRequest,
    UpgradeVersionRequest,
    VoteResponse,
)
from lograft.consensus.types import RaftSettings, ReplicaKey, Send, SnapshotId, Voter, VoterSet
from lograft.model.types import NodeId
from lograft.simulation.trace import Streams, Trace

SETTINGS: Final = RaftSettings(
    election_timeout_ms=100,
    election_backoff_max_ms=100,
    fetch_timeout_ms=200,
    request_timeout_ms=150,
    retry_backoff_ms=10,
    fetch_wait_ms=50,
    voter_change_timeout_ms=1_000,
)
HEAL_MS: Final = 6_000


@dataclass(slots=True)
class RaftOptions:
    """The decisions of a seed, stored with a failure."""

    voters: int = 3
    observers: int = 1
    milliseconds: int = 3_000
    loss: float = 0.0
    duplication: float = 0.0
    lateness: float = 0.0
    fault_interval_ms: int = 250
    slow_disk: float = 0.0
    #: Probability that a voter loses power right after it granted its vote.
    vote_crash: float = 0.0
    dynamic_voters: bool = True
    #: A group with static voters makes them dynamic (kraft.version 0 to 1) during the run.
    upgrades_version: bool = False


@dataclass(slots=True)
class RaftReport:
    seed: int
    options: RaftOptions
    steps: int = 0
    #: Simulated time.
    milliseconds: int = 0
    committed: int = 0
    epochs: int = 0
    crashes: int = 0
    voter_changes: int = 0
    #: Whether kraft.version was upgraded.
    is_upgraded: bool = False
    installs: int = 0
    violation: str = ""
    trace_hash: str = ""
    last_events: list[str] = field(default_factory=list)


def options_of(seed: int) -> RaftOptions:
    random = Streams(seed).stream("options")
    return RaftOptions(
        voters=random.choice((3, 3, 3, 5)),
        observers=random.choice((0, 1, 2)),
        loss=random.choice((0.0, 0.02, 0.1, 0.25)),
        duplication=random.choice((0.0, 0.05, 0.2)),
        lateness=random.choice((0.0, 0.02, 0.1)),
        fault_interval_ms=random.choice((60, 150, 300)),
        slow_disk=random.choice((0.0, 0.05, 0.2)),
        vote_crash=random.choice((0.0, 0.0, 0.2)),
        dynamic_voters=random.random() < 0.8,
        upgrades_version=random.random() < 0.5,
    )


class RaftRun:
    def __init__(
        self,
        seed: int,
        options: RaftOptions | None = None,
        core_type: type[RaftCore] = RaftCore,
        *,
        outcomes_only: bool = False,
    ) -> None:
        self.options = options_of(seed) if options is None else options
        self.report = RaftReport(seed, self.options)
        streams = Streams(seed)
        self._network = streams.stream("network")
        self._disks = streams.stream("disks")
        self._faults = streams.stream("faults")
        self._clients = streams.stream("clients")
        self.trace = Trace()
        self.now_ms = 0
        self._heap: list[tuple[int, int, Callable[[], None]]] = []
        self._sequence = 0
        keys = [
            ReplicaKey(NodeId(i + 1), UUID(int=i + 1))
            for i in range(self.options.voters + self.options.observers)
        ]
        voters = VoterSet.of(keys[: self.options.voters])
        if not self.options.dynamic_voters:
            nodes = (ReplicaKey(node_id) for node_id in voters.node_ids)
            voters = VoterSet.of(nodes, is_static=True)
        self.checks = RaftChecks(voters, outcomes_only=outcomes_only)
        self._snapshots: dict[SnapshotId, Snapshot] = {}
        self.nodes: dict[NodeId, RaftNode] = {}
        for key in keys:
            chance = streams.stream(f"core {key.node_id}").randrange
            self.nodes[key.node_id] = RaftNode(
                key,
                voters,
                settings=SETTINGS,
                chance=chance,
                core_type=core_type,
                trace=None,
                snapshot_of=self._snapshots.get,
            )
        self._cut: set[tuple[NodeId, NodeId]] = set()
        self._paused_until: dict[NodeId, int] = {}
        self._tick_at: dict[NodeId, int] = {}
        self._slow_until: dict[NodeId, int] = {}
        self._writing: set[tuple[NodeId, int, str]] = set()
        self._healed = False
        self._value = 0

    # ── the run ──────────────────────────────────────────────────────────────────────────────

    def run(self) -> RaftReport:
        for node in self.nodes.values():
            self._act(node, lambda node=node: node.boot(self.now_ms))  # type: ignore[misc]
        self._at(20, self._client)
        self._at(self.options.fault_interval_ms, self._fault)
        self._until(self.options.milliseconds)
        self._heal()
        self._until(self.now_ms + HEAL_MS, stop=self._is_live)
        ensure(self._is_live(), "liveness", self._describe_nodes())
        self.checks.check_final_state(self.nodes)
        report = self.report
        report.committed = len(self.checks.committed)
        report.installs = sum(node.installs for node in self.nodes.values())
        report.milliseconds = self.now_ms
        report.is_upgraded = not self.options.dynamic_voters and any(
            entry.voters is not None for entry in self.checks.committed
        )
        report.epochs = max(node.disk.hard_state.epoch for node in self.nodes.values())
        report.trace_hash = self.trace.digest()
        return report

    def _until(self, end_ms: int, stop: Callable[[], bool] | None = None) -> None:
        heap = self._heap
        while heap and heap[0][0] <= end_ms:
            self.now_ms, _, action = heapq.heappop(heap)
            action()
            self.report.steps += 1
            if stop is not None and self.report.steps % 16 == 0 and stop():
                return
        self.now_ms = max(self.now_ms, end_ms)

    def _at(self, delay_ms: int, action: Callable[[], None]) -> None:
        self._sequence += 1
        heapq.heappush(self._heap, (self.now_ms + delay_ms, self._sequence, action))

    def _act(self, node: RaftNode, action: Callable[[], None]) -> None:
        """Runs one step of a node, checks it, and handles its effects."""
        action()
        core = node.core
        if core is not None:
            self.trace.step(f"{self.now_ms} {node.key.node_id} {core.role.value} {core.epoch}")
        self.checks.after_step(node, self.nodes)
        sends, node.outbox = node.outbox, []
        for send in sends:
            self._post(node, send)
        self._serve_disk(node)
        self._schedule_tick(node)

    def _on(self, node: RaftNode, delay_ms: int, action: Callable[[], None]) -> None:
        """Schedules a step of the node; it is dropped if the node restarts, and delayed if it is
        paused."""
        life = node.lives

        def later() -> None:
            if node.core is None or node.lives != life:
                return
            until = self._paused_until.get(node.key.node_id, 0)
            if until > self.now_ms:
                self._at(until - self.now_ms, later)
            else:
                self._act(node, action)

        self._at(delay_ms, later)

    def _schedule_tick(self, node: RaftNode) -> None:
        core = node.core
        if core is None or core.deadline_ms is None:
            return
        at = max(core.deadline_ms, self.now_ms + 1)
        planned = self._tick_at.get(node.key.node_id)
        if planned is not None and self.now_ms < planned <= at:
            return
        self._tick_at[node.key.node_id] = at

        def tick() -> None:
            if self._tick_at.get(node.key.node_id) == at:
                del self._tick_at[node.key.node_id]
            assert node.core is not None
            node.do(node.core.tick(self.now_ms), self.now_ms)

        self._on(node, at - self.now_ms, tick)

    def _serve_disk(self, node: RaftNode) -> None:
        node_id, life = node.key.node_id, node.lives
        for kind, is_pending in (
            ("persist", node.persisting is not None),
            ("flush", node.flushing is not None),
            ("install", node.installing is not None),
        ):
            job = (node_id, life, kind)
            if node.core is None or not is_pending or job in self._writing:
                continue
            self._writing.add(job)
            self._on(node, self._disk_delay_ms(node_id), self._disk_job(node, job))

    def _disk_job(self, node: RaftNode, job: tuple[NodeId, int, str]) -> Callable[[], None]:
        def complete() -> None:
            self._writing.discard(job)
            if job[2] == "persist":
                node.complete_persist(self.now_ms)
            elif job[2] == "install":
                node.complete_install(self.now_ms)
            elif node.flushing is not None:  # otherwise a snapshot has replaced the log
                node.complete_flush(self.now_ms)

        return complete

    def _disk_delay_ms(self, node_id: NodeId) -> int:
        slow_ms = self._slow_until.get(node_id, 0) - self.now_ms
        if slow_ms > 0:
            return slow_ms
        if not self._healed and self._disks.random() < self.options.slow_disk:
            return self._disks.randrange(150)
        return 1 + self._disks.randrange(4)

    # ── messages ─────────────────────────────────────────────────────────────────────────────

    def _post(self, sender: RaftNode, send: Send) -> None:
        target = self.nodes.get(send.to)
        if target is None:
            if send.to == -1:
                self.trace.event(f"{self.now_ms} answer", type(send.message).__name__)
            return
        random, options = self._network, self.options
        if (sender.key.node_id, send.to) in self._cut:
            return
        copies = 1
        message = send.message
        is_vote = isinstance(message, VoteResponse) and message.granted and not message.pre_vote
        if (
            is_vote
            and not self._healed
            and options.vote_crash
            and (self._faults.random() < options.vote_crash)
        ):
            self._at(0, lambda: self._crash(sender))
        if not self._healed:
            if random.random() < options.loss:
                return
            copies += random.random() < options.duplication
        for _ in range(copies):
            delay_ms = 1 + random.randrange(8)
            if not self._healed and random.random() < options.lateness:
                delay_ms = random.randrange(1_500)
            self._deliver(sender, target, send.message, delay_ms)

    def _deliver(self, sender: RaftNode, target: RaftNode, message: Message, delay_ms: int) -> None:
        def arrive() -> None:
            # A message may arrive after its receiver was restarted, because connections are
            # reopened.
            if target.core is None or (sender.key.node_id, target.key.node_id) in self._cut:
                return
            until = self._paused_until.get(target.key.node_id, 0)
            if until > self.now_ms:
                self._at(until - self.now_ms, arrive)
                return
            self._act(target, lambda: self._step(target, message))

        self._at(delay_ms, arrive)

    def _step(self, node: RaftNode, message: Message) -> None:
        assert node.core is not None
        node.do(node.core.step(message, self.now_ms), self.now_ms)

    # ── clients ──────────────────────────────────────────────────────────────────────────────

    def _leaders(self) -> list[RaftNode]:
        return [
            node
            for node in self.nodes.values()
            if node.core is not None
            and node.core.is_leader
            and self._paused_until.get(node.key.node_id, 0) <= self.now_ms
        ]

    def _client(self) -> None:
        leaders = self._leaders()
        if leaders:
            node = self._clients.choice(leaders)
            self._value += 1
            value = self._value
            self._act(node, lambda: self._append(node, value))
            if self._clients.random() < 0.05:
                assert node.core is not None
                is_upgrade = node.core.voters.is_static and self.options.upgrades_version
                change = self._upgrade_version if is_upgrade else self._change_voters
                self._act(node, lambda: change(node))
        if self._clients.random() < 0.04:
            self._take_snapshot()
        self._at(5 + self._clients.randrange(40), self._client)

    def _append(self, node: RaftNode, value: int) -> None:
        node.append(value, self.now_ms)

    def _take_snapshot(self) -> None:
        alive = [node for node in self.nodes.values() if node.core is not None]
        if not alive:
            return
        node = self._clients.choice(alive)

        def take() -> None:
            snapshot = node.take_snapshot(self.now_ms, keep=self._clients.random() < 0.5)
            if snapshot is not None:
                self._snapshots[snapshot.id] = snapshot

        self._act(node, take)

    def _change_voters(self, node: RaftNode) -> None:
        core = node.core
        assert core is not None
        voters = [voter.key for voter in core.voters.voters]
        outside = [each.key for each in self.nodes.values() if each.key not in voters]
        self.report.voter_changes += 1
        message: Message
        draw = self._clients.random()
        if outside and (draw < 0.5 or len(voters) < 3):
            message = AddVoterRequest(voter=Voter(self._clients.choice(outside)))
        elif draw < 0.9:
            message = RemoveVoterRequest(key=self._clients.choice(voters))
        else:
            key = self._clients.choice(voters)
            message = UpdateVoterRequest(voter=Voter(key, kraft_version_max=2))
        self.trace.event(f"{self.now_ms} {node.key.node_id} voters", repr(message))
        self._step(node, message)

    def _upgrade_version(self, node: RaftNode) -> None:
        """Upgrades kraft.version after most voters have sent their own description."""
        assert node.core is not None
        for node_id in node.core.voters.node_ids:
            if node_id != node.key.node_id and self._clients.random() < 0.9:
                voter = Voter(self.nodes[node_id].key)
                self._step(node, UpdateVoterRequest(voter=voter))
        self.trace.event(f"{self.now_ms} {node.key.node_id} upgrade")
        self._step(node, UpgradeVersionRequest(voter=Voter(node.key)))

    # ── faults ───────────────────────────────────────────────────────────────────────────────

    def _fault(self) -> None:
        if self._healed:
            return
        random = self._faults
        self._at(1 + random.randrange(2 * self.options.fault_interval_ms), self._fault)
        nodes = list(self.nodes.values())
        leaders = self._leaders()
        # Faults of the leader are the most interesting ones.
        node = random.choice(leaders if leaders and random.random() < 0.5 else nodes)
        kind = random.choice(
            ("crash", "crash", "crash", "cut", "cut", "join", "pause", "disk", "resign", "refused")
        )
        self.trace.event(f"{self.now_ms} fault", kind, node.key.node_id)
        if kind == "crash":
            self._crash(node)
        elif kind == "cut":
            self._partition()
        elif kind == "join":
            self._cut.clear()
        elif kind == "pause":
            self._paused_until[node.key.node_id] = self.now_ms + random.randrange(500)
        elif kind == "disk":
            self._slow_until[node.key.node_id] = self.now_ms + random.randrange(400)
        elif kind == "resign" and node.core is not None and node in leaders:
            core = node.core
            preferred = random.choice(nodes).key.node_id
            self._act(
                node,
                lambda: node.do(core.resign(self.now_ms, preferred=preferred), self.now_ms),
            )
        elif kind == "refused":
            self._report_unreachable(node)

    def _crash(self, node: RaftNode) -> None:
        if node.core is None:
            return
        random = self._faults
        self.report.crashes += 1
        kept = random.randrange(4)
        persist_done = random.random() < 0.5
        if random.random() < 0.3:
            self._act(node, node.kill)
        else:
            self._act(node, lambda: node.crash(entries_kept=kept, persist_done=persist_done))
        self._paused_until.pop(node.key.node_id, None)
        self._tick_at.pop(node.key.node_id, None)
        if random.random() < 0.5:
            self._report_unreachable(node)
        delay_ms = random.randrange(20) if random.random() < 0.3 else random.randrange(800)
        self._at(delay_ms, lambda: self._boot(node))

    def _boot(self, node: RaftNode) -> None:
        if node.core is None:
            self._act(node, lambda: node.boot(self.now_ms))

    def _report_unreachable(self, target: RaftNode) -> None:
        """Tells other nodes that a node is unreachable, sometimes wrongly."""
        for node in self.nodes.values():
            if node is not target and node.core is not None and self._faults.random() < 0.7:
                self._on(node, 1, self._make_unreachable_step(node, target.key.node_id))

    def _make_unreachable_step(self, node: RaftNode, target: NodeId) -> Callable[[], None]:
        def step() -> None:
            assert node.core is not None
            node.do(node.core.on_unreachable(target, self.now_ms), self.now_ms)

        return step

    def _partition(self) -> None:
        """Cuts the links between two sides, in both directions or only one."""
        random = self._faults
        ids = list(self.nodes)
        random.shuffle(ids)
        split = 1 + random.randrange(len(ids) - 1)
        left, right = ids[:split], ids[split:]
        self._cut = {(a, b) for a in left for b in right}
        if random.random() < 0.7:
            self._cut |= {(b, a) for a in left for b in right}

    # ── the end ──────────────────────────────────────────────────────────────────────────────

    def _heal(self) -> None:
        self._healed = True
        self._cut.clear()
        self._paused_until.clear()
        self._slow_until.clear()
        self._value_at_heal = self._value
        for node in self.nodes.values():
            self._boot(node)

    def _is_live(self) -> bool:
        """Returns whether entries written after the faults are committed, and all voters know
        it."""
        committed = self.checks.committed
        recent = [entry for entry in committed[-20:] if entry.value > self._value_at_heal]
        if len(recent) < 5:
            return False
        leaders = self._leaders()
        if not leaders:
            return False
        leader = max(leaders, key=lambda node: node.disk.hard_state.epoch)
        assert leader.core is not None
        floor = len(committed) - 20
        return all(
            (core := self.nodes[node_id].core) is not None and core.high_watermark >= floor
            for node_id in leader.core.voters.node_ids
        )

    def _describe_nodes(self) -> str:
        return "; ".join(
            f"{node.key.node_id}: {node.core.role.value} in epoch {node.core.epoch},"
            f" leader {node.core.leader}, {node.core.high_watermark} of {node.core.log.end.offset}"
            " committed"
            for node in self.nodes.values()
            if node.core is not None
        )


def run_raft(
    seed: int,
    options: RaftOptions | None = None,
    core_type: type[RaftCore] = RaftCore,
    *,
    outcomes_only: bool = False,
) -> RaftReport:
    """Runs a seed; never raises, because violations and exceptions are in the report."""
    run = RaftRun(seed, options, core_type, outcomes_only=outcomes_only)
    try:
        return run.run()
    except Exception as error:
        report = run.report
        report.violation = f"{type(error).__name__}: {error}"
        report.last_events = [*run.trace.last][-30:]
        report.trace_hash = run.trace.digest()
        return report
