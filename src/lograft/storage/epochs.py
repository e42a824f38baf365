"""The start offset of each leader epoch in a log (`leader-epoch-checkpoint`).

Replicas use it to find the offset where their logs diverge. Above the recovery point, the entries
are derived from the batches; below it, the file is authoritative, and each flush writes it first.
"""

from bisect import bisect_left, bisect_right

from lograft.model.types import NO_EPOCH, NO_OFFSET, Epoch, Offset
from lograft.storage.types import EpochEntry


class LeaderEpochs:
    __slots__ = ("_epochs", "_starts", "changes")

    def __init__(self, entries: list[EpochEntry] | None = None) -> None:
        self._epochs: list[int] = []
        self._starts: list[int] = []
        #: Counts changes, so that the writer knows whether the file is out of date.
        self.changes = 0
        for entry in entries or ():
            self.assign(entry.epoch, entry.start_offset)
        self.changes = 0

    @property
    def latest(self) -> Epoch:
        return Epoch(self._epochs[-1]) if self._epochs else NO_EPOCH

    @property
    def entries(self) -> list[EpochEntry]:
        return [EpochEntry(e, s) for e, s in zip(self._epochs, self._starts, strict=True)]

    def assign(self, epoch: int, start_offset: int) -> None:
        """Sets the epoch of the records from `start_offset` on; ignores epochs that are not
        newer."""
        if epoch < 0 or (self._epochs and epoch <= self._epochs[-1]):
            return
        # A leader that wrote no records leaves an entry with the start offset of the next one.
        while self._starts and self._starts[-1] >= start_offset:
            self._starts.pop()
            self._epochs.pop()
        self._epochs.append(epoch)
        self._starts.append(start_offset)
        self.changes += 1

    def end_of(self, epoch: int, log_end: int) -> tuple[Epoch, Offset]:
        """Returns the largest known epoch up to `epoch`, and its end offset."""
        epochs = self._epochs
        if not epochs or epoch < 0:
            return NO_EPOCH, NO_OFFSET
        if epoch == epochs[-1]:
            return Epoch(epoch), Offset(log_end)
        above = bisect_right(epochs, epoch)
        if above == len(epochs):
            return NO_EPOCH, NO_OFFSET
        found = epochs[above - 1] if above else epoch
        return Epoch(found), Offset(self._starts[above])

    def epoch_of(self, offset: int) -> Epoch:
        slot = bisect_right(self._starts, offset) - 1
        return Epoch(self._epochs[slot]) if slot >= 0 else NO_EPOCH

    def truncate_end(self, end_offset: int) -> None:
        """Removes epochs that begin at or above `end_offset`."""
        keep = bisect_left(self._starts, end_offset)
        if keep < len(self._starts):
            del self._starts[keep:]
            del self._epochs[keep:]
            self.changes += 1

    def truncate_start(self, start_offset: int) -> None:
        """The log now begins at `start_offset`; the epoch of that offset is kept."""
        first = bisect_right(self._starts, start_offset) - 1
        if first >= 0 and self._starts[first] < start_offset:
            del self._starts[:first]
            del self._epochs[:first]
            self._starts[0] = start_offset
            self.changes += 1

    def clear(self) -> None:
        self._epochs.clear()
        self._starts.clear()
        self.changes += 1
