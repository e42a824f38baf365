"""A replica's log as a list: the operations that the cores use, with crashes that lose its tail."""

from typing import NamedTuple

from lograft.model.types import NO_EPOCH, Epoch, Offset
from lograft.storage.epochs import LeaderEpochs


class Entry(NamedTuple):
    epoch: int
    uid: int


class ListLog:
    def __init__(self) -> None:
        self.log_start_offset = Offset(0)
        self.durable_offset = Offset(0)
        self.entries: list[Entry] = []
        self.epochs = LeaderEpochs()

    @property
    def end_offset(self) -> Offset:
        return Offset(self.log_start_offset + len(self.entries))

    @property
    def latest_epoch(self) -> Epoch:
        return self.epochs.latest

    def epoch_end(self, epoch: int) -> tuple[Epoch, Offset]:
        return self.epochs.end_of(epoch, self.end_offset)

    def epoch_for_offset(self, offset: int) -> Epoch:
        return self.epochs.epoch_of(offset)

    def read(self, offset: int, end: int) -> list[Entry]:
        start = self.log_start_offset
        assert offset >= start, (offset, start)
        return self.entries[offset - start : end - start]

    def assign_epoch(self, epoch: int) -> None:
        self.epochs.assign(epoch, self.end_offset)

    def append(self, offset: int, entries: list[Entry]) -> None:
        assert offset == self.end_offset, f"records at {offset} for a log that ends at {self!r}"
        for entry in entries:
            if entry.epoch != self.epochs.latest:
                self.epochs.assign(entry.epoch, self.end_offset)
            self.entries.append(entry)

    def truncate(self, to: int) -> None:
        if to < self.log_start_offset:
            self.restart_at(to)
            return
        del self.entries[to - self.log_start_offset :]
        self.epochs.truncate_end(to)
        self.durable_offset = Offset(min(self.durable_offset, to))

    def restart_at(self, offset: int) -> None:
        self.entries.clear()
        self.epochs.clear()
        self.log_start_offset = self.durable_offset = Offset(offset)

    def advance_start(self, to: int) -> None:
        del self.entries[: to - self.log_start_offset]
        self.log_start_offset = Offset(to)
        self.durable_offset = Offset(max(self.durable_offset, to))
        self.epochs.truncate_start(to)

    def flush(self) -> None:
        self.durable_offset = self.end_offset

    def reopen(self) -> None:
        """Epochs without a record are not on disk."""
        self.epochs.clear()
        latest = int(NO_EPOCH)
        for number, entry in enumerate(self.entries):
            if entry.epoch > latest:
                latest = entry.epoch
                self.epochs.assign(latest, self.log_start_offset + number)

    def __repr__(self) -> str:
        return f"<{self.log_start_offset}..{self.end_offset} epoch {self.latest_epoch}>"
