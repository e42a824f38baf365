"""One segment: a log file and its indexes, named after the base offset.

Only the active segment (the last one of a log) is written. The files of the other segments are
opened when they are read.
"""

from bisect import bisect_left
from collections.abc import Iterator
from typing import Final

from lograft.model.seams import Disk, File
from lograft.storage.errors import LogCorrupt
from lograft.storage.index import OffsetIndex, TimeIndex
from lograft.storage.transaction_index import TransactionIndex
from lograft.wire.batches import HEADER_SIZE, LENGTH_OVERHEAD, MAGIC, unpack_header

LOG_SUFFIX: Final = ".log"
INDEX_SUFFIX: Final = ".index"
TIME_INDEX_SUFFIX: Final = ".timeindex"
TRANSACTION_INDEX_SUFFIX: Final = ".txnindex"
SNAPSHOT_SUFFIX: Final = ".snapshot"
DELETED_SUFFIX: Final = ".deleted"
CLEANED_SUFFIX: Final = ".cleaned"
SWAP_SUFFIX: Final = ".swap"

#: Header scans read this many bytes at a time: a few index entries' worth of small batches.
SCAN_BYTES: Final = 8192
#: Number of batches at the end of the active segment whose positions are kept in memory.
RECENT_BATCHES: Final = 512
#: The index of a file of at least this size that has no entries is rebuilt.
UNINDEXED_BYTES_MAX: Final = 1 << 20
OFFSET_MAX: Final = 2**63 - 1
#: The index interval of a rebuilt index if the topic's setting is not available.
REBUILD_INTERVAL_BYTES: Final = 4096

#: base offset, length, leader epoch, magic, crc, attributes, last offset delta, base timestamp, max
#: timestamp, producer id, producer epoch, base sequence, record count
HeaderFields = tuple[int, int, int, int, int, int, int, int, int, int, int, int, int]


def offset_name(offset: int) -> str:
    return f"{offset:020d}"


class Segment:
    __slots__ = (
        "_disk",
        "_file",
        "_is_reserved",
        "_size",
        "base_offset",
        "bytes_since_index",
        "created_ms",
        "first_timestamp",
        "max_timestamp",
        "max_timestamp_offset",
        "offset_index",
        "path",
        "recent_floor",
        "recent_lasts",
        "recent_positions",
        "time_index",
        "transactions",
    )

    def __init__(
        self, disk: Disk, directory: str, base_offset: int, *, fresh: bool, suffix: str = ""
    ) -> None:
        stem = f"{directory}/{offset_name(base_offset)}"
        self._disk = disk
        self.path = stem + LOG_SUFFIX + suffix
        self.base_offset = base_offset
        self._file: File | None = None
        #: Whether more disk space is allocated than the segment may need.
        self._is_reserved = False
        #: -1: not read yet.
        self._size = -1
        self.offset_index = OffsetIndex(
            disk, stem + INDEX_SUFFIX + suffix, base_offset, fresh=fresh
        )
        self.time_index = TimeIndex(
            disk, stem + TIME_INDEX_SUFFIX + suffix, base_offset, fresh=fresh
        )
        self.transactions = TransactionIndex(
            disk, stem + TRANSACTION_INDEX_SUFFIX + suffix, fresh=fresh
        )
        self.bytes_since_index = 0
        #: Largest timestamp so far and the last offset of its batch; None: not read yet.
        self.max_timestamp: int | None = -1 if fresh else None
        self.max_timestamp_offset = base_offset
        #: Timestamp of the first batch, from which `segment.ms` is measured. None: empty, or not
        #: read yet.
        self.first_timestamp: int | None = None
        self.created_ms = 0
        #: Last offsets and positions of the latest batches. All other batches end at or below
        #: `recent_floor`.
        self.recent_floor = base_offset - 1 if fresh else OFFSET_MAX
        self.recent_lasts: list[int] = []
        self.recent_positions: list[int] = []

    def __repr__(self) -> str:
        return f"<Segment {self.path}>"

    @property
    def file(self) -> File:
        file = self._file
        if file is None:
            file = self._file = self._disk.open(self.path)
        return file

    @property
    def size(self) -> int:
        if self._size < 0:
            self._size = (self._file or self._disk.open(self.path)).size
        return self._size

    def create(self, now_ms: int, *, reserve_bytes: int = 0) -> None:
        """Allocates disk space for `reserve_bytes`, as far as the file system can."""
        self._file = self._disk.open(self.path, create=True)
        if self._file.size:
            self._file.truncate(0)
        self._size = 0
        self.created_ms = now_ms
        if reserve_bytes:
            self._is_reserved = self._file.reserve(reserve_bytes)

    def use(self, file: File, size: int) -> None:
        """Sets the file and the size that recovery has found, so that they are not read again."""
        self._file = file
        self._size = size

    def release(self) -> None:
        """Closes the file and frees the indexes; they are opened again when needed."""
        self._file = None
        self.offset_index.release()
        self.time_index.release()

    @property
    def is_open(self) -> bool:
        return self._file is not None

    # ── writing ──────────────────────────────────────────────────────────────────────────────

    def append(
        self, batch: bytes | bytearray | memoryview, last_offset: int, timestamp: int, interval: int
    ) -> None:
        """Writes one batch; `timestamp` is its largest, `interval` the index interval."""
        position = self._size
        written_at = self._file.append(batch)  # type: ignore[union-attr]
        assert written_at == position, (self.path, written_at, position)
        self.note(position, len(batch), last_offset, timestamp, interval)

    def note(
        self, position: int, size_bytes: int, last_offset: int, timestamp: int, interval: int
    ) -> None:
        """Updates size and indexes for a batch at the end of the file. Recovery calls it for every
        batch that it finds, so that appends and recovery build the same index."""
        if self.first_timestamp is None:
            self.first_timestamp = timestamp
        if timestamp > self.max_timestamp:  # type: ignore[operator]
            self.max_timestamp = timestamp
            self.max_timestamp_offset = last_offset
        if self.bytes_since_index > interval:
            self.offset_index.append(last_offset, position)
            self.time_index.append(self.max_timestamp, self.max_timestamp_offset)  # type: ignore[arg-type]
            self.bytes_since_index = 0
        self.bytes_since_index += size_bytes
        self._size = position + size_bytes
        lasts = self.recent_lasts
        lasts.append(last_offset)
        self.recent_positions.append(position)
        if len(lasts) > RECENT_BATCHES:
            half = RECENT_BATCHES // 2
            self.recent_floor = lasts[half - 1]
            del lasts[:half]
            del self.recent_positions[:half]

    def seal(self) -> list[File]:
        """Writes the indexes to their files when the segment is rolled or the log is closed.
        Returns the files to fsync besides the log file."""
        if self._is_reserved:
            self._is_reserved = False
            self.truncate_file(self.size)
        self.load_max_timestamp()
        if self.size and self.max_timestamp is not None and self.max_timestamp >= 0:
            self.time_index.append(self.max_timestamp, self.max_timestamp_offset)
        files = [self.offset_index.write(), self.time_index.write()]
        self.offset_index.release()
        self.time_index.release()
        self.recent_floor = OFFSET_MAX
        self.recent_lasts = []
        self.recent_positions = []
        transactions = self.transactions.write()
        if transactions is not None:
            files.append(transactions)
        return files

    def resume(self) -> int:
        """Reads what appends need to know, starting at the last index entry; returns the offset
        after the last batch. Raises LogCorrupt if the file does not consist of complete batches."""
        if not self.offset_index.is_sane(self.size):
            self.rebuild_indexes()
        last_entry = self.offset_index.last()
        if last_entry is not None and not self._proves(*last_entry):
            self.rebuild_indexes()
            last_entry = self.offset_index.last()
        start = 0 if last_entry is None else last_entry[1]
        last_time = self.time_index.last()
        if start and last_time is None:
            start = 0
        newest, newest_offset = last_time or (-1, self.base_offset)
        end = self.base_offset
        for position, fields in self.scan(start):
            if fields[0] < end:
                raise LogCorrupt(
                    f"{self.path} has a batch with the lower offset {fields[0]} at byte {position}"
                )
            end = fields[0] + fields[6] + 1
            if fields[8] > newest:
                newest, newest_offset = fields[8], end - 1
        self.max_timestamp, self.max_timestamp_offset = newest, newest_offset
        self.bytes_since_index = self.size - start
        self.first_timestamp = None
        self.forget_recent(end)
        return end

    def forget_recent(self, end_offset: int) -> None:
        self.recent_floor = end_offset - 1
        self.recent_lasts.clear()
        self.recent_positions.clear()

    def truncate_file(self, position: int) -> None:
        self.file.truncate(position)
        self._size = position

    # ── reading ──────────────────────────────────────────────────────────────────────────────

    def position_of(self, offset: int) -> int:
        """Returns the position of the first batch that ends at or above `offset`, or the size of
        the file."""
        if offset > self.recent_floor:
            slot = bisect_left(self.recent_lasts, offset)
            return self.recent_positions[slot] if slot < len(self.recent_lasts) else self._size
        if offset <= self.base_offset:
            return 0
        for position, fields in self.scan(self._indexed_position(offset)):
            if fields[0] + fields[6] >= offset:
                return position
        return self.size

    def _indexed_position(self, offset: int) -> int:
        """Returns a position at or before the batch of `offset`, from a verified index entry."""
        entry = self.offset_index.lookup(offset)
        if entry is None:
            if len(self.offset_index) or self.size < UNINDEXED_BYTES_MAX:
                return 0
            entry = (offset, self.size)  # large enough to need an index: rebuild it
        if self._proves(*entry):
            return entry[1]
        self.rebuild_indexes()
        entry = self.offset_index.lookup(offset)
        return 0 if entry is None else entry[1]

    def bound_at(self, position: int) -> int | None:
        """Returns an upper bound of the offsets of the batches before `position`; None if not
        known."""
        entry = self.offset_index.first_at(position)
        if entry is None or entry[1] < position or not self._proves(*entry):
            return None
        return entry[0]

    def _proves(self, offset: int, position: int) -> bool:
        """Whether a batch that ends at `offset` begins at `position`, as an index entry says."""
        if position + HEADER_SIZE > self.size:
            return False
        fields = unpack_header(self.file.pread(HEADER_SIZE, position))
        return bool(fields[3] == MAGIC and fields[0] + fields[6] == offset)

    def rebuild_indexes(self) -> None:
        """Rebuilds both indexes from the log because their files are missing, outdated or
        damaged."""
        self.offset_index.clear()
        self.time_index.clear()
        self.max_timestamp, self.max_timestamp_offset = -1, self.base_offset
        since = 0
        for position, fields in self.scan():
            last_offset = fields[0] + fields[6]
            if fields[8] > self.max_timestamp:
                self.max_timestamp, self.max_timestamp_offset = fields[8], last_offset
            if since > REBUILD_INTERVAL_BYTES:
                self.offset_index.append(last_offset, position)
                self.time_index.append(self.max_timestamp, self.max_timestamp_offset)
                since = 0
            since += fields[1] + LENGTH_OVERHEAD
        if self.max_timestamp >= 0:
            self.time_index.append(self.max_timestamp, self.max_timestamp_offset)
        self.offset_index.write()
        self.time_index.write()

    def scan(self, position: int = 0, end: int | None = None) -> Iterator[tuple[int, HeaderFields]]:
        """Yields (position, header fields) of the batches from `position` on, without checking
        CRCs."""
        file = self.file
        stop = self.size if end is None else end
        chunk, chunk_start = b"", position
        while position < stop:
            at = position - chunk_start
            if at + HEADER_SIZE > len(chunk):
                chunk, chunk_start, at = file.pread(SCAN_BYTES, position), position, 0
                if len(chunk) < HEADER_SIZE:
                    raise LogCorrupt(f"{self.path} ends inside the batch at byte {position}")
            fields = unpack_header(chunk, at)
            size_bytes = fields[1] + LENGTH_OVERHEAD
            if fields[3] != MAGIC or size_bytes < HEADER_SIZE or position + size_bytes > stop:
                raise LogCorrupt(f"{self.path} has no valid batch at byte {position}")
            yield position, fields
            position += size_bytes

    def batch_size_at(self, position: int) -> int:
        raw = self.file.pread(LENGTH_OVERHEAD, position)
        return int.from_bytes(raw[8:12], "big") + LENGTH_OVERHEAD

    def read_batch(self, position: int, size_bytes: int) -> bytes:
        return self.file.pread(size_bytes, position)

    def load_max_timestamp(self) -> int:
        """Returns the largest timestamp from the time index, or from the whole log if the index is
        empty."""
        if self.max_timestamp is None:
            last = self.time_index.last()
            if last is not None:
                self.max_timestamp, self.max_timestamp_offset = last
            else:
                self.max_timestamp = -1
                for _, fields in self.scan():
                    if fields[8] > self.max_timestamp:
                        self.max_timestamp = fields[8]
                        self.max_timestamp_offset = fields[0] + fields[6]
        return self.max_timestamp

    def prove_max_timestamp(self) -> int:
        """Like `load_max_timestamp`, but verifies the timestamp against its batch, and rebuilds the
        indexes if it differs. Retention must not delete a segment because of a single damaged bit
        in an index."""
        was_open = self.is_open
        newest, offset = self.load_max_timestamp(), self.max_timestamp_offset
        if newest >= 0:
            position = self.position_of(offset)
            if (
                position + HEADER_SIZE > self.size
                or unpack_header(self.file.pread(HEADER_SIZE, position))[8] != newest
            ):
                self.rebuild_indexes()
        if not was_open:
            self.release()
        assert self.max_timestamp is not None
        return self.max_timestamp

    def load_first_timestamp(self) -> int | None:
        if self.first_timestamp is None and self.size:
            self.first_timestamp = unpack_header(self.file.pread(HEADER_SIZE, 0))[8]
        return self.first_timestamp

    def paths(self) -> list[str]:
        return [
            self.path,
            self.offset_index.path,
            self.time_index.path,
            self.transactions.path,
        ]
