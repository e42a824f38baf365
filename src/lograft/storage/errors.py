"""What can be wrong with a batch that somebody wants to append, or with a log on disk."""

from typing import NamedTuple

from lograft.model.errors import LograftError
from lograft.model.types import Offset


class StorageError(LograftError):
    """Root of this room's errors."""


class OffsetOutOfRange(StorageError):
    def __init__(self, offset: int, *, log_start: int, end: int) -> None:
        super().__init__(f"offset {offset} is outside of the log, which holds {log_start} to {end}")
        self.offset = offset
        self.log_start = log_start
        self.end = end


class CorruptBatch(StorageError):
    """The batch's bytes are not what its header or CRC says."""


class MessageTooLarge(StorageError):
    """Above `max.message.bytes`."""


class RecordListTooLarge(StorageError):
    """Above `segment.bytes`: no segment could hold it."""


class RecordError(NamedTuple):
    """Why one record of a batch was rejected."""

    #: Position of the record in its batch.
    batch_index: int
    #: None: that of the batch.
    message: str | None


class RejectedRecords(StorageError):
    """A batch was rejected, possibly because of single records in it. The whole batch is not
    appended; `record_errors` names the records that caused this (KIP-467)."""

    def __init__(self, message: str, record_errors: tuple[RecordError, ...] = ()) -> None:
        super().__init__(message)
        self.record_errors = record_errors


class InvalidRecord(RejectedRecords):
    """The batch is sound, its content is not allowed here."""


class NeedsWorker(StorageError):
    """Nothing is wrong, but looking at the records of this batch would hold up the loop: a worker
    must (`Log.batch_check`), before it is appended."""


class UnsupportedBatchFormat(StorageError):
    """Magic 0 or 1: formats that Kafka 4 refuses too."""


class UnsupportedCompression(StorageError):
    """A codec that does not exist."""


class InvalidTimestamp(RejectedRecords):
    """Outside of `message.timestamp.before.max.ms` / `message.timestamp.after.max.ms`."""


class OutOfOrderSequence(StorageError):
    """An idempotent producer's batch is missing before this one, or it repeats one that is older
    than those we remember."""


class ProducerFenced(StorageError):
    """A newer incarnation of this producer has written."""


class CoordinatorFenced(StorageError):
    """A transaction marker from a coordinator that has been replaced."""


class InvalidTransactionState(StorageError):
    """A plain batch of a producer that has a transaction open here."""


class UnknownProducer(StorageError):
    """Nothing is known of this producer id here."""


class UnexpectedOffset(StorageError):
    """A follower was handed a batch that does not continue its log."""


class BeginsInsideBatch(UnexpectedOffset):
    """An empty log begins inside the batch: its leader's log does, since records were deleted. The
    log must begin anew at `base` (which blocks) before it can take the batch."""

    def __init__(self, base: Offset, log_start: Offset) -> None:
        super().__init__(f"a batch at {base} for an empty log that begins at {log_start}")
        self.base = base


class LogClosed(StorageError):
    """The log was closed or its directory deleted."""


class LogCorrupt(StorageError):
    """The files of a log cannot be what this node wrote. Nothing is changed on disk: the log must
    be taken offline and repaired from elsewhere."""


class BatchCorruptBelowRecoveryPoint(LogCorrupt):
    """A damaged batch among those that were fsynced: not a torn tail, so it is never cut away."""

    def __init__(self, path: str, *, position: int, offset: int, recovery_point: int) -> None:
        super().__init__(
            f"{path} is damaged at byte {position} (offset {offset} or later), below the recovery"
            f" point {recovery_point}: the log stays untouched and offline; restore it from a"
            " replica or a backup, or delete its folder to give up its records"
        )
        self.path = path
        self.position = position
        self.offset = offset
        self.recovery_point = recovery_point


class InvalidCheckpoint(LogCorrupt):
    """A checkpoint, meta.properties or partition.metadata file does not read."""


class SnapshotCorrupt(StorageError):
    """A producer snapshot does not read; the state is rebuilt from an older one and the log."""
