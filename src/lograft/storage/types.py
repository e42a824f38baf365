"""Parameters and results of the operations of a log."""

from dataclasses import dataclass
from enum import IntEnum
from typing import Final, NamedTuple, Protocol

from lograft.model.types import Epoch, Offset

LONG_MAX: Final = 2**63 - 1
START: Final = Offset(0)


class Origin(IntEnum):
    """The origin of a batch; determines which checks apply."""

    CLIENT = 0
    #: A coordinator of this broker: may write transaction markers, and its batches have no sequence
    #: numbers.
    COORDINATOR = 1
    #: The leader of the metadata log: may write its control batches.
    RAFT = 2
    #: Replication: the leader has validated the batches already.
    REPLICATION = 3


class LogConfig(Protocol):
    """The topic settings that a log reads, implemented by `model.settings.topic.TopicConfig`."""

    @property
    def segment_bytes(self) -> int: ...
    @property
    def preallocate(self) -> bool: ...
    @property
    def segment_ms(self) -> int: ...
    @property
    def segment_jitter_ms(self) -> int: ...
    @property
    def segment_index_bytes(self) -> int: ...
    @property
    def index_interval_bytes(self) -> int: ...
    @property
    def max_message_bytes(self) -> int: ...
    @property
    def retention_ms(self) -> int: ...
    @property
    def retention_bytes(self) -> int: ...
    @property
    def retention_hold_max_ms(self) -> int: ...
    @property
    def retention_hold_max_bytes(self) -> int: ...
    @property
    def cleanup_compact(self) -> bool: ...
    @property
    def cleanup_delete(self) -> bool: ...
    @property
    def delete_retention_ms(self) -> int: ...
    @property
    def min_cleanable_dirty_ratio(self) -> float: ...
    @property
    def min_compaction_lag_ms(self) -> int: ...
    @property
    def max_compaction_lag_ms(self) -> int: ...
    @property
    def compression_type(self) -> str: ...
    @property
    def compression_gzip_level(self) -> int: ...
    @property
    def compression_lz4_level(self) -> int: ...
    @property
    def compression_zstd_level(self) -> int: ...
    @property
    def message_timestamp_log_append(self) -> bool: ...
    @property
    def message_timestamp_before_max_ms(self) -> int: ...
    @property
    def message_timestamp_after_max_ms(self) -> int: ...
    @property
    def file_delete_delay_ms(self) -> int: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class FixedLogConfig:
    """A LogConfig with Kafka's defaults, for logs without a topic and for tests."""

    segment_bytes: int = 1 << 30
    preallocate: bool = False
    segment_ms: int = 604_800_000
    segment_jitter_ms: int = 0
    segment_index_bytes: int = 10 << 20
    index_interval_bytes: int = 4096
    max_message_bytes: int = 1_048_588
    retention_ms: int = 604_800_000
    retention_bytes: int = -1
    retention_hold_max_ms: int = 86_400_000
    retention_hold_max_bytes: int = 10 << 30
    cleanup_compact: bool = False
    cleanup_delete: bool = True
    delete_retention_ms: int = 86_400_000
    min_cleanable_dirty_ratio: float = 0.5
    min_compaction_lag_ms: int = 0
    max_compaction_lag_ms: int = LONG_MAX
    compression_type: str = "producer"
    compression_gzip_level: int = -1
    compression_lz4_level: int = 9
    compression_zstd_level: int = 3
    message_timestamp_log_append: bool = False
    message_timestamp_before_max_ms: int = LONG_MAX
    message_timestamp_after_max_ms: int = 3_600_000
    file_delete_delay_ms: int = 60_000


@dataclass(frozen=True, slots=True, kw_only=True)
class RecoveryPlan:
    """What the checkpoints of the log dir say about a log that is about to be opened."""

    #: The node stopped cleanly: the files are complete and need no recovery.
    clean: bool
    #: All records below this offset were fsynced.
    recovery_point: Offset = START
    log_start: Offset = START


class AppendResult(NamedTuple):
    base_offset: Offset
    #: The offset after the last record of this append.
    end_offset: Offset
    #: -1 if the producer's timestamps are used (CreateTime).
    log_append_time_ms: int
    log_start_offset: Offset
    max_timestamp: int
    #: Nothing was written: the batch duplicates one of the producer's last batches, whose offsets
    #: are returned.
    duplicate: bool = False


class TimestampAndOffset(NamedTuple):
    timestamp: int
    offset: Offset
    leader_epoch: Epoch


class AbortedTransaction(NamedTuple):
    producer_id: int
    first_offset: int
    #: Offset of the abort marker.
    last_offset: int
    #: The last stable offset when this transaction ended: it lets a search stop early.
    last_stable_offset: int


class TransactionEnd(NamedTuple):
    """The end of a producer's transaction, which its coordinator requests the partition to write as
    a marker."""

    producer_id: int
    producer_epoch: int
    commit: bool
    coordinator_epoch: int
    #: From version 2 on, the producer epoch is bumped with every transaction, and the marker
    #: carries the next epoch (KIP-890). A late duplicate of a marker can then be distinguished from
    #: the marker of the following transaction.
    transaction_version: int = 0


class EpochEntry(NamedTuple):
    epoch: int
    start_offset: int
