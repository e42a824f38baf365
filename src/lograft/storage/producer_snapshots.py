"""Producer state on disk: `<offset>.snapshot` contains the state before the record at that offset.

Kafka writes one batch per producer to the file. Lograft writes one entry for each batch that it
keeps, the latest last. Kafka uses the last entry of a producer id, so it reads the state that it
expects; Lograft restores all five batches.
"""

import struct
from typing import Final

from crc32c import crc32c

from lograft.model.seams import Disk, File
from lograft.model.types import NO_SEQUENCE
from lograft.storage.errors import SnapshotCorrupt
from lograft.storage.producers import BATCHES_KEPT, Producer, ProducerBatch, ProducerStates
from lograft.storage.segment import SNAPSHOT_SUFFIX, offset_name
from lograft.wire.batches import SEQUENCE_MAX

VERSION: Final = 1
_HEAD: Final = struct.Struct(">hIi")
_CRC_START: Final = 6
#: producer id, epoch, last sequence, last offset, offset delta, timestamp, coordinator epoch, first
#: offset of the open transaction
_ENTRY: Final = struct.Struct(">qhiqiqiq")


def encode_snapshot(states: ProducerStates) -> bytes:
    entries = []
    for producer in states.all():
        for batch in producer.batches[:-1]:
            entries.append(_encode_entry(producer, batch, batch.timestamp, -1))
        newest = producer.batches[-1] if producer.batches else None
        if newest is not None and newest.timestamp != producer.last_timestamp:
            # A marker followed: repeat the batch, so that its own timestamp is kept too.
            entries.append(_encode_entry(producer, newest, newest.timestamp, -1))
        entries.append(
            _encode_entry(producer, newest, producer.last_timestamp, producer.transaction_start)
        )
    body = struct.pack(">i", len(entries)) + b"".join(entries)
    return struct.pack(">hI", VERSION, crc32c(body)) + body


def _encode_entry(
    producer: Producer, batch: ProducerBatch | None, timestamp: int, transaction_start: int
) -> bytes:
    last_sequence, last_offset, delta = NO_SEQUENCE, -1, 0
    if batch is not None:
        last_sequence, last_offset = batch.last_sequence, batch.last_offset
        delta = batch.last_offset - batch.base_offset
    return _ENTRY.pack(
        producer.producer_id,
        producer.epoch,
        last_sequence,
        last_offset,
        delta,
        timestamp,
        producer.coordinator_epoch,
        transaction_start,
    )


def decode_snapshot(data: bytes) -> list[Producer]:
    if len(data) < _HEAD.size:
        raise SnapshotCorrupt("a producer snapshot is truncated")
    version, crc, count = _HEAD.unpack_from(data)
    if version != VERSION:
        raise SnapshotCorrupt(f"a producer snapshot has the unsupported version {version}")
    if crc32c(memoryview(data)[_CRC_START:]) != crc:
        raise SnapshotCorrupt("the CRC of a producer snapshot does not match")
    if len(data) != _HEAD.size + count * _ENTRY.size:
        raise SnapshotCorrupt(f"a producer snapshot of {count} entries has {len(data)} bytes")
    producers: dict[int, Producer] = {}
    for entry in _ENTRY.iter_unpack(memoryview(data)[_HEAD.size :]):
        producer_id, epoch, last_sequence, last_offset, delta, timestamp, coordinator, start = entry
        producer = producers.get(producer_id)
        if producer is None or producer.epoch != epoch:
            producer = producers[producer_id] = Producer(producer_id, epoch)
        producer.coordinator_epoch = coordinator
        producer.transaction_start = start
        producer.last_timestamp = timestamp
        known = producer.batches[-1].last_offset if producer.batches else -1
        if last_offset >= 0 and last_offset != known:
            first = last_sequence
            if last_sequence != NO_SEQUENCE:
                first = (last_sequence - delta) & SEQUENCE_MAX
            batch = ProducerBatch(first, last_sequence, last_offset - delta, last_offset, timestamp)
            producer.batches = [*producer.batches, batch][-BATCHES_KEPT:]
    return list(producers.values())


def snapshot_path(directory: str, offset: int) -> str:
    return f"{directory}/{offset_name(offset)}{SNAPSHOT_SUFFIX}"


def write_snapshot(disk: Disk, directory: str, offset: int, states: ProducerStates) -> File:
    """Writes the snapshot; the caller fsyncs it. An incompletely written file is detected by its
    CRC and ignored.

    An existing valid file is not rewritten: it has the same content and may already be durable.
    """
    path = snapshot_path(directory, offset)
    file = disk.open(path, create=True)
    if file.size:
        try:
            decode_snapshot(file.pread(file.size, 0))
            return file
        except SnapshotCorrupt:
            file.truncate(0)
    file.append(encode_snapshot(states))
    return file
