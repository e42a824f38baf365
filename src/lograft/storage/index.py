"""The sparse indexes of a segment: offset → position, and timestamp → offset.

They are derived from the log. Entries of the active segment are in memory and are written to the
file when the segment is rolled or closed; after an unclean shutdown the index is rebuilt from the
log. A file is read only when a lookup needs it. An entry is (offset of the batch's last record,
position of the batch), so a reader can verify an entry against the batch at its position.
"""

import struct
import sys
from array import array
from bisect import bisect_left, bisect_right
from typing import Final

from lograft.model.seams import Disk, File

OFFSET_ENTRY_BYTES: Final = 8
TIME_ENTRY_BYTES: Final = 12
_OFFSET_ENTRY: Final = struct.Struct(">II")
_TIME_ENTRY: Final = struct.Struct(">qI")
_SWAP: Final = sys.byteorder == "little"


def _read_entries(disk: Disk, path: str, entry_bytes: int) -> bytes:
    """Returns the file's bytes without the trailing zeros of indexes that Kafka has
    preallocated."""
    raw = disk.read(path) if disk.exists(path) else b""
    used = len(raw.rstrip(b"\0"))
    return raw[: -(-used // entry_bytes) * entry_bytes]


class OffsetIndex:
    __slots__ = ("_disk", "_offsets", "_positions", "_stored", "base_offset", "path")

    def __init__(self, disk: Disk, path: str, base_offset: int, *, fresh: bool) -> None:
        """With `fresh`, an existing file is ignored."""
        self._disk = disk
        self.path = path
        self.base_offset = base_offset
        #: Number of entries that are only in the file; 0 once they are loaded, -1 if not known yet.
        self._stored = 0 if fresh else -1
        self._offsets = array("I")
        self._positions = array("I")

    def append(self, offset: int, position: int) -> None:
        self._offsets.append(offset - self.base_offset)
        self._positions.append(position)

    def __len__(self) -> int:
        """Counts the entries in memory, plus those of the file if it was read before."""
        return max(self._stored, 0) + len(self._offsets)

    def lookup(self, offset: int) -> tuple[int, int] | None:
        """Returns the last entry at or below `offset`, as (offset, position)."""
        relative = offset - self.base_offset
        offsets = self._offsets
        if self._stored and (not offsets or relative < offsets[0]):
            self.load()
        slot = bisect_right(self._offsets, relative) - 1
        if slot < 0:
            return None
        return self._offsets[slot] + self.base_offset, self._positions[slot]

    def first_at(self, position: int) -> tuple[int, int] | None:
        """Returns the first entry at or after a position in the log, as (offset, position)."""
        if self._stored and (not self._positions or position < self._positions[0]):
            self.load()
        slot = bisect_left(self._positions, position)
        if slot == len(self._positions):
            return None
        return self._offsets[slot] + self.base_offset, self._positions[slot]

    def last(self) -> tuple[int, int] | None:
        """Returns the last entry, read from the end of the file without loading the file."""
        if self._offsets:
            return self._offsets[-1] + self.base_offset, self._positions[-1]
        if self._stored == 0 or not self._disk.exists(self.path):
            return None
        file = self._disk.open(self.path)
        self._stored = file.size // OFFSET_ENTRY_BYTES
        if self._stored == 0:
            return None
        raw = file.pread(OFFSET_ENTRY_BYTES, (self._stored - 1) * OFFSET_ENTRY_BYTES)
        relative, position = _OFFSET_ENTRY.unpack(raw)
        return relative + self.base_offset, position

    def load(self) -> None:
        """Reads the file's entries into memory, before the entries that are in memory."""
        raw = _read_entries(self._disk, self.path, OFFSET_ENTRY_BYTES)
        count = len(raw) // OFFSET_ENTRY_BYTES
        if self._stored > 0:
            count = min(count, self._stored)
        fields = array("I", raw[: count * OFFSET_ENTRY_BYTES])
        if _SWAP:
            fields.byteswap()
        self._offsets = fields[::2] + self._offsets
        self._positions = fields[1::2] + self._positions
        self._stored = 0

    def is_sane(self, log_size: int) -> bool:
        """Whether the last entry is plausible; preallocated index files of Kafka end in zeros."""
        last = self.last()
        if last is None:
            return True
        return last[0] > self.base_offset and 0 < last[1] < log_size

    def truncate(self, to_offset: int) -> None:
        """Removes the entries at or above `to_offset`."""
        if self._stored:
            self.load()
        keep = bisect_right(self._offsets, to_offset - 1 - self.base_offset)
        del self._offsets[keep:]
        del self._positions[keep:]

    def clear(self) -> None:
        self._stored = 0
        del self._offsets[:]
        del self._positions[:]

    def write(self) -> File:
        """Writes all entries to the file; the caller fsyncs it."""
        file = self._disk.open(self.path, create=True)
        kept = max(self._stored, 0) * OFFSET_ENTRY_BYTES if self._stored >= 0 else file.size
        if file.size != kept:
            file.truncate(kept)
        if self._offsets:
            fields = array("I", bytes(OFFSET_ENTRY_BYTES * len(self._offsets)))
            fields[::2] = self._offsets
            fields[1::2] = self._positions
            if _SWAP:
                fields.byteswap()
            file.append(fields.tobytes())
        return file

    def release(self) -> None:
        """Frees the memory after `write`; the file is read again when needed."""
        self._stored = -1
        self._offsets = array("I")
        self._positions = array("I")

    @property
    def is_loaded(self) -> bool:
        return len(self._offsets) > 0


class TimeIndex:
    __slots__ = ("_disk", "_offsets", "_stored", "_timestamps", "base_offset", "path")

    def __init__(self, disk: Disk, path: str, base_offset: int, *, fresh: bool) -> None:
        self._disk = disk
        self.path = path
        self.base_offset = base_offset
        self._stored = 0 if fresh else -1
        self._timestamps = array("q")
        self._offsets = array("I")

    def append(self, timestamp: int, offset: int) -> None:
        """Adds an entry only if `timestamp` is larger than all earlier ones."""
        last = self.last()
        if last is None or timestamp > last[0]:
            self._timestamps.append(timestamp)
            self._offsets.append(offset - self.base_offset)

    def __len__(self) -> int:
        return max(self._stored, 0) + len(self._offsets)

    def lookup(self, timestamp: int) -> int:
        """Returns an offset below which every record has a timestamp lower than `timestamp`."""
        timestamps = self._timestamps
        if self._stored and (not timestamps or timestamp <= timestamps[0]):
            self.load()
        # The batch of this entry may contain `timestamp`, and so may all batches after the entry
        # before it.
        slot = bisect_right(self._timestamps, timestamp - 1) - 1
        return self.base_offset if slot < 0 else self._offsets[slot] + self.base_offset

    def last(self) -> tuple[int, int] | None:
        """Returns (largest timestamp, offset) without loading the file."""
        if self._timestamps:
            return self._timestamps[-1], self._offsets[-1] + self.base_offset
        if self._stored == 0 or not self._disk.exists(self.path):
            return None
        file = self._disk.open(self.path)
        self._stored = file.size // TIME_ENTRY_BYTES
        if self._stored == 0:
            return None
        raw = file.pread(TIME_ENTRY_BYTES, (self._stored - 1) * TIME_ENTRY_BYTES)
        timestamp, relative = _TIME_ENTRY.unpack(raw)
        return timestamp, relative + self.base_offset

    def load(self) -> None:
        raw = _read_entries(self._disk, self.path, TIME_ENTRY_BYTES)
        count = len(raw) // TIME_ENTRY_BYTES
        if self._stored > 0:
            count = min(count, self._stored)
        timestamps, offsets = array("q"), array("I")
        for timestamp, relative in _TIME_ENTRY.iter_unpack(raw[: count * TIME_ENTRY_BYTES]):
            timestamps.append(timestamp)
            offsets.append(relative)
        self._timestamps = timestamps + self._timestamps
        self._offsets = offsets + self._offsets
        self._stored = 0

    def truncate(self, to_offset: int) -> None:
        if self._stored:
            self.load()
        keep = bisect_right(self._offsets, to_offset - 1 - self.base_offset)
        del self._timestamps[keep:]
        del self._offsets[keep:]

    def clear(self) -> None:
        self._stored = 0
        del self._timestamps[:]
        del self._offsets[:]

    def write(self) -> File:
        file = self._disk.open(self.path, create=True)
        kept = max(self._stored, 0) * TIME_ENTRY_BYTES if self._stored >= 0 else file.size
        if file.size != kept:
            file.truncate(kept)
        if self._timestamps:
            pack = _TIME_ENTRY.pack
            pairs = zip(self._timestamps, self._offsets, strict=True)
            file.append(b"".join([pack(timestamp, relative) for timestamp, relative in pairs]))
        return file

    def release(self) -> None:
        self._stored = -1
        self._timestamps = array("q")
        self._offsets = array("I")

    @property
    def is_loaded(self) -> bool:
        return len(self._timestamps) > 0
