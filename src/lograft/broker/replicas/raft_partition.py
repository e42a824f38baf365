"""A partition that can be in raft mode: connects its replica to this node.

The replica makes the decisions, this object executes them: it appends control batches to the
partition's log, writes votes to the journal of the log dir, sends them to the other voters with
`RaftVotes`, and adds deadlines to the node's queue.
"""

import asyncio
from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING, Final

from lograft.broker.partitions.partition import Partition
from lograft.broker.quorum.metadata_batches import Control, control_batch
from lograft.broker.quorum.snapshots import voters_control
from lograft.broker.replicas.vote_journal import VoteJournal
from lograft.consensus.messages import Message
from lograft.consensus.types import HardState, LeaderChange, ReplicaKey, VoterSet
from lograft.model.errors import DiskFailed
from lograft.model.types import Epoch, NodeId, Offset, TopicIdPartition
from lograft.replication.raft_modes import ModeReplica
from lograft.replication.raft_replica import RaftReplica
from lograft.storage.log import Log
from lograft.wire import record_frames as frames
from lograft.wire.batches import iterate_headers, read_records
from lograft.wire.records import leader_change_message, voters_record

if TYPE_CHECKING:
    from lograft.broker.replicas.raft_partitions import RaftPartitions

#: Number of bytes of the log that are searched for voter sets at a time.
SCAN_BYTES: Final = 1 << 20
#: Limit for the decompressed size of a control batch, which is small.
UNPACKED_BYTES_MAX: Final = 1 << 20
#: How long producers wait for a successor to catch up.
HAND_OVER_MS: Final = 500


class RaftPartition:
    """Implements `RaftPort`."""

    __slots__ = (
        "_carried",
        "_host",
        "_landed",
        "_newest",
        "_postponed",
        "deadline_ms",
        "is_paused",
        "journal",
        "key",
        "modes",
        "partition",
    )

    def __init__(
        self,
        host: "RaftPartitions",
        partition: Partition,
        journal: VoteJournal,
        state: HardState,
    ) -> None:
        self._host = host
        self.partition = partition
        self.journal = journal
        self.key = TopicIdPartition(partition.topic_id, partition.index)
        self.modes: ModeReplica
        #: Its time in the node's queue of deadlines; None if it is not in the queue.
        self.deadline_ms: int | None = None
        #: While the replica is being moved to another log dir: no state is written to a journal,
        #: and completed writes are not reported.
        self.is_paused = False
        #: The newest state in the journal, or to be written to it.
        self._newest = state
        #: While paused: whether a state must be written afterwards, and the state that a completed
        #: write has stored.
        self._postponed = False
        self._landed: HardState | None = None
        #: While paused: the state stored in the journal of the other log dir.
        self._carried: HardState | None = None

    @property
    def log(self) -> Log:
        log = self.partition.log
        assert log is not None, self.partition
        return log

    # RaftPort.

    def now_ms(self) -> int:
        return self._host.now_ms()

    def persist(self, state: HardState) -> None:
        self._newest = state
        if self.is_paused:
            self._postponed = True
        else:
            self._write(state)

    def _write(self, state: HardState) -> None:
        self.journal.write(self.key, state, partial(self._on_persisted, self.journal))

    def _on_persisted(self, journal: VoteJournal, state: HardState) -> None:
        if journal is not self.journal:
            return  # The replica was moved in the meantime; the other journal has the state, too.
        if self.is_paused:
            self._landed = state
            return
        if self.partition.is_deleted or self.partition.offline:
            return
        if self.modes.on_persisted(state):
            self.partition.update_role()

    def send(self, to: NodeId, message: Message) -> None:
        self._host.votes.send(self, to, message)

    def append_control(self, change: LeaderChange, voters: VoterSet) -> Offset | None:
        message = leader_change_message.LeaderChangeMessage(
            version=0,
            leader_id=change.leader,
            voters=[leader_change_message.Voter(voter_id=node) for node in change.voters],
            granting_voters=[
                leader_change_message.Voter(voter_id=node) for node in change.granting
            ],
        )
        controls: list[Control] = [(frames.LEADER_CHANGE, message), voters_control(voters)]
        return self._append(controls, change.epoch)

    def append_voters(self, epoch: Epoch, voters: VoterSet) -> Offset | None:
        return self._append([voters_control(voters)], epoch)

    def _append(self, controls: list[Control], epoch: Epoch) -> Offset | None:
        if self.is_paused:
            # A voter change: the core abandons it after a timeout, and the leader retries.
            return None
        now_ms = self._host.wall_ms()
        batch = control_batch(controls, base_offset=self.log.end_offset, epoch=epoch, now_ms=now_ms)
        try:
            return self.partition.append_control(batch, epoch=epoch, now_ms=now_ms)
        except DiskFailed:
            # The log dir is offline now, and so is the partition.
            return None

    def request_flush(self) -> None:
        self.partition.request_flush()

    def voters_since(self, offset: Offset) -> Iterator[tuple[Offset, VoterSet]]:
        """Yields the voter sets from this offset on; decodes only headers and control batches."""
        log = self.log
        while offset < log.end_offset:
            part = log.read(offset, bytes_max=SCAN_BYTES, bound=log.end_offset, at_least_one=True)
            if part is None:
                return
            data = memoryview(part.file.pread(part.size, part.position))
            before = offset
            for position, header in iterate_headers(data):
                if header.is_control and header.last_offset >= offset:
                    yield from _voters_in(data[position : position + header.size_bytes])
                offset = Offset(header.last_offset + 1)
            assert offset > before, "a read returns at least one complete batch"

    def epochs(self) -> list[tuple[Epoch, Offset]]:
        return [
            (Epoch(entry.epoch), Offset(entry.start_offset)) for entry in self.log.epochs.entries
        ]

    def role_changed(self) -> None:
        """The voters elected a leader, or this replica lost its leader."""
        raft = self.modes.raft
        if raft is not None and not self.modes.is_applying:
            self.partition.on_elected(raft.core.leader, raft.core.epoch)

    def overlay(self) -> None:
        """Reports the elected leader to the partition, which may be newer than the metadata."""
        raft, partition = self.modes.raft, self.partition
        if raft is None:
            partition.on_ready()
            return
        core = raft.core
        is_ready = raft.leader is None or raft.leader.is_serving
        partition.overlay_leader(core.leader, core.epoch, is_ready=is_ready)

    def fetch_ready(self) -> None:
        following = self.partition.following
        if following is not None:
            following.consider()

    def on_committed(self) -> None:
        self.partition.notify_committed()

    def last_contact_ms(self, node_id: NodeId) -> int:
        following = self.partition.following
        if following is None or following.role.leader != node_id:
            return -1
        return following.last_contact_ms

    def deadline_changed(self) -> None:
        self._host.on_deadline(self)

    # Events from the node.

    def hand_over(self, successor: NodeId) -> None:
        """Hands leadership over once the successor is caught up. Producers wait until then; after a
        timeout this leader continues."""
        raft = self.modes.raft
        if raft is None or raft.leader is None or successor == raft.core.me.node_id:
            return
        raft.hand_over(successor)
        if raft.successor is not None:
            self.partition.pause_appends()
            self._host.spawn(self._time_out_hand_over(raft), name="hand-over")

    async def _time_out_hand_over(self, raft: RaftReplica) -> None:
        await asyncio.sleep(HAND_OVER_MS / 1000)
        if raft.successor is not None and self.modes.raft is raft and not self.partition.is_deleted:
            raft.successor = None
            self.partition.notify_committed()

    # Moves to another log dir. The replica stays the same voter, so its votes move, too.

    def pause(self) -> None:
        self.is_paused = True
        self._postponed, self._landed, self._carried = False, None, None
        if self.modes.raft is not None:
            self.modes.raft.is_paused = True

    async def carry_votes(self, journal: VoteJournal) -> None:
        """Stores the votes in the other log dir before the log gets its final name there. That
        state may be newer than the one in this journal, as after a crash right after the write."""
        self._carried = self._newest
        await journal.store(self.key, self._carried)

    def resume(self, journal: VoteJournal | None) -> None:
        """Continues with the journal of the new log dir, or None if the replica was not moved."""
        if journal is not None:
            self.journal = journal
            self._landed = self._carried
        self.is_paused = False
        raft, postponed, landed = self.modes.raft, self._postponed, self._landed
        newest = self._newest
        if landed is not None:
            self._on_persisted(self.journal, landed)
        if postponed and self._newest is newest:
            self._write(newest)
        if raft is not None and raft is self.modes.raft:
            raft.resume()

    def tick(self) -> None:
        raft, partition = self.modes.raft, self.partition
        if raft is not None and not partition.is_deleted and partition.kept_offsets is None:
            raft.tick()


def _voters_in(batch: memoryview) -> Iterator[tuple[Offset, VoterSet]]:
    for record in read_records(batch, bytes_max=UNPACKED_BYTES_MAX):
        number = frames.decode_control_key(record.key or b"")
        if number != frames.KRAFT_VOTERS:
            continue
        message = frames.decode_control_value(number, record.value or b"")
        if isinstance(message, voters_record.VotersRecord):
            yield (
                Offset(record.offset),
                VoterSet.of(
                    ReplicaKey(NodeId(voter.voter_id), voter.voter_directory_id)
                    for voter in message.voters
                ),
            )
