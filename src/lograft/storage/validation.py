"""What a leader checks before it appends: a chain of rules made from the topic's settings.

Most topics need only the header: `AppendRules.parses_records` is False and the batch's records
stay the bytes they came as. Compacted topics (keys), a codec of the topic's own and a lower bound
for timestamps make us look inside.
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
#: A batch may unpack to this much, or to eight times `max.message.bytes` if that is more.
UNPACKED_BYTES_MIN: Final = 32 << 20
#: What a compressed batch may claim: nobody counts its records, yet each takes an offset.
RECORDS_MAX: Final = 1 << 24
#: Records of one batch that we look at. It costs the loop microseconds for each, and a few thousand
#: bytes can unpack to millions; batches of real producers have some thousands at the most.
LOOKED_AT_MAX: Final = 250_000
#: More records than that, or more bytes to be compressed anew, are looked at by a worker: it takes
#: about 2 µs a record, and up to 15 ns a byte.
LOOKED_AT_ON_LOOP_MAX: Final = 2_000
REPACKED_ON_LOOP_BYTES_MAX: Final = 64 << 10
#: Every rejected record of a batch is named (LOOKED_AT_MAX bounds them), but only this many have a
#: message of their own. Clients use the message of the batch for the others.
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
    """The settings of one topic, worked out once for the per-batch path."""

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
        #: A segment up to this size is neither full nor is its index.
        self.roll_check_bytes = min(
            self.segment_bytes, self.index_interval_bytes * self.index_entries_max
        )
        self.log_append_time = config.message_timestamp_log_append
        self.timestamp_before_max_ms = config.message_timestamp_before_max_ms
        self.timestamp_after_max_ms = config.message_timestamp_after_max_ms
        if self.log_append_time:
            self.timestamp_before_max_ms = self.timestamp_after_max_ms = LONG_MAX
        #: -1: as the producer sent it.
        self.codec = int(CODEC_OF_NAME[config.compression_type])
        #: On the codec's own scale; None where it has none.
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
    """What no client may send, whatever the topic."""
    if base_offset != 0:
        raise InvalidRecord(f"a new batch must have base offset 0, not {base_offset}")
    if record_count <= 0 or last_offset_delta != record_count - 1:
        raise InvalidRecord(
            f"a batch of {record_count} records cannot end at offset delta {last_offset_delta}"
        )
    if not attributes & CODEC_MASK and record_count * RECORD_BYTES_MIN > size_bytes - HEADER_SIZE:
        raise InvalidRecord(f"{record_count} records do not fit in a batch of {size_bytes} bytes")
    if record_count > RECORDS_MAX:
        raise InvalidRecord(f"a batch of {record_count} records; {RECORDS_MAX} are the most")
    if attributes & CODEC_MASK > Codec.ZSTD:
        raise UnsupportedCompression(f"there is no codec {attributes & CODEC_MASK}")
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
        raise InvalidRecord("a transactional batch needs a producer id")


class CheckedBatch(NamedTuple):
    """A client's batch after a worker has looked at its records, maybe in another codec."""

    batch: memoryview
    #: Those that were checked; the topic's may be others by now.
    rules: AppendRules


def is_for_worker(rules: AppendRules, size_bytes: int, attributes: int, record_count: int) -> bool:
    return record_count > LOOKED_AT_ON_LOOP_MAX or (
        size_bytes > REPACKED_ON_LOOP_BYTES_MAX
        and rules.codec >= 0
        and rules.codec != attributes & CODEC_MASK
    )


def check_in_worker(batch: memoryview, rules: AppendRules, now_ms: int) -> CheckedBatch:
    """A worker's job; `batch` is nobody else's meanwhile."""
    changed = check_records(batch, rules, Origin.CLIENT, now_ms)
    return CheckedBatch(batch if changed is None else memoryview(bytearray(changed)), rules)


def check_records(
    batch: memoryview, rules: AppendRules, origin: Origin, now_ms: int
) -> bytes | None:
    """Looks at every record; returns the batch in the topic's codec if it must change."""
    header = read_header(batch)
    if header.record_count > LOOKED_AT_MAX:
        raise InvalidRecord(
            f"a batch of {header.record_count} records; where records are looked at one by one,"
            f" {LOOKED_AT_MAX} is the most"
        )
    rejections = Rejections()
    try:
        payload = unpack_records(batch, bytes_max=rules.unpacked_bytes_max)
        for delta, record in enumerate(parse_records(payload, header)):
            if not header.is_control:
                if record.offset != header.base_offset + delta:
                    raise InvalidRecord(f"record {delta} of a batch has another offset delta")
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
    """The records of one batch that must be rejected."""

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
        """As in Kafka, one bad timestamp makes INVALID_TIMESTAMP the error of the whole batch."""
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
