"""The Raft core's view of the log: offsets, epochs and voter sets, but no records."""

from bisect import bisect_right
from collections.abc import Iterable

from lograft.consensus.types import LogEnd, LogSlice, SnapshotId, VoterSet
from lograft.model.types import NO_EPOCH, NO_OFFSET, Epoch, Offset


class LogView:
    """Invariants: start <= durable <= end once `durable` is known; epochs increase with offsets;
    two logs with the same epoch at an offset are equal up to that offset."""

    __slots__ = ("_epochs", "_starts", "_voters", "durable", "end", "snapshot", "start")

    def __init__(
        self,
        end: LogEnd,
        voters: VoterSet,
        *,
        epochs: Iterable[tuple[Epoch, Offset]] = (),
        voter_history: Iterable[tuple[Offset, VoterSet]] = (),
        start: LogEnd | None = None,
        snapshot: SnapshotId | None = None,
    ) -> None:
        self.end = end
        #: The first offset of the log, and the epoch of the record before it.
        self.start = LogEnd(NO_EPOCH, Offset(0)) if start is None else start
        #: Everything below is on disk. Unknown at first: records found after a restart may be in
        #: the page cache only.
        self.durable = NO_OFFSET
        #: The newest snapshot. It covers everything before `start`, and possibly more.
        self.snapshot = snapshot
        self._epochs: list[Epoch] = []
        self._starts: list[Offset] = []
        for epoch, offset in epochs:
            self._add_epoch(epoch, offset)
        if not self._epochs and end.offset > self.start.offset:
            self._add_epoch(end.epoch, self.start.offset)
        #: Voter sets by offset; the first is that of the snapshot or the configuration.
        self._voters: list[tuple[Offset, VoterSet]] = [(NO_OFFSET, voters), *voter_history]

    # ── voters ───────────────────────────────────────────────────────────────────────────────

    @property
    def voters(self) -> VoterSet:
        """The newest set in the log applies, committed or not."""
        return self._voters[-1][1]

    @property
    def voters_offset(self) -> Offset:
        return self._voters[-1][0]

    def voter_sets(self) -> tuple[tuple[Offset, VoterSet], ...]:
        return tuple(self._voters)

    def voters_at(self, end: Offset) -> VoterSet:
        """Returns the set that a snapshot up to `end` must contain."""
        return next(voters for offset, voters in reversed(self._voters) if offset < end)

    # ── appending and truncating ─────────────────────────────────────────────────────────────

    def grow(self, epoch: Epoch, end: Offset, voters: VoterSet | None = None) -> None:
        """Records of one epoch were appended; `voters` is the set in the last of them, if any."""
        assert end > self.end.offset, (end, self.end)
        self._add_epoch(epoch, self.end.offset)
        if voters is not None:
            self._voters.append((Offset(end - 1), voters))
        self.end = LogEnd(epoch, end)

    def append(self, entries: LogSlice) -> None:
        assert entries.base == self.end.offset < entries.end, (entries, self.end)
        for epoch, offset in entries.epochs:
            self._add_epoch(epoch, offset)
        self._voters.extend(entries.voters)
        self.end = LogEnd(entries.epochs[-1][0], entries.end)

    def truncate(self, to: Offset) -> None:
        assert self.start.offset <= to < self.end.offset, (self.start, to, self.end)
        while self._starts and self._starts[-1] >= to:
            self._starts.pop()
            self._epochs.pop()
        while self._voters[-1][0] >= to:
            self._voters.pop()
        self.end = LogEnd(self._epochs[-1] if self._epochs else self.start.epoch, to)
        self.durable = min(self.durable, to)

    def advance_start(self, start: LogEnd) -> None:
        """The records below were deleted; a snapshot covers them."""
        assert self.start.offset <= start.offset <= self.end.offset, (self.start, start, self.end)
        assert self.snapshot is not None, "a log starts at 0 or at the end of a snapshot"
        assert start.offset <= self.snapshot.end_offset, (start, self.snapshot)
        self.start = start
        if start.offset == self.end.offset:
            self._starts, self._epochs = [], []
        keep = max(bisect_right(self._starts, start.offset) - 1, 0)
        del self._starts[:keep], self._epochs[:keep]
        if self._starts and self._starts[0] < start.offset:
            self._starts[0] = start.offset
        while len(self._voters) > 1 and self._voters[1][0] < start.offset:
            del self._voters[0]

    def replace(self, snapshot: SnapshotId, voters: VoterSet) -> None:
        """A snapshot replaced the log, which is now empty and starts at the snapshot's end."""
        self.snapshot = snapshot
        self.start = self.end = LogEnd(snapshot.epoch, snapshot.end_offset)
        self.durable = snapshot.end_offset
        self._epochs, self._starts = [], []
        self._voters = [(NO_OFFSET, voters)]

    def _add_epoch(self, epoch: Epoch, offset: Offset) -> None:
        if self._epochs and self._epochs[-1] == epoch:
            return
        assert not self._epochs or (self._epochs[-1] < epoch and self._starts[-1] < offset)
        self._epochs.append(epoch)
        self._starts.append(offset)

    # ── comparing ────────────────────────────────────────────────────────────────────────────

    def end_of(self, epoch: Epoch) -> LogEnd:
        """Returns the end of the newest epoch in this log that is not above `epoch`."""
        after = bisect_right(self._epochs, epoch)
        if after == 0:
            return self.start
        end = self._starts[after] if after < len(self._starts) else self.end.offset
        return LogEnd(self._epochs[after - 1], end)

    def compare(self, other: LogEnd) -> LogEnd | SnapshotId | None:
        """Returns None if a log with this end is a prefix of ours. If it diverges, returns where
        our log ends in the last epoch that both can have. If it ends before our log starts,
        returns the snapshot to fetch."""
        start = self.start
        if other.offset <= start.offset:
            if other.offset == 0 and start.offset == 0:
                return None
            if other.offset == start.offset and other.epoch == start.epoch:
                return None
            return self._require_snapshot()
        if other.epoch < start.epoch:
            return self._require_snapshot()
        mine = self.end_of(other.epoch)
        if mine.epoch == other.epoch and mine.offset >= other.offset:
            return None
        return mine

    def _require_snapshot(self) -> SnapshotId:
        assert self.snapshot is not None, "a log starts at 0 or at the end of a snapshot"
        return self.snapshot

    def start_of(self, epoch: Epoch) -> Offset:
        """Returns the start offset of an epoch; NO_OFFSET if the log has no record of it."""
        try:
            return self._starts[self._epochs.index(epoch)]
        except ValueError:
            return NO_OFFSET

    def truncation_for(self, diverging: LogEnd) -> Offset:
        """Returns the offset up to which this log can agree with a leader's log in which the epoch
        ends at `diverging`."""
        mine = self.end_of(diverging.epoch)
        if mine.epoch == diverging.epoch:
            return min(mine.offset, diverging.offset)
        return mine.offset
