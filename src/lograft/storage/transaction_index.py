"""The aborted transactions of one segment, in the order of their abort markers.

A read_committed consumer receives the producer ids whose records it must ignore, each with its
first offset. Entries of the active segment are in memory until it is rolled or closed.
"""

import struct
from typing import Final

from lograft.model.seams import Disk, File
from lograft.storage.types import AbortedTransaction

#: version, producer id, first offset, last offset, last stable offset
_ENTRY: Final = struct.Struct(">hqqqq")
ENTRY_BYTES: Final = _ENTRY.size


class TransactionIndex:
    __slots__ = ("_disk", "_entries", "_stored", "path")

    def __init__(self, disk: Disk, path: str, *, fresh: bool) -> None:
        self._disk = disk
        self.path = path
        self._entries: list[AbortedTransaction] | None = [] if fresh else None
        #: Number of entries in the file; -1: the file must be rewritten.
        self._stored = -1 if fresh else 0

    @property
    def entries(self) -> list[AbortedTransaction]:
        if self._entries is None:
            raw = self._disk.read(self.path) if self._disk.exists(self.path) else b""
            count = len(raw) // ENTRY_BYTES
            self._entries = [
                AbortedTransaction(*fields[1:])
                for fields in _ENTRY.iter_unpack(raw[: count * ENTRY_BYTES])
            ]
            self._stored = count
        return self._entries

    def append(self, aborted: AbortedTransaction) -> None:
        self.entries.append(aborted)

    def truncate(self, to_offset: int) -> None:
        """Removes transactions whose marker is at or above `to_offset`."""
        entries = self.entries
        while entries and entries[-1].last_offset >= to_offset:
            entries.pop()
        self._stored = -1

    def clear(self) -> None:
        self._entries = []
        self._stored = -1

    def collect(self, start: int, end: int, found: list[AbortedTransaction]) -> bool:
        """Adds the transactions that overlap [start, end); returns True if no later segment has
        any."""
        for aborted in self.entries:
            if aborted.last_offset >= start and aborted.first_offset < end:
                found.append(aborted)
            if aborted.last_stable_offset >= end:
                return True
        return False

    def write(self) -> File | None:
        """Writes new entries to the file; returns None if there are none."""
        entries = self._entries
        if entries is None or len(entries) == self._stored:
            return None
        if not entries and not self._disk.exists(self.path):
            return None
        file = self._disk.open(self.path, create=True)
        kept = max(self._stored, 0)
        file.truncate(kept * ENTRY_BYTES)
        file.append(b"".join([_ENTRY.pack(0, *entry) for entry in entries[kept:]]))
        self._stored = len(entries)
        return file
