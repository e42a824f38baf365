"""Model of a log: a plain list of batches.

Everything that `storage/` keeps in indexes, caches and snapshots is derived here by iterating over
the list. Slow, and deliberately independent of the code of `storage/`."""

import struct
from bisect import bisect_right
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from lograft.wire.batches import read_header, read_records

BATCHES_KEPT: Final = 5
UNPACKED_BYTES_MAX: Final = 1 << 20
ABORT_MARKER: Final = 0
COMMIT_MARKER: Final = 1
MARKER_KEY: Final = struct.Struct(">hh")
MARKER_VALUE: Final = struct.Struct(">hi")


class ModelBatch(NamedTuple):
    base_offset: int
    last_offset: int
    data: bytes
    leader_epoch: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    is_transactional: bool
    #: True for a commit marker, False for an abort marker, None for other batches.
    marker: bool | None
    #: (offset, timestamp) of each record.
    timestamps: tuple[tuple[int, int], ...]

    @property
    def end(self) -> int:
        return self.last_offset + 1


def model_batch(data: bytes) -> ModelBatch:
    """Parses a batch as stored in the log, with its actual offset and epoch."""
    header = read_header(data)
    records = read_records(data, bytes_max=UNPACKED_BYTES_MAX)
    marker = None
    if header.is_control and records[0].key is not None:
        marker = MARKER_KEY.unpack(records[0].key)[1] == COMMIT_MARKER
    return ModelBatch(
        header.base_offset,
        header.last_offset,
        data,
        header.leader_epoch,
        header.producer_id,
        header.producer_epoch,
        header.base_sequence,
        header.is_transactional,
        marker,
        tuple((record.offset, record.timestamp) for record in records),
    )


@dataclass(slots=True)
class ModelProducer:
    epoch: int
    #: The last five batches of this epoch.
    batches: list[ModelBatch] = field(default_factory=list)
    transaction_start: int = -1

    @property
    def next_sequence(self) -> int:
        if not self.batches:
            return 0
        last = self.batches[-1]
        return last.base_sequence + last.last_offset - last.base_offset + 1


class Aborted(NamedTuple):
    producer_id: int
    first_offset: int
    last_offset: int


@dataclass(slots=True)
class Replay:
    """Producer state derived from all batches."""

    producers: dict[int, ModelProducer] = field(default_factory=dict)
    aborted: list[Aborted] = field(default_factory=list)

    @classmethod
    def of(cls, batches: Iterable[ModelBatch]) -> "Replay":
        replay = cls()
        for batch in batches:
            replay.apply(batch)
        return replay

    def apply(self, batch: ModelBatch) -> None:
        if batch.producer_id < 0:
            return
        producer = self.producers.get(batch.producer_id)
        if producer is None:
            producer = self.producers[batch.producer_id] = ModelProducer(batch.producer_epoch)
        if producer.epoch != batch.producer_epoch:
            producer.epoch = batch.producer_epoch
            producer.batches.clear()
        if batch.marker is None:
            producer.batches = [*producer.batches, batch][-BATCHES_KEPT:]
            if batch.is_transactional and producer.transaction_start < 0:
                producer.transaction_start = batch.base_offset
        elif producer.transaction_start >= 0:
            if not batch.marker:
                self.aborted.append(
                    Aborted(batch.producer_id, producer.transaction_start, batch.base_offset)
                )
            producer.transaction_start = -1


class ModelLog:
    """The contents of a log. Batches below the log start offset are kept: they are not readable,
    but part of the producer state."""

    __slots__ = ("_bases", "batches", "start")

    def __init__(self, start: int = 0, batches: Iterable[ModelBatch] = ()) -> None:
        #: Offset of the first batch; above zero after the log was fully truncated.
        self.start = start
        self.batches: list[ModelBatch] = []
        self._bases: list[int] = []
        for batch in batches:
            self.append(batch)

    @property
    def end(self) -> int:
        return self.batches[-1].end if self.batches else self.start

    def append(self, batch: ModelBatch) -> None:
        assert batch.base_offset == self.end, (batch.base_offset, self.end)
        self.batches.append(batch)
        self._bases.append(batch.base_offset)

    def truncate(self, to: int) -> "ModelLog":
        """Returns the log truncated to `to`; a batch that contains `to` is removed completely."""
        return ModelLog(self.start, [batch for batch in self.batches if batch.end <= to])

    def batch_at(self, offset: int) -> ModelBatch | None:
        slot = bisect_right(self._bases, offset) - 1
        if slot < 0 or self.batches[slot].last_offset < offset:
            return None
        return self.batches[slot]

    def visible(self, log_start: int) -> list[ModelBatch]:
        return [batch for batch in self.batches if batch.last_offset >= log_start]

    def first_at_or_after(self, timestamp: int, log_start: int) -> tuple[int, int] | None:
        """Returns (offset, timestamp) of the first record with this timestamp or a later one."""
        for batch in self.visible(log_start):
            for offset, stamp in batch.timestamps:
                if stamp >= timestamp and offset >= log_start:
                    return offset, stamp
        return None
