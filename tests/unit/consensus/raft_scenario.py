"""The language of the scenarios with several replicas: one command a line.

cluster voters=1,2,3 observers=4 static    replicas with empty disks, not yet started
disk 2 epoch=3 voted=1 log=1,1,2           what a replica finds when it starts
chance 2 0                                 how its chance falls, in thousandths; 500 at first
boot 1 2 3 · crash 1 · crash 1 keep=2      a crash loses what is not on disk, but for so much
wait 1500                                  time passes; messages and disks stand still
persist 1 · flush 1                        what the disk was asked for is done
deliver 1>2 · deliver · drop 1>2 · again 1>2    messages that are on their way
run 2000                                   time passes, messages and disks work at once
cut 1|2,3 · heal                           lost without a trace; the other way with 1>2,3
slow 1 · fast 1                            in `run`, its disk does nothing
append 1 3 · resign 1 · resign 1 3 · snapshot 1 · unreachable 2 1 · disconnected 2 1
add 1 4 · remove 1 2 · update 1 2          asks the first one for a change of the voters
upgrade 1 · upgrade 1 validate             asks it to raise kraft.version
replace 2                                  the same number with an empty disk
begin_life 1 5 leader=1 · leave_life 1 7 · state
"""

from uuid import UUID

from campaigns.raft_checks import RaftChecks
from campaigns.raft_node import Entry, RaftNode, Snapshot
from lograft.consensus.core import RaftCore
from lograft.consensus.errors import CommittedAtRisk, NotLeading
from lograft.consensus.messages import (
    AddVoterRequest,
    BeginQuorumEpochRequest,
    EndQuorumEpochRequest,
    Error,
    FetchRequest,
    FetchResponse,
    FetchSnapshotRequest,
    FetchSnapshotResponse,
    Message,
    RemoveVoterRequest,
    UpdateVoterRequest,
    UpgradeVersionRequest,
    VoterChangeResponse,
    VoteRequest,
    VoteResponse,
)
from lograft.consensus.types import (
    CONTROLLER,
    Effects,
    HardState,
    RaftSettings,
    ReplicaKey,
    SnapshotId,
    Voter,
    VoterSet,
)
from lograft.model.types import NO_NODE, Epoch, NodeId

RUN_STEP_MS = 10


def key(node: int, disk: int | None = None) -> ReplicaKey:
    return ReplicaKey(NodeId(node), UUID(int=node if disk is None else disk))


class ClusterScenario:
    def __init__(
        self, core_type: type[RaftCore] = RaftCore, *, outcomes_only: bool = False
    ) -> None:
        """With `outcomes_only` the checks verify only outcomes, not the safeguards themselves."""
        self.core_type = core_type
        self.outcomes_only = outcomes_only
        self.now_ms = 0
        self.nodes: dict[int, RaftNode] = {}
        self.wire: list[tuple[int, int, Message]] = []
        self.cuts: set[tuple[int, int]] = set()
        self.slow: set[int] = set()
        self.out: list[str] = []
        self.chances: dict[int, int] = {}
        self.snapshots: dict[SnapshotId, Snapshot] = {}
        self.voters = VoterSet(())
        self.static = False
        self.checks = RaftChecks(self.voters)
        self.checked = True

    def execute(self, command: str) -> str:
        verb, *words = command.split()
        self.out = []
        try:
            getattr(self, f"do_{verb}")(*words)
        except (NotLeading, CommittedAtRisk) as error:
            self.out.append(f"{type(error).__name__}: {error}")
        return "\n".join(self.out)

    # ── setup ────────────────────────────────────────────────────────────────────────────────

    def do_cluster(self, *words: str) -> None:
        self.__init__(self.core_type, outcomes_only=self.outcomes_only)  # type: ignore[misc]
        given = dict(word.split("=") for word in words if "=" in word)
        self.static = "static" in words
        ids = [int(node) for node in given["voters"].split(",")]
        self.voters = VoterSet.of(
            (ReplicaKey(NodeId(n)) if self.static else key(n) for n in ids), is_static=self.static
        )
        self.checks = RaftChecks(self.voters, outcomes_only=self.outcomes_only)
        for node in ids + [int(node) for node in given.get("observers", "").split(",") if node]:
            self.nodes[node] = self.node(node, key(node))

    def node(self, number: int, replica: ReplicaKey) -> RaftNode:
        def trace(line: str) -> None:
            self.out.append(f"{number}: {line}")

        def chance(bound: int) -> int:
            return bound * self.chances.get(number, 500) // 1000

        return RaftNode(
            replica,
            self.voters,
            settings=RaftSettings(),
            chance=chance,
            core_type=self.core_type,
            trace=trace,
            snapshot_of=self.snapshots.get,
        )

    def do_disk(self, node: str, *words: str) -> None:
        given = dict(word.split("=") for word in words)
        disk = self.nodes[int(node)].disk
        voted = given.get("voted")
        disk.hard_state = HardState(
            Epoch(int(given.get("epoch", -1))),
            NodeId(int(given.get("leader", NO_NODE))),
            None if voted is None else key(int(voted)),
        )
        epochs = [int(epoch) for epoch in given.get("log", "").split(",") if epoch]
        disk.entries = [Entry(Epoch(epoch), 10 * i + epoch) for i, epoch in enumerate(epochs)]
        self.checked = self.outcomes_only  # nothing is known about the start of the snapshot

    def do_chance(self, node: str, thousandths: str) -> None:
        self.chances[int(node)] = int(thousandths)

    def do_cut(self, sides: str) -> None:
        both = "|" in sides
        left, right = (
            [int(node) for node in side.split(",")] for side in sides.split("|" if both else ">")
        )
        self.cuts |= {(a, b) for a in left for b in right}
        if both:
            self.cuts |= {(b, a) for a in left for b in right}

    def do_heal(self) -> None:
        self.cuts.clear()

    def do_slow(self, node: str) -> None:
        self.slow.add(int(node))

    def do_fast(self, node: str) -> None:
        self.slow.discard(int(node))

    # ── events ───────────────────────────────────────────────────────────────────────────────

    def do_boot(self, *nodes: str) -> None:
        for node in nodes:
            self.nodes[int(node)].boot(self.now_ms)
            self.after(int(node))

    def do_crash(self, node: str, keep: str = "keep=0") -> None:
        self.nodes[int(node)].crash(entries_kept=int(keep.removeprefix("keep=")))

    def do_replace(self, node: str) -> None:
        self.nodes[int(node)] = self.node(int(node), key(int(node), disk=100 + int(node)))
        self.checked = False  # the checks would treat it as a replica that lost its state
        self.do_boot(node)

    def do_wait(self, milliseconds: str) -> None:
        end_ms = self.now_ms + int(milliseconds)
        while self.now_ms < end_ms:
            self.now_ms = min(self.now_ms + RUN_STEP_MS, end_ms)
            self.tick()

    def do_run(self, milliseconds: str) -> None:
        end_ms = self.now_ms + int(milliseconds)
        self.work()
        while self.now_ms < end_ms:
            self.now_ms = min(self.now_ms + RUN_STEP_MS, end_ms)
            self.tick(quiet=True)
            self.work()

    def do_work(self) -> None:
        self.work()

    def tick(self, *, quiet: bool = False) -> None:
        for number, node in self.nodes.items():
            if node.core is not None:
                node.do(node.core.tick(self.now_ms), self.now_ms)
                self.after(number, quiet=quiet)

    def work(self) -> None:
        busy = True
        while busy:
            busy = False
            for number, node in self.nodes.items():
                if node.core is None or number in self.slow:
                    continue
                if node.persisting is not None:
                    node.complete_persist(self.now_ms)
                    busy = True
                elif node.flushing is not None:
                    node.complete_flush(self.now_ms)
                    busy = True
                elif node.installing is not None:
                    node.complete_install(self.now_ms)
                    busy = True
                self.after(number, quiet=True)
            wire, self.wire = self.wire, []
            for _, to, message in wire:
                self.arrive(to, message, quiet=True)
                busy = True

    def arrive(self, to: int, message: Message, *, quiet: bool = False) -> None:
        core = self.nodes[to].core
        if core is not None:
            self.nodes[to].do(core.step(message, self.now_ms), self.now_ms)
            self.after(to, quiet=quiet)

    def do_persist(self, *nodes: str) -> None:
        for node in nodes:
            self.nodes[int(node)].complete_persist(self.now_ms)
            self.after(int(node))

    def do_flush(self, *nodes: str) -> None:
        for node in nodes:
            self.nodes[int(node)].complete_flush(self.now_ms)
            self.after(int(node))

    def taken(self, link: str | None) -> list[tuple[int, int, Message]]:
        wire = self.wire
        if link is not None:
            a, b = link.split(">")
            wire = [each for each in wire if (str(each[0]), str(each[1])) == (a, b)]
        taken = {id(each) for each in wire}
        self.wire = [each for each in self.wire if id(each) not in taken]
        return wire

    def do_deliver(self, link: str | None = None) -> None:
        for _, to, message in self.taken(link):
            self.arrive(to, message)

    def do_again(self, link: str) -> None:
        taken = self.taken(link)
        self.wire += taken
        for _, to, message in taken:
            self.arrive(to, message)

    def do_drop(self, link: str | None = None) -> None:
        self.taken(link)

    def do_append(self, node: str, count: str = "1") -> None:
        replica = self.nodes[int(node)]
        if replica.core is None or not replica.core.is_leader:
            raise NotLeading(f"node {node} may not append")
        for _ in range(int(count)):
            replica.append(int(node), self.now_ms)
        self.after(int(node))

    def do_resign(self, node: str, preferred: str | None = None) -> None:
        replica = self.nodes[int(node)]
        assert replica.core is not None
        who = None if preferred is None else NodeId(int(preferred))
        replica.do(replica.core.resign(self.now_ms, preferred=who), self.now_ms)
        self.after(int(node))

    def do_snapshot(self, node: str) -> None:
        snapshot = self.nodes[int(node)].take_snapshot(self.now_ms)
        if snapshot is not None:
            self.snapshots[snapshot.id] = snapshot
            self.out.append(f"{node}: snapshot {tuple(snapshot.id)}")
        self.after(int(node))

    def do_unreachable(self, node: str, gone: str) -> None:
        replica = self.nodes[int(node)]
        assert replica.core is not None
        effects = replica.core.on_unreachable(NodeId(int(gone)), self.now_ms)
        replica.do(effects, self.now_ms)
        self.after(int(node))

    def do_disconnected(self, node: str, other: str) -> None:
        replica = self.nodes[int(node)]
        assert replica.core is not None
        effects = replica.core.on_disconnected(NodeId(int(other)), self.now_ms)
        replica.do(effects, self.now_ms)
        self.after(int(node))

    def do_add(self, leader: str, node: str) -> None:
        self.arrive(int(leader), AddVoterRequest(voter=Voter(self.nodes[int(node)].key)))

    def do_remove(self, leader: str, node: str) -> None:
        self.arrive(int(leader), RemoveVoterRequest(key=self.nodes[int(node)].key))

    def do_update(self, leader: str, node: str) -> None:
        voter = Voter(self.nodes[int(node)].key, kraft_version_max=2)
        self.arrive(int(leader), UpdateVoterRequest(voter=voter))

    def do_upgrade(self, leader: str, *words: str) -> None:
        voter = Voter(self.nodes[int(leader)].key)
        self.arrive(
            int(leader), UpgradeVersionRequest(voter=voter, validate_only="validate" in words)
        )

    def do_begin_life(self, node: str, life: str, leader: str) -> None:
        replica = self.nodes[int(node)]
        assert replica.core is not None
        who = NodeId(int(leader.removeprefix("leader=")))
        replica.do(replica.core.begin_life(Epoch(int(life)), who, self.now_ms), self.now_ms)
        self.checked = False
        self.after(int(node))

    def do_leave_life(self, node: str, epoch: str) -> None:
        replica = self.nodes[int(node)]
        assert replica.core is not None
        replica.do(replica.core.leave_life(Epoch(int(epoch)), self.now_ms), self.now_ms)
        self.after(int(node))

    def do_state(self) -> None:
        for number, node in self.nodes.items():
            core = node.core
            if core is None:
                self.out.append(f"{number}: down")
                continue
            log = " ".join(str(entry.epoch) for entry in node.entries)
            self.out.append(
                f"{number}: {core.role.value} epoch={core.epoch} leader={core.leader}"
                f" voters={','.join(map(str, core.voters.node_ids))}"
                f"{' static' if core.voters.is_static else ''}"
                f" log={node.start.offset}:[{log}] durable={core.log.durable}"
                f" high_watermark={core.high_watermark}"
            )

    # ── output ───────────────────────────────────────────────────────────────────────────────

    def after(self, number: int, *, quiet: bool = False) -> None:
        node = self.nodes[number]
        for effects in node.effects:
            self.out += [f"{number}: {line}" for line in describe(effects, quiet=quiet)]
        if self.checked:
            self.checks.after_step(node, {n.key.node_id: n for n in self.nodes.values()})
        node.effects.clear()
        sends, node.outbox = node.outbox, []
        for send in sends:
            lost = (number, send.to) in self.cuts
            if not quiet or isinstance(send.message, VoterChangeResponse):
                fate = " (lost)" if lost else ""
                self.out.append(f"{number}>{send.to}: {say(send.message)}{fate}")
            if not lost and send.to in self.nodes:
                self.wire.append((number, send.to, send.message))


def describe(effects: Effects, *, quiet: bool) -> list[str]:
    lines = []
    if effects.persist is not None and not quiet:
        state = effects.persist
        voted = "nobody" if state.voted_for is None else str(state.voted_for.node_id)
        voted = "the controller" if state.voted_for == CONTROLLER else voted
        life = "" if state.life < 0 else f" life={state.life}"
        lines.append(f"persist epoch={state.epoch} leader={state.leader} voted={voted}{life}")
    if effects.step_down is not None:
        lines.append(f"leads epoch {effects.step_down} no more")
    if effects.truncate is not None:
        lines.append(f"truncate to {effects.truncate}")
    if effects.append is not None and not quiet:
        lines.append(f"append {effects.append.base}..{effects.append.end}")
    if effects.lead is not None:
        granting = ",".join(map(str, effects.lead.granting))
        lines.append(f"leads epoch {effects.lead.epoch} by the votes of {granting}")
    if effects.append_voters is not None:
        lines.append(f"append voters {','.join(map(str, effects.append_voters.node_ids))}")
    if effects.install is not None:
        lines.append(f"install snapshot {tuple(effects.install)}")
    if effects.committed is not None:
        lines.append(f"committed {effects.committed}")
    return lines


def say(message: Message) -> str:
    match message:
        case VoteRequest():
            kind = "would you elect me" if message.pre_vote else "elect me"
            end = message.log_end
            return f"{kind}? epoch={message.epoch} log ends {end.offset} in epoch {end.epoch}"
        case VoteResponse():
            verdict = "yes" if message.granted else "no"
            return f"{verdict}{' in advance' if message.pre_vote else ''} {known(message)}"
        case BeginQuorumEpochRequest():
            return f"I lead epoch {message.epoch}"
        case EndQuorumEpochRequest():
            nodes = ",".join(str(each.node_id) for each in message.successors)
            return f"I lead epoch {message.epoch} no more, next {nodes}"
        case FetchRequest():
            end = message.log_end
            return f"fetch epoch={message.epoch} from {end.offset} after epoch {end.epoch}"
        case FetchResponse():
            what = "nothing"
            if message.snapshot is not None:
                what = f"see snapshot {tuple(message.snapshot)}"
            elif message.diverging is not None:
                what = f"diverging at {message.diverging.offset} of epoch {message.diverging.epoch}"
            elif message.entries is not None:
                what = f"records {message.entries.base}..{message.entries.end}"
            return f"fetched {what} high_watermark={message.high_watermark} {known(message)}"
        case FetchSnapshotRequest():
            return f"fetch snapshot {tuple(message.snapshot)} from byte {message.position}"
        case FetchSnapshotResponse():
            return f"fetched {len(message.data)} of {message.size_bytes} bytes {known(message)}"
        case VoterChangeResponse():
            done = message.error is Error.NONE
            return "voters changed" if done else f"voters not changed: {message.error.value}"
        case _:
            return f"{type(message).__name__} {known(message)}"


def known(message: Message) -> str:
    error = getattr(message, "error", Error.NONE)
    text = f"(epoch={getattr(message, 'epoch', -1)} leader={getattr(message, 'leader', -1)}"
    return f"{text})" if error is Error.NONE else f"{text}, {error.value})"
