"""What a replica in raft mode needs from its shell, and how it looks at its log."""

from collections.abc import Iterable
from typing import Protocol

from lograft.consensus.log_view import LogView
from lograft.consensus.messages import Message
from lograft.consensus.types import HardState, LeaderChange, LogEnd, SnapshotId, VoterSet
from lograft.model.types import NO_EPOCH, Epoch, NodeId, Offset
from lograft.replication.types import ReplicaLog


class RaftPort(Protocol):
    """None of these calls back before it returns."""

    def now_ms(self) -> int: ...

    def persist(self, state: HardState) -> None:
        """Write it to the journal; `on_persisted` when it is on disk."""

    def send(self, to: NodeId, message: Message) -> None:
        """A vote, its answer, the begin or end of an epoch: never a fetch."""

    def append_control(self, change: LeaderChange, voters: VoterSet) -> Offset | None:
        """Append one batch with the leader change and the voters; returns the end of the log. None:
        the disk has failed, and nothing more happens here."""

    def append_voters(self, epoch: Epoch, voters: VoterSet) -> Offset | None: ...

    def request_flush(self) -> None:
        """Everything that is in the log shall be on disk soon."""

    def voters_since(self, offset: Offset) -> Iterable[tuple[Offset, VoterSet]]:
        """The voter sets that the log holds from this offset on."""

    def epochs(self) -> Iterable[tuple[Epoch, Offset]]:
        """Where each epoch begins in the log, as far as it is known."""

    def role_changed(self) -> None:
        """`leader` or `follower` of the replica is another object now, or gone."""

    def fetch_ready(self) -> None:
        """`follower.next_fetch` has something to ask for."""

    def committed(self) -> None:
        """The high watermark moved by something that the partition did not do itself."""

    def last_contact_ms(self, node_id: NodeId) -> int:
        """When the stream from that node last stood for an answer to this partition's fetch, which
        had nothing to bring; negative: it did not."""

    def deadline_changed(self) -> None:
        """`deadline_ms` of the replica is another one now."""


class PartitionLogView(LogView):
    """The log of a data partition: retention takes its beginning away without a snapshot. What lies
    before its start was committed, so it is compared as if it were still there; whoever asks for it
    is refused before the core is asked (`RaftLeader`)."""

    def compare(self, other: LogEnd) -> LogEnd | SnapshotId | None:
        if other.epoch == NO_EPOCH:
            # An empty log: it begins where ours does, or at 0.
            return None if other.offset <= self.end.offset else self.end
        mine = self.end_of(other.epoch)
        if mine.epoch == other.epoch and mine.offset >= other.offset:
            return None
        return mine


def log_tail(log: ReplicaLog) -> LogEnd:
    """The end of the log and the epoch of its last *record*: a leader that wrote nothing has left
    its epoch in the list of epochs, and that must not win elections."""
    end = log.end_offset
    if end > log.log_start_offset:
        return LogEnd(log.epoch_for_offset(end - 1), end)
    # All records were deleted: the epoch of the last one is what the list still knows.
    return LogEnd(log.latest_epoch, end)


def epochs_of_records(
    entries: Iterable[tuple[Epoch, Offset]], *, start: Offset, end: Offset
) -> list[tuple[Epoch, Offset]]:
    """Without epochs that have no record, from `start` on: where the slice from there begins each
    of its epochs."""
    found: list[tuple[Epoch, Offset]] = []
    for epoch, offset in entries:
        if offset >= end:
            break
        if offset <= start:
            found = [(epoch, start)]
        else:
            found.append((epoch, offset))
    return found
