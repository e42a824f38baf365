"""Invariants checked after every step of a group of Raft cores.

These are the seven invariants of Kafka's own Raft simulation (MonotonicHighWatermark,
MonotonicEpoch, MajorityReachedHighWatermark, SingleLeader, SnapshotAtLogStart,
LeaderNeverLoadSnapshot, ConsistentCommittedData), and M1 to M4 and M9 of the list in
docs/reliability.md as far as they concern the core."""

from campaigns.raft_node import Entry, RaftNode, apply
from lograft.consensus.messages import VoteResponse
from lograft.consensus.roles import Role
from lograft.consensus.types import HardState, Send, VoterSet
from lograft.model.types import NO_NODE, NO_OFFSET, Epoch, NodeId


class RaftViolation(Exception):
    """An invariant is violated; the message starts with its name."""


def ensure(condition: bool, invariant: str, *facts: object) -> None:
    if not condition:
        raise RaftViolation(f"{invariant}: {' '.join(map(str, facts))}")


class RaftChecks:
    """Checks every node after each of its steps, and remembers the past states."""

    def __init__(self, voters: VoterSet, *, outcomes_only: bool = False) -> None:
        #: Omits the checks of the safeguards themselves, so that only the consequences of a missing
        #: safeguard are detected.
        self._outcomes_only = outcomes_only
        #: All entries that any replica considered committed, and the state after each entry.
        self.committed: list[Entry] = []
        self.states = [0]
        #: The voters that committed the last entry: a majority of them permanently has it on disk.
        #: Two sets if the latest one was appended in the same step: either may have been used.
        self._committed_by: tuple[VoterSet, ...] = (voters,)
        #: Number of committed entries by the epoch in which this was observed.
        self._committed_in: dict[Epoch, int] = {}
        self._leader_of: dict[Epoch, NodeId] = {}
        self._led: set[Epoch] = set()
        self._seen: dict[NodeId, tuple[int, Epoch, int]] = {}
        self._hard_states: dict[NodeId, HardState] = {}

    def after_step(self, node: RaftNode, nodes: dict[NodeId, RaftNode]) -> None:
        if not self._outcomes_only:
            self._hard_state(node)
            self._effects(node)
        node.effects.clear()
        if node.core is not None:
            self._monotonic(node)
            self._leaders(node)
            self._snapshot_at_log_start(node)
            self._committed_data(node)
            if node.core.role is Role.LEADER and not self._outcomes_only:
                self._voter_changes(node)
        self._majority(nodes)

    # ── invariants ───────────────────────────────────────────────────────────────────────────

    def _monotonic(self, node: RaftNode) -> None:
        core = node.core
        assert core is not None
        life, epoch, watermark = self._seen.get(node.key.node_id, (0, Epoch(-1), -1))
        ensure(core.epoch >= epoch, "MonotonicEpoch", node.key.node_id, epoch, core.epoch)
        if life == node.lives:
            ensure(
                core.high_watermark >= watermark,
                "MonotonicHighWatermark",
                node.key.node_id,
                watermark,
                core.high_watermark,
            )
        ensure(core.high_watermark <= node.end, "MonotonicHighWatermark", "beyond the log")
        # An epoch that was never persisted may be lower after a crash.
        lasting = min(core.epoch, node.disk.hard_state.epoch)
        self._seen[node.key.node_id] = (node.lives, lasting, core.high_watermark)

    def _hard_state(self, node: RaftNode) -> None:
        """M2: the persisted state."""
        before = self._hard_states.get(node.key.node_id, HardState())
        now = node.disk.hard_state
        if before is now:
            return
        ensure(now.epoch >= before.epoch, "M2", "persisted epoch moved back", before, now)
        if now.epoch == before.epoch:
            ensure(
                before.voted_for in (None, now.voted_for) or now.leader != NO_NODE,
                "M2",
                "different vote in the same epoch",
                before,
                now,
            )
            ensure(before.leader in (NO_NODE, now.leader), "M2", "different leader", before, now)
        self._hard_states[node.key.node_id] = now

    def _effects(self, node: RaftNode) -> None:
        for effects in node.effects:
            core = node.core
            assert core is not None
            for send in effects.send:
                self._vote_is_on_disk(node, send)
            if effects.install is not None:
                ensure(core.role is not Role.LEADER, "LeaderNeverLoadSnapshot", node.key.node_id)
            if effects.append_voters is not None and core.leadership is not None:
                start = core.leadership.epoch_start
                ensure(
                    NO_OFFSET < start < core.high_watermark,
                    "M9",
                    "voters changed before an entry of the epoch was committed",
                    start,
                    core.high_watermark,
                )

    def _vote_is_on_disk(self, node: RaftNode, send: Send) -> None:
        """M2: a vote that was sent survives any crash."""
        message = send.message
        if not isinstance(message, VoteResponse) or not message.granted or message.pre_vote:
            return
        state = node.disk.hard_state
        if message.epoch == state.epoch and state.leader == NO_NODE:
            ensure(
                state.voted_for is not None and state.voted_for.node_id == send.to,
                "M2",
                "vote sent before it was persisted",
                message,
                state,
            )
        ensure(message.epoch <= state.epoch, "M2", "epoch sent before it was persisted", message)

    def _leaders(self, node: RaftNode) -> None:
        core = node.core
        assert core is not None
        if core.leader != NO_NODE:
            known = self._leader_of.setdefault(core.epoch, core.leader)
            ensure(known == core.leader, "M1 SingleLeader", core.epoch, known, core.leader)
        if core.role is not Role.LEADER or core.epoch in self._led:
            return
        self._led.add(core.epoch)
        known = self._leader_of[core.epoch]
        ensure(known == node.key.node_id, "M1 SingleLeader", core.epoch, known, node.key.node_id)
        # M3: a leader has all entries committed in earlier epochs. (A node that was paused during
        # its election may become leader of an epoch that ended long ago.)
        count = max((c for epoch, c in self._committed_in.items() if epoch < core.epoch), default=0)
        ensure(node.end >= count, "M3 leader completeness", node.key.node_id, node.end, count)
        if count > node.start.offset:
            ensure(
                node.entry_at(count - 1) == self.committed[count - 1],
                "M3 leader completeness",
                node.key.node_id,
                count - 1,
            )

    def _snapshot_at_log_start(self, node: RaftNode) -> None:
        core = node.core
        assert core is not None
        start = core.log.start
        ensure(start == node.start, "SnapshotAtLogStart", start, node.start)
        if start.offset > 0:
            snapshot = node.disk.snapshot
            ensure(snapshot is not None, "SnapshotAtLogStart", "none", start)
            assert snapshot is not None
            ensure(snapshot.id.end_offset >= start.offset, "SnapshotAtLogStart", snapshot, start)
            ensure(
                self.committed[start.offset - 1].epoch == start.epoch, "SnapshotAtLogStart", start
            )

    def _committed_data(self, node: RaftNode) -> None:
        """ConsistentCommittedData, M3 and M4."""
        core = node.core
        assert core is not None
        watermark = core.high_watermark
        if watermark > len(self.committed):
            if core.role is Role.LEADER and not self._outcomes_only:
                ensure(
                    node.entry_at(watermark - 1).epoch == core.epoch,
                    "M3",
                    "committed records of an older epoch by counting replicas",
                    watermark,
                )
            for offset in range(len(self.committed), watermark):
                entry = node.entry_at(offset)
                self.committed.append(entry)
                self.states.append(apply(self.states[-1], entry))
            self._committed_in[core.epoch] = watermark
            self._committed_by = (core.log.voters_at(watermark), core.voters)
        if watermark > node.start.offset:
            last = node.entry_at(watermark - 1)
            ensure(
                last == self.committed[watermark - 1],
                "ConsistentCommittedData",
                node.key.node_id,
                watermark - 1,
                last,
                self.committed[watermark - 1],
            )
        if watermark >= 0:
            ensure(node.applied == watermark, "M4", "applied", node.applied, watermark)
            ensure(node.state == self.states[node.applied], "M4", node.key.node_id, node.applied)

    def _majority(self, nodes: dict[NodeId, RaftNode]) -> None:
        """MajorityReachedHighWatermark: on the disks, not only in memory."""
        count = len(self.committed)
        if count == 0:
            return
        self._committed_by = tuple(
            voters
            for voters in self._committed_by
            if self._count_holders(voters, nodes, count) >= voters.majority
        )
        ensure(bool(self._committed_by), "MajorityReachedHighWatermark", count)

    def _count_holders(self, voters: VoterSet, nodes: dict[NodeId, RaftNode], count: int) -> int:
        holding = 0
        for voter in voters.voters:
            disk = nodes[voter.key.node_id].disk
            position = count - 1 - disk.start.offset
            if position < 0:
                holding += 1
            elif position < len(disk.entries):
                holding += disk.entries[position] == self.committed[-1]
        return holding

    def _voter_changes(self, node: RaftNode) -> None:
        """M9: a leader's log has at most one uncommitted voter set, which differs in one voter."""
        core = node.core
        assert core is not None
        sets = core.log.voter_sets()
        open_ = [offset for offset, _ in sets if offset >= len(self.committed)]
        ensure(len(open_) <= 1, "M9", "two uncommitted voter changes", open_)
        if len(sets) > 1:
            before, after = (set(each.node_ids) for _, each in sets[-2:])
            ensure(len(before ^ after) <= 1, "M9", "more than one voter changed", before, after)

    def check_final_state(self, nodes: dict[NodeId, RaftNode]) -> None:
        """Checks every entry of every log."""
        for node in nodes.values():
            if node.core is None:
                continue
            for offset in range(node.start.offset, max(node.core.high_watermark, 0)):
                ensure(
                    node.entry_at(offset) == self.committed[offset],
                    "ConsistentCommittedData",
                    node.key.node_id,
                    offset,
                )
