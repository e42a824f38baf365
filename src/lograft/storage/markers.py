"""Transaction markers: control batches that commit or abort a producer's transaction."""

import struct
from typing import Final

from lograft.model.seams import Buffer
from lograft.model.types import NO_EPOCH, NO_SEQUENCE
from lograft.storage.producers import Marker
from lograft.storage.types import TransactionEnd
from lograft.wire.batches import (
    CODEC_MASK,
    CONTROL_FLAG,
    HEADER,
    HEADER_SIZE,
    LENGTH_OVERHEAD,
    MAGIC,
    TRANSACTIONAL_FLAG,
    patch_crc,
    read_records,
)

ABORT: Final = 0
COMMIT: Final = 1
_KEY: Final = struct.Struct(">hh")
_VALUE: Final = struct.Struct(">hi")
#: Record count and the single record of a marker, as Kafka and Lograft write it: everything except
#: its key and value is constant. Markers of any other form are parsed as general records.
_PLAIN: Final = struct.Struct(">i5shhBhib")
_PLAIN_FORM: Final = (1, bytes([32, 0, 0, 0, 8]), 12, 0)
_PLAIN_START: Final = HEADER_SIZE - 4
_PLAIN_SIZE: Final = _PLAIN_START + _PLAIN.size
#: Position of the attributes byte that contains the codec.
_ATTRIBUTES_LOW: Final = 22
#: Control batches contain one small record.
CONTROL_BYTES_MAX: Final = 1 << 20


def read_marker(batch: Buffer) -> Marker | None:
    """Returns None for other kinds of control batches, and for markers emptied by compaction."""
    if len(batch) == _PLAIN_SIZE and not batch[_ATTRIBUTES_LOW] & CODEC_MASK:
        count, before_key, _, kind, before_value, _, coordinator_epoch, headers = (
            _PLAIN.unpack_from(batch, _PLAIN_START)
        )
        if (count, before_key, before_value, headers) == _PLAIN_FORM and kind in (ABORT, COMMIT):
            return Marker(kind == COMMIT, coordinator_epoch)
    records = read_records(batch, bytes_max=CONTROL_BYTES_MAX)
    if not records or records[0].key is None or len(records[0].key) < _KEY.size:
        return None
    kind = _KEY.unpack_from(records[0].key)[1]
    value = records[0].value
    if kind not in (ABORT, COMMIT) or value is None or len(value) < _VALUE.size:
        return None
    return Marker(kind == COMMIT, _VALUE.unpack_from(value)[1])


def build_marker(end: TransactionEnd, timestamp: int) -> bytearray:
    """Builds the control batch that a coordinator writes to a partition."""
    batch = bytearray(_PLAIN_SIZE)
    count, before_key, before_value, headers = _PLAIN_FORM
    kind = COMMIT if end.commit else ABORT
    HEADER.pack_into(
        batch,
        0,
        0,
        _PLAIN_SIZE - LENGTH_OVERHEAD,
        NO_EPOCH,
        MAGIC,
        0,
        TRANSACTIONAL_FLAG | CONTROL_FLAG,
        0,
        timestamp,
        timestamp,
        end.producer_id,
        end.producer_epoch,
        NO_SEQUENCE,
        count,
    )
    record = (count, before_key, 0, kind, before_value, 0, end.coordinator_epoch, headers)
    _PLAIN.pack_into(batch, _PLAIN_START, *record)
    patch_crc(batch, 0, _PLAIN_SIZE)
    return batch
