"""The interface between a replica in raft mode and its shell, and the Raft core's view of the
log."""

from collections.abc import Iterable
from typing import Protocol

from lograft.consensus.log_view import LogView
from lograft.consensus.messages import Message
from lograft.consensus.types import HardState, LeaderChange, LogEnd, SnapshotId, VoterSet
from lograft.model.types import NO_EPOCH, Epoch, NodeId, Offset
from lograft.replication.types import ReplicaLog


class RaftPort(Protocol):
    """The shell of a replica in raft mode. None of these methods calls back before it returns."""

    def now_ms(self) -> int: ...

    def persist(self, state: HardState) -> None:
        """Writes the state to the vote journal, and calls `on_persisted` when it is on disk."""

    def send(self, to: NodeId, message: Message) -> None:
        """Sends a message of an election or about its result; never a fetch."""

    def append_control(self, change: LeaderChange, voters: VoterSet) -> Offset | None:
        """Appends one batch with the leader change and the voters. Returns the log end offset, or
        None if the disk has failed and the replica is about to be closed."""

    def append_voters(self, epoch: Epoch, voters: VoterSet) -> Offset | None: ...

    def request_flush(self) -> None:
        """Requests an fsync of everything in the log."""

    def voters_since(self, offset: Offset) -> Iterable[tuple[Offset, VoterSet]]:
        """Returns the voter sets in the log from this offset on."""

    def epochs(self) -> Iterable[tuple[Epoch, Offset]]:
        """Returns the known start offsets of the epochs in the log."""

    def role_changed(self) -> None:
        """`leader` or `follower` of the replica was replaced or removed."""

    def fetch_ready(self) -> None:
        """`follower.next_fetch` has a fetch to send."""

    def on_committed(self) -> None:
        """The high watermark advanced by an event that did not come from the partition itself."""

    def last_contact_ms(self, node_id: NodeId) -> int:
        """Returns when the fetch stream from that node last implied an empty response to this
        partition's fetch; negative if it never did."""

    def deadline_changed(self) -> None:
        """`deadline_ms` of the replica changed."""


class PartitionLogView(LogView):
    """View of the log of a data partition, whose start retention deletes without a snapshot. The
    deleted records were committed, so they are compared as if they still existed; fetches of them
    are rejected before they reach the core (`RaftLeader`)."""

    def compare(self, other: LogEnd) -> LogEnd | SnapshotId | None:
        if other.epoch == NO_EPOCH:
            # An empty log, which starts where ours does, or at 0.
            return None if other.offset <= self.end.offset else self.end
        mine = self.end_of(other.epoch)
        if mine.epoch == other.epoch and mine.offset >= other.offset:
            return None
        return mine


def log_tail(log: ReplicaLog) -> LogEnd:
    """Returns the end of the log and the epoch of its last *record*. A leader that wrote nothing
    left its epoch in the epoch cache, and an epoch without records must not win elections."""
    end = log.end_offset
    if end > log.log_start_offset:
        return LogEnd(log.epoch_for_offset(end - 1), end)
    # All records were deleted: the epoch cache still has the epoch of the last one.
    return LogEnd(log.latest_epoch, end)


def epochs_of_records(
    entries: Iterable[tuple[Epoch, Offset]], *, start: Offset, end: Offset
) -> list[tuple[Epoch, Offset]]:
    """Returns the epochs that have records between `start` and `end`, with their start offsets in
    this slice."""
    found: list[tuple[Epoch, Offset]] = []
    for epoch, offset in entries:
        if offset >= end:
            break
        if offset <= start:
            found = [(epoch, start)]
        else:
            found.append((epoch, offset))
    return found
