"""The newest record of a key: the partition that its hash says, read from its end backwards.

Logs are read forwards, so windows of offsets are: first the last thousand, then ever larger ones
before it, until one has the key. Of a window only a fetched slice is in memory at a time, and only
batches in which the key's bytes occur are looked at closely. A key that is not there costs a read
of the whole partition.
"""

from typing import Final

from lograft.client.consuming.buffers import BATCH_BYTES_MAX
from lograft.client.consuming.fetched import visible_batches
from lograft.client.consuming.offsets import OffsetLookup
from lograft.client.consuming.ranges import Range, RangeRead, StartLost
from lograft.client.consuming.records import records_of
from lograft.client.consuming.resets import EARLIEST, LATEST
from lograft.client.consuming.settings import ConsumerSettings
from lograft.client.core import ClientCore
from lograft.client.producing.partitioner import murmur2
from lograft.client.types import ConsumerRecord, TopicPartition
from lograft.wire.batches import unpack_records

#: Offsets that are read first, and how much more with every step back: at most.
_WINDOW: Final = 1_000
_GROWTH: Final = 4
_WINDOW_MAX: Final = 1 << 20


async def newest(
    core: ClientCore[ConsumerSettings], topic: str, key: bytes, partition: int | None = None
) -> ConsumerRecord | None:
    """None: no record has the key. `partition`: where it is, if its hash does not say so."""
    deadline_ms = core.now_ms() + core.settings.default_api_timeout_ms
    if partition is None:
        found = await core.metadata.topic(topic, deadline_ms=deadline_ms)
        partition = murmur2(key) % len(found.partitions)
    place = TopicPartition(topic, partition)
    lookup = OffsetLookup(core)
    end = (await lookup.look_up({place: LATEST}, deadline_ms))[place].offset
    log_start = (await lookup.look_up({place: EARLIEST}, deadline_ms))[place].offset
    window = _WINDOW
    while end > log_start:
        start = max(end - window, log_start)
        try:
            record = await _last_in(core, Range(place, start, end), key)
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
    core: ClientCore[ConsumerSettings], wanted: Range, key: bytes
) -> ConsumerRecord | None:
    read = RangeRead(core, wanted)
    last = None
    try:
        async for fetched in read.slices():
            view = memoryview(fetched.slice.data)
            for batch in visible_batches(fetched.slice, checks_crcs=core.settings.check_crcs):
                whole = view[batch.position : batch.position + batch.header.size_bytes]
                if unpack_records(whole, bytes_max=BATCH_BYTES_MAX).find(key) < 0:
                    continue
                for record in records_of(fetched.slice, batch, BATCH_BYTES_MAX):
                    if record.key == key and record.offset < wanted.end:
                        last = record
    finally:
        read.close()
    return last
