"""Finds the newest record of a key, by reading the partition of the key from its end backwards.

Logs can only be read forwards, so this reads windows of offsets: first the last thousand, then
larger and larger windows before it, until one contains the key. Only one fetched slice of a window
is in memory at a time, and only batches that contain the bytes of the key are decoded. The lookup
of a key that has no record reads the whole partition.

Records of aborted transactions are never returned. With read_committed the broker reports the
aborted transactions. With read_uncommitted the control batches do: since windows are read from the
end backwards, the marker that ends a transaction is known before its records are read. Records of
open transactions count with read_uncommitted.
"""

from typing import Final

from lograft.client.consuming.completed_fetches import BATCH_BYTES_MAX
from lograft.client.consuming.offset_lookup import OffsetLookup
from lograft.client.consuming.range_reader import Range, RangeRead, RangeStartDeleted
from lograft.client.consuming.records import decode_records
from lograft.client.consuming.reset_policy import EARLIEST, LATEST
from lograft.client.consuming.settings import ConsumerSettings
from lograft.client.consuming.slices import is_abort_marker, read_batches
from lograft.client.core import ClientCore
from lograft.client.producing.partitioner import murmur2
from lograft.client.types import ConsumerRecord, TopicPartition
from lograft.wire.batches import unpack_records

#: Size of the first window in offsets, growth factor of the next ones, and their maximum.
_WINDOW: Final = 1_000
_GROWTH: Final = 4
_WINDOW_MAX: Final = 1 << 20


async def partition_of_key(
    core: ClientCore[ConsumerSettings], topic: str, key: bytes
) -> TopicPartition:
    """Returns the partition that the default partitioner selects for the key."""
    deadline_ms = core.now_ms() + core.settings.default_api_timeout_ms
    found = await core.metadata.wait_topic(topic, deadline_ms=deadline_ms)
    return TopicPartition(topic, murmur2(key) % len(found.partitions))


async def find_newest_record(
    core: ClientCore[ConsumerSettings], partition: TopicPartition, key: bytes
) -> ConsumerRecord | None:
    """Returns None if no record has the key."""
    deadline_ms = core.now_ms() + core.settings.default_api_timeout_ms
    lookup = OffsetLookup(core)
    end = (await lookup.look_up({partition: LATEST}, deadline_ms))[partition].offset
    log_start = (await lookup.look_up({partition: EARLIEST}, deadline_ms))[partition].offset
    window = _WINDOW
    outcomes: dict[int, bool] = {}
    while end > log_start:
        start = max(end - window, log_start)
        try:
            record = await _find_last(core, Range(partition, start, end), key, outcomes)
        except RangeStartDeleted as error:
            # Retention has deleted the start of the window: read what is left of it.
            log_start = error.log_start
            continue
        if record is not None:
            return record
        end = start
        window = min(window * _GROWTH, _WINDOW_MAX)
    return None


async def _find_last(
    core: ClientCore[ConsumerSettings], window: Range, key: bytes, outcomes: dict[int, bool]
) -> ConsumerRecord | None:
    """Returns the last record of the key in the window. `outcomes` contains, for each producer id,
    whether its first marker after the window aborts; it is updated with the markers of the
    window."""
    read = RangeRead(core, window)
    candidates = _Candidates()
    try:
        async for fetched in read.slices():
            view = memoryview(fetched.slice.data)
            for batch in read_batches(fetched.slice, checks_crcs=core.settings.check_crcs):
                header = batch.header
                if header.is_control:
                    if header.last_offset < window.end:
                        candidates.end_transaction(
                            header.producer_id, is_abort=is_abort_marker(view, *batch)
                        )
                    continue
                batch_bytes = view[batch.position : batch.position + header.size_bytes]
                if unpack_records(batch_bytes, bytes_max=BATCH_BYTES_MAX).find(key) < 0:
                    continue
                for record in decode_records(fetched.slice, batch, BATCH_BYTES_MAX):
                    if record.key == key and record.offset < window.end:
                        candidates.add(
                            record, header.producer_id if header.is_transactional else None
                        )
    finally:
        read.close()
    return candidates.last(outcomes)


class _Candidates:
    """The newest committed record of the key in a window, and the newest one of each transaction
    that is open so far."""

    def __init__(self) -> None:
        self._committed: ConsumerRecord | None = None
        #: By producer id.
        self._open: dict[int, ConsumerRecord] = {}
        #: Whether the first marker in the window aborts, by producer id.
        self._outcomes: dict[int, bool] = {}

    def add(self, record: ConsumerRecord, transactional_producer: int | None) -> None:
        if transactional_producer is None:
            self._committed = record
        else:
            self._open[transactional_producer] = record

    def end_transaction(self, producer_id: int, *, is_abort: bool) -> None:
        self._outcomes.setdefault(producer_id, is_abort)
        record = self._open.pop(producer_id, None)
        if record is not None and not is_abort:
            self._committed = _newer_of(self._committed, record)

    def last(self, outcomes: dict[int, bool]) -> ConsumerRecord | None:
        """`outcomes`: of the transactions that end after the window. Adds those of the window."""
        newest = self._committed
        for producer_id, record in self._open.items():
            if not outcomes.get(producer_id, False):
                newest = _newer_of(newest, record)
        outcomes.update(self._outcomes)
        return newest


def _newer_of(first: ConsumerRecord | None, second: ConsumerRecord) -> ConsumerRecord:
    return second if first is None or second.offset > first.offset else first
