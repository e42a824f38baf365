"""Slices: the record batches that one Fetch response contains for one partition.

A reader of a slice does not see batches before its offset (the slice starts with the batch that
contains the offset), control batches, and batches of aborted transactions. An incomplete batch at
the end is ignored; the next fetch returns it.
"""

from collections.abc import Iterator, Sequence
from struct import Struct
from typing import Final, NamedTuple

from lograft.model.errors import LograftError
from lograft.model.seams import Buffer
from lograft.wire.batches import (
    HEADER_SIZE,
    BatchHeader,
    MalformedBatch,
    check_crc,
    iterate_headers,
)

#: Version and type at the start of a control record's key.
_CONTROL_KEY: Final = Struct(">hh")
_ABORT: Final = 0


class BatchCorrupt(LograftError):
    """A record batch does not match its CRC. It can be fetched again, or skipped with a seek past
    `last_offset`.

        try:
            await consumer.poll(timeout_ms=0)
        except BatchCorrupt as error:
            print(error)
    """

    def __init__(self, topic: str, partition: int, header: BatchHeader) -> None:
        super().__init__(
            f"{topic}-{partition}: the batch with offsets {header.base_offset} to"
            f" {header.last_offset} has a bad CRC; seek to {header.last_offset + 1} to skip it"
        )
        self.last_offset = header.last_offset


class Aborted(NamedTuple):
    """An aborted transaction in a Fetch response."""

    producer_id: int
    first_offset: int


class Batch(NamedTuple):
    position: int
    header: BatchHeader


class Slice:
    __slots__ = ("_batches", "aborted", "data", "first_offset", "partition", "topic")

    def __init__(
        self,
        topic: str,
        partition: int,
        first_offset: int,
        data: Buffer,
        aborted: Sequence[Aborted] | None = None,
    ) -> None:
        self.topic = topic
        self.partition = partition
        #: The reader's position; records before it are skipped.
        self.first_offset = first_offset
        self.data = data
        #: None with read_uncommitted.
        self.aborted = aborted
        self._batches: Sequence[Batch] | None = None

    @property
    def batches(self) -> Sequence[Batch]:
        """The complete batches, in order. Their headers are parsed once. Raises MalformedBatch."""
        if self._batches is None:
            self._batches = [Batch(*located) for located in iterate_headers(self.data)]
        return self._batches

    def read_from(self, offset: int) -> "Slice":
        """Returns the same slice for a reader at a later offset."""
        rest = Slice(self.topic, self.partition, offset, self.data, self.aborted)
        rest._batches = self._batches
        return rest


def visible_batches(fetched: Slice, *, checks_crcs: bool) -> Iterator[Batch]:
    """Yields the batches that the reader sees. Raises BatchCorrupt at a batch whose CRC does not
    match, and MalformedBatch."""
    for batch in read_batches(fetched, checks_crcs=checks_crcs):
        if not batch.header.is_control:
            yield batch


def read_batches(fetched: Slice, *, checks_crcs: bool) -> Iterator[Batch]:
    """Like `visible_batches`, but includes control batches."""
    data, first_offset = fetched.data, fetched.first_offset
    aborted = _AbortedTransactions(fetched.aborted) if fetched.aborted else None
    for batch in fetched.batches:
        position, header = batch
        if checks_crcs and not check_crc(data, position, header.size_bytes):
            raise BatchCorrupt(fetched.topic, fetched.partition, header)
        is_aborted = aborted is not None and aborted.contains(data, position, header)
        if header.last_offset >= first_offset and not is_aborted:
            yield batch


class _AbortedTransactions:
    """Tracks the aborted transactions of a slice from their first offset to their abort marker."""

    def __init__(self, aborted: Sequence[Aborted]) -> None:
        self._pending = sorted(aborted, key=lambda entry: entry.first_offset, reverse=True)
        self._open_producer_ids: set[int] = set()

    def contains(self, data: Buffer, position: int, header: BatchHeader) -> bool:
        """Whether the batch belongs to an aborted transaction. Called for each batch in order."""
        pending = self._pending
        while pending and pending[-1].first_offset <= header.last_offset:
            self._open_producer_ids.add(pending.pop().producer_id)
        if not header.is_transactional or header.producer_id not in self._open_producer_ids:
            return False
        if header.is_control:
            if is_abort_marker(data, position, header):
                self._open_producer_ids.discard(header.producer_id)
            return False
        return True


def is_abort_marker(data: Buffer, position: int, header: BatchHeader) -> bool:
    """Whether a control batch is an abort marker. It contains one record, which is never
    compressed; markers are so small that the fields before the key (length, attributes, two deltas
    and the length of the key) take one byte each."""
    start = position + HEADER_SIZE + 5
    if start + _CONTROL_KEY.size > position + header.size_bytes:
        raise MalformedBatch("a control batch has no key")
    _, marker_type = _CONTROL_KEY.unpack_from(data, start)
    return bool(marker_type == _ABORT)
