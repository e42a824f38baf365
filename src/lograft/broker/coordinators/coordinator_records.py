"""Records of an internal topic as batches of its log, and back."""

import logging
from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple, TypeAlias

from lograft.coordination.types import Record
from lograft.model.seams import Buffer
from lograft.model.types import NO_PRODUCER_EPOCH, NO_PRODUCER_ID, Offset
from lograft.storage.markers import read_marker
from lograft.wire import batches
from lograft.wire.batches import build_batch, iterate_headers, iterate_records
from lograft.wire.record_frames import (
    Coordinator,
    UnknownRecord,
    decode_coordinator_key,
    decode_coordinator_value,
    encode_coordinator_key,
    encode_coordinator_value,
)

LOGGER: Final = logging.getLogger(__name__)
#: Maximum size of a decompressed batch. Coordinators write batches of at most a megabyte.
BATCH_BYTES_MAX: Final = 100 << 20


class RecordEntry(NamedTuple):
    """A record of the log."""

    record: Record
    offset: Offset
    #: -1 if the record is not part of a transaction.
    producer_id: int
    producer_epoch: int


class MarkerEntry(NamedTuple):
    """A transaction marker."""

    producer_id: int
    producer_epoch: int
    committed: bool


class BatchEnd(NamedTuple):
    """The end of a batch: all of its entries came before this."""

    next_offset: Offset


LogEntry: TypeAlias = RecordEntry | MarkerEntry | BatchEnd


def records_batch(
    records: Sequence[Record],
    *,
    wall_ms: int,
    producer: tuple[int, int] | None = None,
    compression: int = 0,
) -> bytearray:
    producer_id, producer_epoch = producer or (NO_PRODUCER_ID, NO_PRODUCER_EPOCH)
    return bytearray(
        build_batch(
            [
                batches.Record(
                    index,
                    wall_ms,
                    encode_coordinator_key(key),
                    None if value is None else encode_coordinator_value(value, version),
                )
                for index, (key, value, version) in enumerate(records)
            ],
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            transactional=producer is not None,
            compression=compression,
        )
    )


def read_log(topic: Coordinator, data: Buffer) -> Iterator[LogEntry]:
    """Yields the entries of the complete batches in a slice of the log. Skips records of unknown
    types and versions, as Kafka does after a downgrade."""
    view = memoryview(data)
    for position, header in iterate_headers(view):
        batch = view[position : position + header.size_bytes]
        if header.is_control:
            marker = read_marker(batch)
            if marker is not None:
                yield MarkerEntry(header.producer_id, header.producer_epoch, marker.commit)
        else:
            producer_id, producer_epoch = header.producer_id, header.producer_epoch
            if not header.is_transactional:
                producer_id, producer_epoch = NO_PRODUCER_ID, NO_PRODUCER_EPOCH
            for raw in iterate_records(batch, bytes_max=BATCH_BYTES_MAX):
                record = _decode(topic, raw)
                if record is not None:
                    yield RecordEntry(record, Offset(raw.offset), producer_id, producer_epoch)
        yield BatchEnd(Offset(header.last_offset + 1))


def _decode(topic: Coordinator, raw: batches.Record) -> Record | None:
    if raw.key is None:
        LOGGER.warning("skipping a record without a key at offset %d", raw.offset)
        return None
    key = decode_coordinator_key(topic, raw.key)
    if isinstance(key, UnknownRecord):
        LOGGER.warning("skipping a record of unknown type %d at offset %d", key.type, raw.offset)
        return None
    if raw.value is None:
        return Record(key, None)
    value = decode_coordinator_value(topic, key, raw.value)
    if isinstance(value, UnknownRecord):
        kind = type(key).__name__
        LOGGER.warning("skipping a record of unknown version %d of %s", value.version, kind)
        return None
    return Record(key, value)
