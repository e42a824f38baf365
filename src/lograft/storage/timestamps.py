"""Lookups by timestamp: time index → position → first matching record."""

from typing import TYPE_CHECKING

from lograft.model.types import Epoch, Offset
from lograft.storage.segment import HeaderFields, Segment
from lograft.storage.types import TimestampAndOffset
from lograft.storage.validation import PARSED_RECORDS_MAX, unpacked_bytes_max
from lograft.wire.batches import LENGTH_OVERHEAD, iterate_records
from lograft.wire.errors import MalformedMessage

if TYPE_CHECKING:
    from lograft.storage.log import Log


def find_timestamp(log: "Log", timestamp: int) -> TimestampAndOffset | None:
    for slot, segment in enumerate(log.segments):
        last = slot + 1 == len(log.segments)
        if not last and log.segments[slot + 1].base_offset <= log.log_start_offset:
            continue
        if segment.load_max_timestamp() < timestamp:
            continue
        found = _find_in_segment(log, segment, timestamp)
        if found is not None:
            return found
    return None


def _find_in_segment(log: "Log", segment: Segment, timestamp: int) -> TimestampAndOffset | None:
    start = max(segment.time_index.lookup(timestamp), log.log_start_offset)
    position = segment.position_of(start)
    for at, fields in segment.scan(position):
        if fields[8] >= timestamp and fields[0] + fields[6] >= log.log_start_offset:
            found = _find_in_batch(log, segment, at, fields, timestamp)
            if found is not None:
                return found
    return None


def _find_in_batch(
    log: "Log", segment: Segment, position: int, fields: HeaderFields, timestamp: int
) -> TimestampAndOffset | None:
    """Returns the first matching record. If a client filled the batch with garbage, or with more
    records than the broker parses, returns the first record of the batch instead: an offset that
    may be lower than the exact one, but never higher."""
    if fields[12] <= PARSED_RECORDS_MAX:
        batch = segment.read_batch(position, fields[1] + LENGTH_OVERHEAD)
        try:
            for record in iterate_records(batch, bytes_max=unpacked_bytes_max(log.config)):
                if record.timestamp >= timestamp and record.offset >= log.log_start_offset:
                    return TimestampAndOffset(
                        record.timestamp, Offset(record.offset), Epoch(fields[2])
                    )
            return None
        except MalformedMessage:
            pass
    first = max(fields[0], log.log_start_offset)
    return TimestampAndOffset(fields[8], Offset(first), Epoch(fields[2]))


def find_latest_timestamp(log: "Log") -> TimestampAndOffset | None:
    best: Segment | None = None
    newest = -1
    for segment in log.segments:
        if segment.base_offset < log.log_start_offset:
            timestamp = _latest_visible(log, segment)
        else:
            timestamp = segment.load_max_timestamp()
        if timestamp > newest:
            best, newest = segment, timestamp
    return None if best is None else _find_in_segment(log, best, newest)


def _latest_visible(log: "Log", segment: Segment) -> int:
    """Returns the largest timestamp at or above the log start, in the segment that contains it."""
    newest = -1
    for position, fields in segment.scan(segment.position_of(log.log_start_offset)):
        if fields[0] >= log.log_start_offset:
            newest = max(newest, fields[8])
        else:
            newest = max(newest, _latest_visible_in_batch(log, segment, position, fields))
    return newest


def _latest_visible_in_batch(
    log: "Log", segment: Segment, position: int, fields: HeaderFields
) -> int:
    if fields[12] > PARSED_RECORDS_MAX:
        return fields[8]
    batch = segment.read_batch(position, fields[1] + LENGTH_OVERHEAD)
    try:
        return max(
            (
                record.timestamp
                for record in iterate_records(batch, bytes_max=unpacked_bytes_max(log.config))
                if record.offset >= log.log_start_offset
            ),
            default=-1,
        )
    except MalformedMessage:
        return fields[8]
