"""What a leader validates before it appends a batch, by rules derived from the topic's settings.

For most topics the header is sufficient: `AppendRules.parses_records` is False and the records are
not parsed. Compacted topics (which require keys), a `compression.type` other than that of the
producer, and a lower bound for timestamps require parsing the records.
"""

from typing import Final, NamedTuple

from lograft.model.types import NO_TIMESTAMP
from lograft.storage.errors import (
    CorruptBatch,
    InvalidRecord,
    InvalidTimestamp,
    RecordError,
    UnsupportedCompression,
)
from lograft.storage.types import LONG_MAX, LogConfig, Origin
from lograft.wire.batches import (
    CODEC_MASK,
    CONTROL_FLAG,
    HEADER_SIZE,
    LOG_APPEND_TIME_FLAG,
    RECORD_BYTES_MIN,
    TRANSACTIONAL_FLAG,
    Record,
    parse_records,
    read_header,
    repack,
    unpack_records,
)
from lograft.wire.compression import Codec
from lograft.wire.errors import MalformedMessage

KNOWN_FLAGS: Final = CODEC_MASK | LOG_APPEND_TIME_FLAG | TRANSACTIONAL_FLAG | CONTROL_FLAG
#: A batch may decompress to this size, or to eight times `max.message.bytes` if that is larger.
UNPACKED_BYTES_MIN: Final = 32 << 20
#: The maximum record count of a batch: the records of compressed batches are not counted, yet each
#: takes an offset.
RECORDS_MAX: Final = 1 << 24
#: The maximum number of records in a batch that the broker parses. Each costs microseconds, and a
#: few thousand bytes can decompress to millions of records; batches of real producers have a few
#: thousand at most.
PARSED_RECORDS_MAX: Final = 250_000
#: Batches with more records, or with more bytes to recompress, are validated in a worker: it takes
#: about 2 µs per record and up to 15 ns per byte.
PARSED_ON_LOOP_MAX: Final = 2_000
RECOMPRESSED_ON_LOOP_BYTES_MAX: Final = 64 << 10
#: Every rejected record of a batch is reported (PARSED_RECORDS_MAX is the limit), but only this
#: many have a message of their own. Clients use the message of the batch for the others.
RECORD_MESSAGES_MAX: Final = 10_000
#: The error message of a batch repeats at most this many of them.
RECORD_ERRORS_SHOWN: Final = 3
CODEC_OF_NAME: Final = {
    "producer": -1,
    "uncompressed": Codec.NONE,
    "none": Codec.NONE,
    "gzip": Codec.GZIP,
    "snappy": Codec.SNAPPY,
    "lz4": Codec.LZ4,
    "zstd": Codec.ZSTD,
}


def unpacked_bytes_max(config: LogConfig) -> int:
    return max(UNPACKED_BYTES_MIN, 8 * config.max_message_bytes)


class AppendRules:
    """The settings of one topic, precomputed for the per-batch path."""

    __slots__ = (
        "codec",
        "index_entries_max",
        "index_interval_bytes",
        "keys_required",
        "level",
        "log_append_time",
        "message_bytes_max",
        "parses_records",
        "roll_check_bytes",
        "segment_bytes",
        "segment_ms",
        "timestamp_after_max_ms",
        "timestamp_before_max_ms",
        "unpacked_bytes_max",
    )

    def __init__(self, config: LogConfig) -> None:
        self.message_bytes_max = config.max_message_bytes
        self.segment_bytes = config.segment_bytes
        self.segment_ms = config.segment_ms
        self.index_interval_bytes = config.index_interval_bytes
        self.index_entries_max = config.segment_index_bytes // 12
        #: A segment up to this size is not full, and neither is its index.
        self.roll_check_bytes = min(
            self.segment_bytes, self.index_interval_bytes * self.index_entries_max
        )
        self.log_append_time = config.message_timestamp_log_append
        self.timestamp_before_max_ms = config.message_timestamp_before_max_ms
        self.timestamp_after_max_ms = config.message_timestamp_after_max_ms
        if self.log_append_time:
            self.timestamp_before_max_ms = self.timestamp_after_max_ms = LONG_MAX
        #: -1: keep the producer's codec.
        self.codec = int(CODEC_OF_NAME[config.compression_type])
        #: On the codec's own scale; None for codecs without levels.
        self.level = {
            Codec.GZIP: config.compression_gzip_level,
            Codec.LZ4: config.compression_lz4_level,
            Codec.ZSTD: config.compression_zstd_level,
        }.get(Codec(max(0, self.codec)))
        self.keys_required = config.cleanup_compact
        self.unpacked_bytes_max = unpacked_bytes_max(config)
        self.parses_records = self.keys_required or self.timestamp_before_max_ms < LONG_MAX


def check_client_header(
    size_bytes: int,
    attributes: int,
    base_offset: int,
    last_offset_delta: int,
    record_count: int,
    producer_id: int,
    producer_epoch: int,
    base_sequence: int,
) -> None:
    """Rejects what no client may send, whatever the topic."""
    if base_offset != 0:
        raise InvalidRecord(f"a new batch must have base offset 0, not {base_offset}")
    if record_count <= 0 or last_offset_delta != record_count - 1:
        raise InvalidRecord(
            f"a batch of {record_count} records cannot end at offset delta {last_offset_delta}"
        )
    if not attributes & CODEC_MASK and record_count * RECORD_BYTES_MIN > size_bytes - HEADER_SIZE:
        raise InvalidRecord(f"{record_count} records do not fit in a batch of {size_bytes} bytes")
    if record_count > RECORDS_MAX:
        raise InvalidRecord(f"a batch of {record_count} records; the maximum is {RECORDS_MAX}")
    if attributes & CODEC_MASK > Codec.ZSTD:
        raise UnsupportedCompression(f"unknown compression codec {attributes & CODEC_MASK}")
    if attributes & CONTROL_FLAG or attributes & ~KNOWN_FLAGS:
        raise InvalidRecord(f"clients may not send batches with attributes {attributes:#x}")
    if attributes & LOG_APPEND_TIME_FLAG:
        raise InvalidTimestamp("only the broker may set the timestamp type LogAppendTime")
    if producer_id >= 0:
        if base_sequence < 0 or producer_epoch < 0:
            raise InvalidRecord(
                f"producer {producer_id} sent epoch {producer_epoch}, sequence {base_sequence}"
            )
    elif attributes & TRANSACTIONAL_FLAG:
        raise InvalidRecord("a transactional batch requires a producer id")


class CheckedBatch(NamedTuple):
    """A client's batch whose records a worker has validated, recompressed if necessary."""

    batch: memoryview
    #: The rules that were applied; the topic's rules may have changed since.
    rules: AppendRules


def is_for_worker(rules: AppendRules, size_bytes: int, attributes: int, record_count: int) -> bool:
    return record_count > PARSED_ON_LOOP_MAX or (
        size_bytes > RECOMPRESSED_ON_LOOP_BYTES_MAX
        and rules.codec >= 0
        and rules.codec != attributes & CODEC_MASK
    )


def check_in_worker(batch: memoryview, rules: AppendRules, now_ms: int) -> CheckedBatch:
    """A job for a worker; nothing else may use `batch` in the meantime."""
    changed = check_records(batch, rules, Origin.CLIENT, now_ms)
    return CheckedBatch(batch if changed is None else memoryview(bytearray(changed)), rules)


def check_records(
    batch: memoryview, rules: AppendRules, origin: Origin, now_ms: int
) -> bytes | None:
    """Validates every record; returns the recompressed batch if the topic uses another codec."""
    header = read_header(batch)
    if header.record_count > PARSED_RECORDS_MAX:
        raise InvalidRecord(
            f"a batch of {header.record_count} records; the maximum for topics whose settings"
            f" require parsing the records is {PARSED_RECORDS_MAX}"
        )
    rejections = Rejections()
    try:
        payload = unpack_records(batch, bytes_max=rules.unpacked_bytes_max)
        for delta, record in enumerate(parse_records(payload, header)):
            if not header.is_control:
                if record.offset != header.base_offset + delta:
                    raise InvalidRecord(
                        f"record {delta} of a batch has offset delta"
                        f" {record.offset - header.base_offset}"
                    )
                _check_record(delta, record, rules, now_ms, rejections)
    except MalformedMessage as error:
        raise CorruptBatch(str(error)) from None
    if rejections.count:
        raise rejections.as_error()
    codec = header.compression if rules.codec < 0 else rules.codec
    if codec == header.compression or header.is_control or origin is not Origin.CLIENT:
        return None
    return repack(batch, payload, codec, level=rules.level)


class Rejections:
    """The rejected records of one batch."""

    __slots__ = ("_errors", "_has_timestamp_error", "count")

    def __init__(self) -> None:
        self.count = 0
        self._errors: list[RecordError] = []
        self._has_timestamp_error = False

    def add(self, index: int, message: str, *, is_timestamp_error: bool = False) -> None:
        self.count += 1
        self._has_timestamp_error |= is_timestamp_error
        has_message = self.count <= RECORD_MESSAGES_MAX
        self._errors.append(RecordError(index, message if has_message else None))

    def as_error(self) -> InvalidRecord | InvalidTimestamp:
        """As in Kafka, a single invalid timestamp makes INVALID_TIMESTAMP the error of the whole
        batch."""
        shown = "; ".join(
            f"record {error.batch_index}: {error.message}"
            for error in self._errors[:RECORD_ERRORS_SHOWN]
        )
        more = self.count - RECORD_ERRORS_SHOWN
        message = f"rejected {self.count} of the batch's records: {shown}"
        if more > 0:
            message += f"; and {more} more"
        kind = InvalidTimestamp if self._has_timestamp_error else InvalidRecord
        return kind(message, tuple(self._errors))


def _check_record(
    index: int, record: Record, rules: AppendRules, now_ms: int, rejections: Rejections
) -> None:
    if rules.keys_required and record.key is None:
        rejections.add(index, "a compacted topic requires a key")
        return
    timestamp = record.timestamp
    if timestamp == NO_TIMESTAMP:
        return
    if now_ms - timestamp > rules.timestamp_before_max_ms:
        rejections.add(
            index,
            f"timestamp {timestamp} is more than {rules.timestamp_before_max_ms} ms in the past"
            " (message.timestamp.before.max.ms)",
            is_timestamp_error=True,
        )
    elif timestamp - now_ms > rules.timestamp_after_max_ms:
        rejections.add(
            index,
            f"timestamp {timestamp} is more than {rules.timestamp_after_max_ms} ms in the future"
            " (message.timestamp.after.max.ms)",
            is_timestamp_error=True,
        )
