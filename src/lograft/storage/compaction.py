"""Which records of a batch compaction keeps: the last record of each key, and everything that
readers and producers still need.

- A record is removed if a later record has the same key, or if it has no key.
- A tombstone is kept for `delete.retention.ms` after the first pass that reads it. That pass writes
  the delete horizon into its batch; the first pass after that time removes it.
- Records of aborted transactions are removed immediately. A marker is kept until its transaction
  has no records left, and from then on as long as a tombstone.
- The batch with a producer's last sequence number is kept, without records if necessary. So is the
  last batch of each new segment, so that there is no gap between segments.
"""

import hashlib
from collections.abc import Iterable
from typing import Final

from lograft.storage.markers import read_marker
from lograft.storage.segment import HeaderFields
from lograft.storage.transaction_index import TransactionIndex
from lograft.storage.types import AbortedTransaction
from lograft.wire.batches import (
    CONTROL_FLAG,
    TRANSACTIONAL_FLAG,
    BatchHeader,
    Record,
    build_batch,
    read_header,
    read_records,
)

#: Keys of at least this size are represented by a digest of this size.
DIGEST_BYTES: Final = 16


class LatestOffsets:
    """The last offset of each key in the dirty section of a log, for up to `keys_max` keys."""

    __slots__ = ("_keys_max", "_offsets", "latest")

    def __init__(self, keys_max: int) -> None:
        self._keys_max = keys_max
        self._offsets: dict[bytes, int] = {}
        #: Records after this offset have not been read.
        self.latest = -1

    @property
    def is_full(self) -> bool:
        return len(self._offsets) >= self._keys_max

    def put(self, key: bytes, offset: int) -> None:
        self._offsets[_digest(key)] = offset

    def is_latest(self, key: bytes, offset: int) -> bool:
        return offset >= self._offsets.get(_digest(key), -1)


def _digest(key: bytes) -> bytes:
    if len(key) < DIGEST_BYTES:
        return key
    return hashlib.blake2b(key, digest_size=DIGEST_BYTES).digest()


class TransactionTracker:
    """Follows the transactions while a pass reads the batches in offset order."""

    __slots__ = ("_aborted", "_committing", "_ongoing", "_seen", "kept_aborts")

    def __init__(self, aborted: Iterable[AbortedTransaction]) -> None:
        #: Transactions that have not begun yet, the next one last.
        self._aborted = sorted(aborted, key=lambda t: t.first_offset, reverse=True)
        self._ongoing: dict[int, AbortedTransaction] = {}
        #: Producers whose current aborted transaction had records in this pass.
        self._seen: set[int] = set()
        self._committing: set[int] = set()
        #: The index to which aborted transactions are added that still have a marker or records in
        #: the log.
        self.kept_aborts: TransactionIndex | None = None

    def _begin_until(self, offset: int) -> None:
        while self._aborted and self._aborted[-1].first_offset <= offset:
            aborted = self._aborted.pop()
            self._ongoing[aborted.producer_id] = aborted
            self._seen.discard(aborted.producer_id)

    def is_aborted_data(self, fields: HeaderFields) -> bool:
        self._begin_until(fields[0] + fields[6])
        if not fields[5] & TRANSACTIONAL_FLAG:
            return False
        if fields[9] in self._ongoing:
            self._seen.add(fields[9])
            return True
        self._committing.add(fields[9])
        return False

    def is_spent_marker(self, fields: HeaderFields, batch: bytes) -> bool:
        """Whether this pass read no record of the transaction that the marker ends."""
        self._begin_until(fields[0] + fields[6])
        marker = read_marker(batch)
        if marker is None:
            return fields[12] == 0
        producer_id = fields[9]
        if marker.commit:
            spent = producer_id not in self._committing
            self._committing.discard(producer_id)
            return spent
        aborted = self._ongoing.pop(producer_id, None)
        if aborted is None or producer_id not in self._seen:
            return True
        self._seen.discard(producer_id)
        if self.kept_aborts is not None:
            self.kept_aborts.append(aborted)
        return False

    def pass_by(self, fields: HeaderFields, batch: bytes) -> None:
        """Follows a batch that is copied unchanged because this pass ends before it."""
        if not fields[5] & CONTROL_FLAG:
            self.is_aborted_data(fields)
            return
        self._begin_until(fields[0] + fields[6])
        marker = read_marker(batch)
        if marker is not None and not marker.commit:
            aborted = self._ongoing.pop(fields[9], None)
            self._seen.discard(fields[9])
            if aborted is not None and self.kept_aborts is not None:
                self.kept_aborts.append(aborted)


class BatchFilter:
    """Decides batch by batch; `keep` returns the bytes to keep, or None."""

    __slots__ = (
        "_bytes_max",
        "_delete_retention_ms",
        "_last_offsets",
        "_latest",
        "_marker_epochs",
        "_now_ms",
        "_unsettled",
        "transactions",
    )

    def __init__(
        self,
        latest: LatestOffsets,
        transactions: TransactionTracker,
        *,
        now_ms: int,
        delete_retention_ms: int,
        bytes_max: int,
        last_offsets: dict[int, int],
        unsettled: frozenset[int],
        marker_epochs: dict[int, int],
    ) -> None:
        """The producer state that decides which batches must be kept.

        - `last_offsets`: the last offset of each active producer's last batch.
        - `unsettled`: producers whose last batch may still be truncated, so that an older batch
          would become the last one.
        - `marker_epochs`: the epochs of producers whose state consists of a marker only.
        """
        self._latest = latest
        self.transactions = transactions
        self._now_ms = now_ms
        self._delete_retention_ms = delete_retention_ms
        self._bytes_max = bytes_max
        self._last_offsets = last_offsets
        self._unsettled = unsettled
        self._marker_epochs = marker_epochs

    def keep(self, fields: HeaderFields, batch: bytes, *, is_last: bool) -> bytes | None:
        if fields[0] + fields[6] > self._latest.latest:
            self.transactions.pass_by(fields, batch)
            return batch
        must_stay = is_last or self._is_last_of_producer(fields)
        if fields[5] & CONTROL_FLAG:
            kept = self._keep_control(fields, batch)
        elif self.transactions.is_aborted_data(fields):
            kept = None
        else:
            kept = self._keep_data(batch)
        if kept is None and must_stay:
            return _empty(read_header(batch))
        return kept

    def _is_last_of_producer(self, fields: HeaderFields) -> bool:
        producer_id = fields[9]
        if producer_id < 0:
            return False
        if producer_id in self._unsettled:
            return True
        if producer_id in self._last_offsets:
            return self._last_offsets[producer_id] == fields[0] + fields[6]
        return bool(fields[5] & CONTROL_FLAG) and self._marker_epochs.get(producer_id) == fields[10]

    def _keep_control(self, fields: HeaderFields, batch: bytes) -> bytes | None:
        if fields[9] < 0 or not self.transactions.is_spent_marker(fields, batch):
            return batch
        header = read_header(batch)
        if not header.has_delete_horizon:
            if not header.record_count:
                return None
            records = read_records(batch, bytes_max=self._bytes_max)
            return _rebuild(header, records, self._now_ms + self._delete_retention_ms)
        return None if header.base_timestamp <= self._now_ms else batch

    def _keep_data(self, batch: bytes) -> bytes | None:
        header = read_header(batch)
        records = read_records(batch, bytes_max=self._bytes_max)
        horizon = header.delete_horizon_ms
        expired = horizon is not None and horizon <= self._now_ms
        kept = [record for record in records if self._keeps_record(record, expired)]
        if not kept:
            return None
        if horizon is None and any(record.value is None for record in kept):
            return _rebuild(header, kept, self._now_ms + self._delete_retention_ms)
        return batch if len(kept) == len(records) else _rebuild(header, kept, horizon)

    def _keeps_record(self, record: Record, tombstones_expired: bool) -> bool:
        if record.key is None or not self._latest.is_latest(record.key, record.offset):
            return False
        return record.value is not None or not tombstones_expired


def _rebuild(header: BatchHeader, records: list[Record], delete_horizon_ms: int | None) -> bytes:
    """Returns the batch with fewer records, but with the same offsets and sequence numbers."""
    return build_batch(
        records,
        base_offset=header.base_offset,
        last_offset=header.last_offset,
        leader_epoch=header.leader_epoch,
        producer_id=header.producer_id,
        producer_epoch=header.producer_epoch,
        base_sequence=header.base_sequence,
        compression=header.compression,
        transactional=header.is_transactional,
        control=header.is_control,
        log_append_time_ms=header.max_timestamp if header.timestamp_type_log_append else None,
        delete_horizon_ms=delete_horizon_ms,
    )


def _empty(header: BatchHeader) -> bytes:
    return build_batch(
        [],
        base_offset=header.base_offset,
        last_offset=header.last_offset,
        leader_epoch=header.leader_epoch,
        producer_id=header.producer_id,
        producer_epoch=header.producer_epoch,
        base_sequence=header.base_sequence,
        transactional=header.is_transactional,
        control=header.is_control,
        log_append_time_ms=header.max_timestamp if header.timestamp_type_log_append else None,
        max_timestamp=header.max_timestamp,
    )
