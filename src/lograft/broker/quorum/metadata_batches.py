"""Conversion between records (metadata and control) and batches of the metadata log and its
snapshots."""

from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple, TypeAlias

from lograft.broker.errors import MetadataCorrupt
from lograft.metadata.record_versions import version_of
from lograft.model.seams import Buffer
from lograft.model.types import Epoch, Offset
from lograft.wire.batches import Record, build_batch, check_crc, iterate_headers, read_records
from lograft.wire.errors import MalformedMessage
from lograft.wire.message import Message
from lograft.wire.record_frames import (
    UnknownRecord,
    decode_control_key,
    decode_control_value,
    decode_record,
    encode_control_key,
    encode_control_value,
    encode_record,
)

#: Maximum size of a batch of the metadata log (Kafka's internal.metadata.max.batch.size).
BATCH_BYTES_MAX: Final = 8 << 20
#: Limit for the decompressed size of a batch: a log written by Kafka may contain compressed ones.
_UNPACKED_BYTES_MAX: Final = 64 << 20

#: Type and content of a control record.
Control: TypeAlias = tuple[int, Message]


class MetadataBatch(NamedTuple):
    base_offset: Offset
    last_offset: Offset
    epoch: Epoch
    timestamp_ms: int
    size_bytes: int
    #: Either `records` or `control` is empty.
    records: tuple[Message, ...]
    control: tuple[Control, ...]


def records_batch(
    records: Sequence[Message], *, base_offset: int, epoch: int, now_ms: int
) -> bytearray:
    values = [
        Record(offset, now_ms, None, encode_record(record, version_of(record)))
        for offset, record in enumerate(records, base_offset)
    ]
    return bytearray(build_batch(values, leader_epoch=epoch))


def control_batch(
    controls: Sequence[Control], *, base_offset: int, epoch: int, now_ms: int
) -> bytearray:
    values = [
        Record(offset, now_ms, encode_control_key(number), encode_control_value(number, message))
        for offset, (number, message) in enumerate(controls, base_offset)
    ]
    return bytearray(build_batch(values, leader_epoch=epoch, control=True))


def read_batches(data: Buffer, *, source: str) -> Iterator[MetadataBatch]:
    """Yields the complete batches in `data`. Raises MetadataCorrupt, with `source`, if one is
    damaged."""
    view = memoryview(data)
    try:
        for position, header in iterate_headers(view):
            batch = view[position : position + header.size_bytes]
            if not check_crc(batch, 0, header.size_bytes):
                raise MetadataCorrupt(f"{source}: the CRC at byte {position} does not match")
            records: list[Message] = []
            control: list[Control] = []
            for record in read_records(batch, bytes_max=_UNPACKED_BYTES_MAX):
                if header.is_control:
                    number = decode_control_key(record.key or b"")
                    control.append(
                        (number, _require_known(decode_control_value(number, record.value or b"")))
                    )
                else:
                    records.append(_require_known(decode_record(record.value or b"")))
            yield MetadataBatch(
                Offset(header.base_offset),
                Offset(header.last_offset),
                Epoch(header.leader_epoch),
                header.max_timestamp,
                header.size_bytes,
                tuple(records),
                tuple(control),
            )
    except MalformedMessage as error:
        raise MetadataCorrupt(f"{source}: {error}") from error


def _require_known(record: Message | UnknownRecord) -> Message:
    if isinstance(record, UnknownRecord):
        raise MetadataCorrupt(
            f"a record of type {record.type}, version {record.version}, is unknown: a newer release"
            " wrote it, start that release"
        )
    return record
