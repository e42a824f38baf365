"""Batches of the metadata log as the core and the driver need them: what came from a leader is
checked, described for the core and decoded; what a follower asks for is read."""

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
    """The `data` of a LogSlice on its way into the log."""

    data: memoryview
    batches: tuple[MetadataBatch, ...]


def slice_of(data: Buffer, *, source: str) -> LogSlice:
    """Of the whole batches; a cut last one is left out. Raises MetadataCorrupt if one is damaged,
    or if they do not follow each other."""
    batches = tuple(read_batches(data, source=source))
    if not batches:
        raise MetadataCorrupt(f"{source}: {len(data)} bytes hold no whole batch")
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
    """Where each epoch begins."""
    epochs: list[tuple[Epoch, Offset]] = []
    for batch in batches:
        if not epochs or epochs[-1][0] != batch.epoch:
            epochs.append((batch.epoch, batch.base_offset))
    return epochs


def log_epochs(log: Log) -> list[tuple[Epoch, Offset]]:
    """Where each epoch of the log begins, as far as the log goes."""
    start = log.log_start_offset
    found: list[tuple[Epoch, Offset]] = []
    for entry in log.epochs.entries:
        if entry.start_offset <= start:
            found = [(Epoch(entry.epoch), start)]
        elif entry.start_offset < log.end_offset:
            found.append((Epoch(entry.epoch), Offset(entry.start_offset)))
    return found if log.end_offset > start else []


def read_bytes(log: Log, offset: Offset, *, bytes_max: int) -> bytes:
    """Bytes, not a slice of the file: a leader that is none any more may cut the file before they
    have left."""
    part = log.read(offset, bytes_max=bytes_max, bound=log.end_offset)
    return b"" if part is None else part.file.pread(part.size, part.position)


def read_snapshot_bytes(
    disk: Disk, folder: str, snapshot_id: SnapshotId, position: int, *, bytes_max: int
) -> bytes:
    return disk.open(f"{folder}/{snapshot_id.file_name}").pread(bytes_max, position)
