"""Transaction markers: control batches that say how a producer's transaction ended."""

import struct
from typing import Final

from lograft.model.seams import Buffer
from lograft.storage.producers import Marker
from lograft.storage.types import TransactionEnd
from lograft.wire.batches import Record, build_batch, read_records

ABORT: Final = 0
COMMIT: Final = 1
_KEY: Final = struct.Struct(">hh")
_VALUE: Final = struct.Struct(">hi")
#: Control batches hold one small record each.
CONTROL_BYTES_MAX: Final = 1 << 20


def read_marker(batch: Buffer) -> Marker | None:
    """None for control batches of other kinds, and for those that compaction has emptied."""
    records = read_records(batch, bytes_max=CONTROL_BYTES_MAX)
    if not records or records[0].key is None or len(records[0].key) < _KEY.size:
        return None
    kind = _KEY.unpack_from(records[0].key)[1]
    value = records[0].value
    if kind not in (ABORT, COMMIT) or value is None or len(value) < _VALUE.size:
        return None
    return Marker(kind == COMMIT, _VALUE.unpack_from(value)[1])


def build_marker(end: TransactionEnd, timestamp: int) -> bytearray:
    """The control batch that a coordinator has a partition append."""
    key, value = marker_key(commit=end.commit), marker_value(end.coordinator_epoch)
    return bytearray(
        build_batch(
            [Record(0, timestamp, key, value)],
            producer_id=end.producer_id,
            producer_epoch=end.producer_epoch,
            transactional=True,
            control=True,
        )
    )


def marker_key(*, commit: bool) -> bytes:
    return _KEY.pack(0, COMMIT if commit else ABORT)


def marker_value(coordinator_epoch: int) -> bytes:
    return _VALUE.pack(0, coordinator_epoch)
