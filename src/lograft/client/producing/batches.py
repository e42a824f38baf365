"""Batches of a producer: collect records as bytes, and keep their outcome.

A record is a few pieces of bytes until its batch is closed and joins them all, so its value is
copied once. Consecutive records usually have the same timestamp and length, and then share the
bytes before and after the value.
"""

import asyncio
from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from operator import itemgetter
from typing import TYPE_CHECKING, Final

from crc32c import crc32c

from lograft.client.producing.record_parts import (
    DELTA_NO_KEY,
    DELTA_STEPS,
    NO_HEADERS,
    NULL,
    RECORD_OVERHEAD_MAX,
    SMALL_COUNT,
    Headers,
    header_bytes,
    varint,
)
from lograft.client.types import Acknowledged
from lograft.model.seams import Buffer
from lograft.model.types import NO_PRODUCER_EPOCH, NO_PRODUCER_ID, NO_SEQUENCE
from lograft.wire.batches import (
    CRC_START,
    HEADER,
    HEADER_SIZE,
    LENGTH_OVERHEAD,
    MAGIC,
    TRANSACTIONAL_FLAG,
    Record,
    read_records,
)
from lograft.wire.compression import Codec, compress

if TYPE_CHECKING:
    from lograft.client.producing.record_errors import RecordErrors

_EMPTY_HEADER: Final = bytes(HEADER_SIZE)
_first: Final = itemgetter(0)


class Batch:
    """Records of one partition. Open: accepts records; closed: has its final bytes; done:
    acknowledged or failed."""

    __slots__ = (
        "_buffer",
        "_callbacks",
        "_children",
        "_data",
        "_head",
        "_length_part",
        "_max_timestamp",
        "_parts",
        "_plain_bytes",
        "_plain_length",
        "_plain_until",
        "_time_part",
        "_times",
        "_timestamp",
        "attempts",
        "base_offset",
        "base_timestamp",
        "count",
        "created_ms",
        "error",
        "is_done",
        "is_transactional",
        "last_error",
        "limit_bytes",
        "log_append_time_ms",
        "order",
        "partition",
        "producer_epoch",
        "producer_id",
        "record_bytes_max",
        "record_errors",
        "reserved_bytes",
        "retry_at_ms",
        "sequence",
        "size_bytes",
        "topic",
    )

    def __init__(
        self,
        topic: str,
        partition: int,
        created_ms: int,
        order: tuple[int, ...],
        limit_bytes: int = 0,
    ) -> None:
        self.topic = topic
        self.partition = partition
        self.created_ms = created_ms
        #: Batches of a partition are sent and retried in this order. The parts of a split batch
        #: have an additional number.
        self.order = order
        #: Limit of its uncompressed size.
        self.limit_bytes = limit_bytes
        #: Its uncompressed size.
        self.size_bytes = HEADER_SIZE
        #: The pieces of its records while it is open, then one buffer.
        self._parts: list[bytes] = [_EMPTY_HEADER]
        self._buffer: bytearray | None = None
        self._data: bytearray | None = None
        self.base_timestamp = -1
        self._max_timestamp = -1
        #: Timestamps of records: the index from which each one applies, and the timestamp.
        self._times: list[tuple[int, int]] = []
        self._timestamp = -1
        #: Attributes and timestamp delta of the last record.
        self._time_part = b""
        #: What the next record without key and headers shares with the last one if their values
        #: have the same length: the first bytes, the length of the value, the size of the record.
        self._plain_length = -1
        self._plain_until = 0
        self._plain_bytes = 0
        self._head = b""
        self._length_part = b""
        self.count = 0
        #: Uncompressed size of its largest record; 0 if it was filled at once.
        self.record_bytes_max = 0
        #: The part of buffer.memory that it uses.
        self.reserved_bytes = 0
        self.attempts = 0
        self.retry_at_ms = 0
        self.is_transactional = False
        self.producer_id: int = NO_PRODUCER_ID
        self.producer_epoch: int = NO_PRODUCER_EPOCH
        #: Assigned when it is first sent, and kept for retries.
        self.sequence: int = NO_SEQUENCE
        self.error: Exception | None = None
        #: The records that the broker rejected, if it returned them.
        self.record_errors: RecordErrors | None = None
        #: Why the last attempt failed, if it is retried.
        self.last_error: Exception | None = None
        self.base_offset = -1
        self.log_append_time_ms = -1
        self._children: list[Batch] | None = None
        self._callbacks: list[Callable[[], None]] = []
        self.is_done = False

    # ── open ─────────────────────────────────────────────────────────────────────────────────

    def append(
        self, timestamp: int, key: bytes | None, value: bytes | None, headers: Headers = ()
    ) -> None:
        """Adds a record. The first is encoded alone: preparing the bytes to share costs more, and
        often no other record follows."""
        count = self.count
        if timestamp != self._timestamp or not count:
            self._set_time(timestamp)
        if key is None and value is not None and not headers and count:
            if len(value) != self._plain_length or count >= self._plain_until:
                self._set_plain(len(value))
            delta = DELTA_NO_KEY[count] if count < SMALL_COUNT else varint(count) + NULL
            self._parts += self._head, delta, self._length_part, value, NO_HEADERS
            self.size_bytes += self._plain_bytes
            self.count = count + 1
            return
        key_length = NULL if key is None else varint(len(key))
        value_length = NULL if value is None else varint(len(value))
        key, value = key or b"", value or b""
        head = b"".join((self._time_part, varint(count), key_length, key, value_length))
        tail = header_bytes(headers) if headers else NO_HEADERS
        length = len(head) + len(value) + len(tail)
        length_part = varint(length)
        self._parts += length_part, head, value, tail
        size = len(length_part) + length
        if size > self.record_bytes_max:
            self.record_bytes_max = size
        self.size_bytes += size
        self.count = count + 1

    def extend(self, timestamp: int, values: Sequence[bytes], start: int) -> int:
        """Adds records without key and headers, from `start` on, while they fit. Returns the index
        of the first one left. Stops at a value that is not bytes."""
        first = values[start] if start < len(values) else None
        if type(first) is not bytes:
            return start
        if self.size_bytes + len(first) + RECORD_OVERHEAD_MAX > self.limit_bytes:
            return start
        if timestamp != self._timestamp or not self.count:
            self._set_time(timestamp)
        count, size, limit = self.count, self.size_bytes, self.limit_bytes
        length, until = self._plain_length, self._plain_until
        parts, deltas, tail = self._parts, DELTA_NO_KEY, NO_HEADERS
        head, length_part, plain_bytes = self._head, self._length_part, self._plain_bytes
        at = start
        end = min(len(values), start + SMALL_COUNT - count)
        while at < end:
            value = values[at]
            if type(value) is not bytes:
                break
            if len(value) != length or count >= until:
                self.count = count
                self._set_plain(len(value))
                length, until = self._plain_length, self._plain_until
                head, length_part, plain_bytes = self._head, self._length_part, self._plain_bytes
            size += plain_bytes
            if size > limit:
                size -= plain_bytes
                break
            parts += head, deltas[count], length_part, value, tail
            count += 1
            at += 1
        self.count, self.size_bytes = count, size
        return at

    def _set_time(self, timestamp: int) -> None:
        if not self.count:
            self.base_timestamp = timestamp
        if timestamp > self._max_timestamp:
            self._max_timestamp = timestamp
        self._times.append((self.count, timestamp))
        self._timestamp = timestamp
        self._time_part = b"\0" + varint(timestamp - self.base_timestamp)
        self._plain_length = -1

    def _set_plain(self, value_length: int) -> None:
        count = self.count
        delta = varint(count) + NULL
        self._length_part = varint(value_length)
        length = len(self._time_part) + len(delta) + len(self._length_part) + value_length + 1
        first = varint(length)
        self._head = first + self._time_part
        self._plain_length = value_length
        self._plain_bytes = size = len(first) + length
        if size > self.record_bytes_max:
            self.record_bytes_max = size
        self._plain_until = next((step for step in DELTA_STEPS if count < step), count + 1)

    def fill(self, payload: Buffer, count: int, base_timestamp: int, max_timestamp: int) -> None:
        """Sets the bytes of all records at once. For such a batch, use `offsets` and not `outcome`,
        which needs the timestamps of single records."""
        assert not self.count
        self._parts.append(payload)  # type: ignore[arg-type]
        self.size_bytes += len(payload)
        self.count = count
        self.base_timestamp = base_timestamp
        self._max_timestamp = max_timestamp

    # ── closed ───────────────────────────────────────────────────────────────────────────────

    def data(self, codec: Codec, level: int | None) -> bytearray:
        """Returns the bytes of the batch, which must not be changed. After a change of producer id,
        epoch or sequence they are written to a new buffer: the old one may still be in flight."""
        if self._data is None:
            buffer = self._join()
            if codec != Codec.NONE:
                payload = compress(codec, memoryview(buffer)[HEADER_SIZE:], level=level)
                buffer = bytearray(HEADER_SIZE) + payload
            self._write_header(buffer, int(codec))
            self._data = buffer
        return self._data

    def _join(self) -> bytearray:
        """Returns the uncompressed bytes."""
        if self._buffer is None:
            self._buffer = bytearray().join(self._parts)
            self._parts = []
        return self._buffer

    def _write_header(self, buffer: bytearray, attributes: int) -> None:
        if self.is_transactional:
            attributes |= TRANSACTIONAL_FLAG
        HEADER.pack_into(
            buffer,
            0,
            0,
            len(buffer) - LENGTH_OVERHEAD,
            -1,
            MAGIC,
            0,
            attributes,
            self.count - 1,
            self.base_timestamp,
            self._max_timestamp,
            self.producer_id,
            self.producer_epoch,
            self.sequence,
            self.count,
        )
        buffer[CRC_START - 4 : CRC_START] = crc32c(memoryview(buffer)[CRC_START:]).to_bytes(
            4, "big"
        )

    def set_producer(self, producer_id: int, producer_epoch: int, sequence: int) -> None:
        """Sets producer id, epoch and sequence, and drops bytes that contain others."""
        if (self.producer_id, self.producer_epoch, self.sequence) != (
            producer_id,
            producer_epoch,
            sequence,
        ):
            if self._data is self._buffer and self._buffer is not None:
                self._buffer = self._buffer[:]
            self._data = None
        self.producer_id = producer_id
        self.producer_epoch = producer_epoch
        self.sequence = sequence

    def records(self) -> list[Record]:
        """Returns the decoded records, to split the batch."""
        buffer = self._join()[:]
        self._write_header(buffer, int(Codec.NONE))
        return read_records(buffer, bytes_max=len(buffer))

    # ── done ─────────────────────────────────────────────────────────────────────────────────

    def acknowledge(self, base_offset: int, log_append_time_ms: int = -1) -> None:
        self.base_offset = base_offset
        self.log_append_time_ms = log_append_time_ms
        self._finish()

    def fail(self, error: Exception, record_errors: "RecordErrors | None" = None) -> None:
        self.error = error
        self.record_errors = record_errors
        self._finish()

    def replace(self, children: "list[Batch]") -> None:
        """Replaces the batch with smaller ones; it is done when they are."""
        self._children = children
        self._drop_bytes()
        pending = len(children)

        def on_child_done() -> None:
            nonlocal pending
            pending -= 1
            if not pending:
                self._finish()

        for child in children:
            child.on_done(on_child_done)

    def on_done(self, callback: Callable[[], None]) -> None:
        if self.is_done:
            callback()
        else:
            self._callbacks.append(callback)

    def wait(self) -> "asyncio.Future[None]":
        """Returns a future that completes when the batch is done. Each caller may cancel its
        own."""
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        def complete() -> None:
            if not waiter.done():
                waiter.set_result(None)

        self.on_done(complete)
        return waiter

    def outcome(self, index: int, acks: int) -> Acknowledged:
        """Returns the acknowledgement of one record, or raises its error."""
        if self._children is not None:
            for child in self._children:
                if index < child.count:
                    return child.outcome(index, acks)
                index -= child.count
        if self.error is not None:
            if self.record_errors is not None:
                raise self.record_errors.of(index)
            raise self.error
        offset = self.base_offset + index if self.base_offset >= 0 else -1
        timestamp = self.log_append_time_ms
        if timestamp < 0:
            run = bisect_right(self._times, index, key=_first)
            timestamp = self._times[run - 1][1]
        return Acknowledged(self.topic, self.partition, offset, timestamp, acks)

    def offsets(self) -> Iterator[tuple[int, int]]:
        """Yields the first offset and the number of each run of consecutive records; the offset is
        -1 if it is unknown. Raises their error."""
        if self._children is not None:
            for child in self._children:
                yield from child.offsets()
            return
        if self.error is not None:
            raise self.error
        yield self.base_offset, self.count

    def _drop_bytes(self) -> None:
        self._parts = []
        self._buffer = self._data = None

    def _finish(self) -> None:
        self._drop_bytes()
        self.is_done = True
        callbacks, self._callbacks = self._callbacks, []
        for callback in callbacks:
            callback()
