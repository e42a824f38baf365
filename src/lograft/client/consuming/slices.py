"""The batches of one fetched slice of a partition that a reader is to see.

What is left out: batches that lie before the wanted offset (the slice begins with the batch that
holds it), control batches, and batches of transactions that were aborted. A last batch that is cut
short is left for the next fetch.
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

_CONTROL_KEY: Final = Struct(">hh")
#: Of a control record's key, behind the record's own length, attributes and deltas.
_ABORT: Final = 0


class BatchCorrupt(LograftError):
    """A batch is not as its writer made it. It can be fetched again, or skipped by seeking past
    `last_offset`.

        try:
            await consumer.poll(timeout_ms=0)
        except BatchCorrupt as error:
            print(error)
    """

    def __init__(self, topic: str, partition: int, header: BatchHeader) -> None:
        super().__init__(
            f"{topic}-{partition}: the batch of offsets {header.base_offset} to"
            f" {header.last_offset} has a bad CRC; seek to {header.last_offset + 1} to skip it"
        )
        self.last_offset = header.last_offset


class Aborted(NamedTuple):
    """A transaction that was aborted, as a fetch answer names it."""

    producer_id: int
    first_offset: int


class Batch(NamedTuple):
    position: int
    header: BatchHeader


class Slice:
    """What was fetched of one partition."""

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
        #: Where the reader is; records before it are not for it.
        self.first_offset = first_offset
        self.data = data
        #: None: the reader takes uncommitted records too.
        self.aborted = aborted
        self._batches: Sequence[Batch] | None = None

    @property
    def batches(self) -> Sequence[Batch]:
        """The whole ones, in order. Their headers are read once. Raises MalformedBatch."""
        if self._batches is None:
            self._batches = [Batch(*one) for one in iterate_headers(self.data)]
        return self._batches

    def read_from(self, offset: int) -> "Slice":
        """The same for a reader that is further."""
        rest = Slice(self.topic, self.partition, offset, self.data, self.aborted)
        rest._batches = self._batches
        return rest


def visible_batches(fetched: Slice, *, checks_crcs: bool) -> Iterator[Batch]:
    """Raises BatchCorrupt when it comes to a batch that is not what it was; MalformedBatch."""
    for batch in read_batches(fetched, checks_crcs=checks_crcs):
        if not batch.header.is_control:
            yield batch


def read_batches(fetched: Slice, *, checks_crcs: bool) -> Iterator[Batch]:
    """The same with the control batches."""
    data, first_offset = fetched.data, fetched.first_offset
    aborts = _Aborts(fetched.aborted) if fetched.aborted else None
    for batch in fetched.batches:
        position, header = batch
        if checks_crcs and not check_crc(data, position, header.size_bytes):
            raise BatchCorrupt(fetched.topic, fetched.partition, header)
        is_aborted = aborts is not None and aborts.covers(data, position, header)
        if header.last_offset >= first_offset and not is_aborted:
            yield batch


class _Aborts:
    """Follows the aborted transactions through a slice: from their first offset to their marker."""

    def __init__(self, aborted: Sequence[Aborted]) -> None:
        self._coming = sorted(aborted, key=lambda one: one.first_offset, reverse=True)
        self._open: set[int] = set()

    def covers(self, data: Buffer, position: int, header: BatchHeader) -> bool:
        coming = self._coming
        while coming and coming[-1].first_offset <= header.last_offset:
            self._open.add(coming.pop().producer_id)
        if not header.is_transactional or header.producer_id not in self._open:
            return False
        if header.is_control:
            if is_abort_marker(data, position, header):
                self._open.discard(header.producer_id)
            return False
        return True


def is_abort_marker(data: Buffer, position: int, header: BatchHeader) -> bool:
    """A control batch holds one record that is never compressed: length, attributes, two deltas and
    the key's length take a byte each, as markers are as small as that."""
    begin = position + HEADER_SIZE + 5
    if begin + _CONTROL_KEY.size > position + header.size_bytes:
        raise MalformedBatch("a control batch without a key")
    _, kind = _CONTROL_KEY.unpack_from(data, begin)
    return bool(kind == _ABORT)
