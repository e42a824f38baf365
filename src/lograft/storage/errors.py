"""Errors of batches that are rejected, and of logs on disk that are damaged."""

from typing import NamedTuple

from lograft.model.errors import LograftError
from lograft.model.types import Offset


class StorageError(LograftError):
    """Base class of this room's errors."""


class OffsetOutOfRange(StorageError):
    def __init__(self, offset: int, *, log_start: int, end: int) -> None:
        super().__init__(f"offset {offset} is outside of the log, which has {log_start} to {end}")
        self.offset = offset
        self.log_start = log_start
        self.end = end


class CorruptBatch(StorageError):
    """The bytes of the batch do not match its header or its CRC."""


class MessageTooLarge(StorageError):
    """The batch is larger than `max.message.bytes`."""


class RecordListTooLarge(StorageError):
    """The batch is larger than `segment.bytes`, so no segment can hold it."""


class RecordError(NamedTuple):
    """Why one record of a batch was rejected."""

    #: Position of the record in its batch.
    batch_index: int
    #: None: the message of the batch applies.
    message: str | None


class RejectedRecords(StorageError):
    """A batch was rejected, possibly because of single records in it. No record of the batch is
    appended; `record_errors` names the records that caused the rejection (KIP-467)."""

    def __init__(self, message: str, record_errors: tuple[RecordError, ...] = ()) -> None:
        super().__init__(message)
        self.record_errors = record_errors


class InvalidRecord(RejectedRecords):
    """The batch is intact, but its content is not allowed in this topic."""


class NeedsWorker(StorageError):
    """Not a rejection: validating the records of this batch would block the event loop for too
    long. A worker must validate them (`Log.validation_job`) before the batch is appended."""


class UnsupportedBatchFormat(StorageError):
    """Magic 0 or 1, which Kafka 4 rejects too."""


class UnsupportedCompression(StorageError):
    """The batch names a compression codec that does not exist."""


class InvalidTimestamp(RejectedRecords):
    """A timestamp is outside of `message.timestamp.before.max.ms` /
    `message.timestamp.after.max.ms`."""


class OutOfOrderSequence(StorageError):
    """A batch of an idempotent producer is missing before this one, or this one duplicates a batch
    older than those whose sequence numbers are kept."""


class ProducerFenced(StorageError):
    """A newer instance of this producer has written with a higher epoch."""


class CoordinatorFenced(StorageError):
    """The transaction marker comes from a coordinator that has been replaced."""


class InvalidTransactionState(StorageError):
    """A non-transactional batch of a producer that has an open transaction in this partition."""


class UnknownProducer(StorageError):
    """The partition has no state of this producer id."""


class UnexpectedOffset(StorageError):
    """A batch passed to a follower does not continue its log."""


class BeginsInsideBatch(UnexpectedOffset):
    """The first batch for an empty log begins below the log start, because the leader's log start
    is inside this batch (DeleteRecords). The log must be restarted at `base`, which blocks, before
    it can append the batch."""

    def __init__(self, base: Offset, log_start: Offset) -> None:
        super().__init__(f"batch at {base} does not fit an empty log that starts at {log_start}")
        self.base = base


class LogClosed(StorageError):
    """The log was closed or its directory deleted."""


class LogCorrupt(StorageError):
    """The files of a log differ from what this node wrote. Nothing on disk is changed: the log must
    be taken offline and restored from a replica or a backup."""


class BatchCorruptBelowRecoveryPoint(LogCorrupt):
    """A damaged batch below the recovery point. It was fsynced, so it is not an incomplete write at
    the end of the log, and it is never truncated."""

    def __init__(self, path: str, *, position: int, offset: int, recovery_point: int) -> None:
        super().__init__(
            f"{path} is damaged at byte {position} (offset {offset} or later), below the recovery"
            f" point {recovery_point}. The log stays offline and was not changed. Restore it from a"
            " replica or a backup, or delete its directory to discard its records."
        )
        self.path = path
        self.position = position
        self.offset = offset
        self.recovery_point = recovery_point


class InvalidCheckpoint(LogCorrupt):
    """A checkpoint, meta.properties or partition.metadata file cannot be parsed."""


class SnapshotCorrupt(StorageError):
    """A producer snapshot cannot be parsed; the state is rebuilt from an older snapshot and the
    log."""
