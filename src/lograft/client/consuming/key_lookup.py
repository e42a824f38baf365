"""The newest record of a key: the partition that its hash says, read from its end backwards.

Logs are read forwards, so windows of offsets are: first the last thousand, then ever larger ones
before it, until one has the key. Of a window only a fetched slice is in memory at a time, and only
batches in which the key's bytes occur are looked at closely. A key that is not there costs a read
of the whole partition.

A value that was aborted is never found. With read_committed the broker names the aborted
transactions. Otherwise the markers in the log tell: windows are read from the end backwards, so the
marker that ends a transaction is known before its records are. Records of transactions that are
still open count with read_uncommitted.
"""

from typing import Final

from lograft.client.consuming.completed_fetches import BATCH_BYTES_MAX
from lograft.client.consuming.offset_lookup import OffsetLookup
from lograft.client.consuming.range_reader import Range, RangeRead, StartLost
from lograft.client.consuming.records import records_of
from lograft.client.consuming.reset_policy import EARLIEST, LATEST
from lograft.client.consuming.settings import ConsumerSettings
from lograft.client.consuming.slices import is_abort_marker, read_batches
from lograft.client.core import ClientCore
from lograft.client.producing.partitioner import murmur2
from lograft.client.types import ConsumerRecord, TopicPartition
from lograft.wire.batches import unpack_records

#: Offsets that are read first, and how much more with every step back: at most.
_WINDOW: Final = 1_000
_GROWTH: Final = 4
_WINDOW_MAX: Final = 1 << 20


async def partition_of_key(
    core: ClientCore[ConsumerSettings], topic: str, key: bytes
) -> TopicPartition:
    """The partition to which the default partitioner sends the key."""
    deadline_ms = core.now_ms() + core.settings.default_api_timeout_ms
    found = await core.metadata.wait_topic(topic, deadline_ms=deadline_ms)
    return TopicPartition(topic, murmur2(key) % len(found.partitions))


async def newest(
    core: ClientCore[ConsumerSettings], place: TopicPartition, key: bytes
) -> ConsumerRecord | None:
    """None: no record has the key."""
    deadline_ms = core.now_ms() + core.settings.default_api_timeout_ms
    lookup = OffsetLookup(core)
    end = (await lookup.look_up({place: LATEST}, deadline_ms))[place].offset
    log_start = (await lookup.look_up({place: EARLIEST}, deadline_ms))[place].offset
    window = _WINDOW
    endings: dict[int, bool] = {}
    while end > log_start:
        start = max(end - window, log_start)
        try:
            record = await _last_in(core, Range(place, start, end), key, endings)
        except StartLost as lost:
            # Deleted in the meantime: what is left is looked at.
            log_start = lost.log_start
            continue
        if record is not None:
            return record
        end = start
        window = min(window * _GROWTH, _WINDOW_MAX)
    return None


async def _last_in(
    core: ClientCore[ConsumerSettings], wanted: Range, key: bytes, endings: dict[int, bool]
) -> ConsumerRecord | None:
    """`endings`: by producer, whether its next marker behind the window aborts. Gets those of the
    window."""
    read = RangeRead(core, wanted)
    found = _Candidates()
    try:
        async for fetched in read.slices():
            view = memoryview(fetched.slice.data)
            for batch in read_batches(fetched.slice, checks_crcs=core.settings.check_crcs):
                header = batch.header
                if header.is_control:
                    if header.last_offset < wanted.end:
                        found.end_transaction(
                            header.producer_id, is_abort=is_abort_marker(view, *batch)
                        )
                    continue
                whole = view[batch.position : batch.position + header.size_bytes]
                if unpack_records(whole, bytes_max=BATCH_BYTES_MAX).find(key) < 0:
                    continue
                for record in records_of(fetched.slice, batch, BATCH_BYTES_MAX):
                    if record.key == key and record.offset < wanted.end:
                        found.add(record, header.producer_id if header.is_transactional else None)
    finally:
        read.close()
    return found.last(endings)


class _Candidates:
    """The records of the key in a window, as far as they may count: the newest of each
    transaction, and the newest that is final."""

    def __init__(self) -> None:
        self._final: ConsumerRecord | None = None
        self._open: dict[int, ConsumerRecord] = {}
        #: By producer, whether its first marker in the window aborts.
        self._endings: dict[int, bool] = {}

    def add(self, record: ConsumerRecord, transactional_producer: int | None) -> None:
        if transactional_producer is None:
            self._final = record
        else:
            self._open[transactional_producer] = record

    def end_transaction(self, producer_id: int, *, is_abort: bool) -> None:
        self._endings.setdefault(producer_id, is_abort)
        record = self._open.pop(producer_id, None)
        if record is not None and not is_abort:
            self._final = _newer(self._final, record)

    def last(self, endings: dict[int, bool]) -> ConsumerRecord | None:
        """`endings`: of the transactions that go on behind the window; gets those of the window."""
        found = self._final
        for producer_id, record in self._open.items():
            if not endings.get(producer_id, False):
                found = _newer(found, record)
        endings.update(self._endings)
        return found


def _newer(one: ConsumerRecord | None, other: ConsumerRecord) -> ConsumerRecord:
    return other if one is None or other.offset > one.offset else one
