"""Batches of the metadata log: checks, describes and decodes those fetched from a leader, and reads
those that a follower fetches."""

from collections.abc import Sequence
from typing import NamedTuple

from lograft.broker.errors import MetadataCorrupt
from lograft.broker.quorum.metadata_batches import MetadataBatch, read_batches
from lograft.broker.quorum.snapshots import SnapshotId, voters_in
from lograft.consensus.types import LogSlice
from lograft.model.seams import Buffer, Disk
from lograft.model.types import Epoch, Offset
from lograft.storage.log import Log


class Fetched(NamedTuple):
    """The `data` of a fetched LogSlice: the bytes for the log, and the decoded batches."""

    data: memoryview
    batches: tuple[MetadataBatch, ...]


def slice_of(data: Buffer, *, source: str) -> LogSlice:
    """Returns a slice with the complete batches; an incomplete last one is omitted. Raises
    MetadataCorrupt if one is damaged, or if they are not contiguous."""
    batches = tuple(read_batches(data, source=source))
    if not batches:
        raise MetadataCorrupt(f"{source}: {len(data)} bytes without a complete batch")
    end = batches[0].base_offset
    for batch in batches:
        if batch.base_offset != end or batch.last_offset < batch.base_offset:
            raise MetadataCorrupt(f"{source}: a batch at {batch.base_offset}, expected at {end}")
        end = Offset(batch.last_offset + 1)
    size = sum(batch.size_bytes for batch in batches)
    return LogSlice(
        batches[0].base_offset,
        end,
        tuple(epochs_of(batches)),
        tuple(each for batch in batches for each in voters_in(batch.base_offset, batch.control)),
        Fetched(memoryview(data)[:size], batches),
    )


def epochs_of(batches: Sequence[MetadataBatch]) -> list[tuple[Epoch, Offset]]:
    """Returns the start offset of each epoch in the batches."""
    epochs: list[tuple[Epoch, Offset]] = []
    for batch in batches:
        if not epochs or epochs[-1][0] != batch.epoch:
            epochs.append((batch.epoch, batch.base_offset))
    return epochs


def log_epochs(log: Log) -> list[tuple[Epoch, Offset]]:
    """Returns the start offset of each epoch that has records in the log."""
    start = log.log_start_offset
    found: list[tuple[Epoch, Offset]] = []
    for entry in log.epochs.entries:
        if entry.start_offset <= start:
            found = [(Epoch(entry.epoch), start)]
        elif entry.start_offset < log.end_offset:
            found.append((Epoch(entry.epoch), Offset(entry.start_offset)))
    return found if log.end_offset > start else []


def read_bytes(log: Log, offset: Offset, *, bytes_max: int) -> bytes:
    """Returns bytes, not a slice of the file: a leader that steps down may truncate the file before
    the slice is sent."""
    part = log.read(offset, bytes_max=bytes_max, bound=log.end_offset)
    return b"" if part is None else part.file.pread(part.size, part.position)


def read_snapshot_bytes(
    disk: Disk, folder: str, snapshot_id: SnapshotId, position: int, *, bytes_max: int
) -> bytes:
    return disk.open(f"{folder}/{snapshot_id.file_name}").pread(bytes_max, position)
