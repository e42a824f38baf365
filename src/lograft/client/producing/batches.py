"""Batches on their way to a broker, built as bytes in place.

A record is a few pieces of bytes until its batch is closed and joins them all: its value is copied
once. Records of one time and length, as most that follow each other are, share what comes before
and after the value.
"""

import asyncio
from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from operator import itemgetter
from typing import TYPE_CHECKING, Final

from crc32c import crc32c

from lograft.client.producing.record_parts import (
    NO_HEADERS,
    NULL,
    PLACE_NO_KEY,
    PLACE_STEPS,
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
    """Records of one partition. Open: takes more; closed: has its final bytes; done: acknowledged
    or failed."""

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
        #: Batches of a partition are sent in this order, the first time and again. The parts of a
        #: batch that was split have a number more.
        self.order = order
        #: How large it may become, not compressed.
        self.limit_bytes = limit_bytes
        #: Of its bytes so far, not compressed.
        self.size_bytes = HEADER_SIZE
        #: The pieces of its records while it is open, then one buffer.
        self._parts: list[bytes] = [_EMPTY_HEADER]
        self._buffer: bytearray | None = None
        self._data: bytearray | None = None
        self.base_timestamp = -1
        self._max_timestamp = -1
        #: Times of records: from which place on, and which.
        self._times: list[tuple[int, int]] = []
        self._timestamp = -1
        #: How the last record began whose time this is.
        self._time_part = b""
        #: What the next record without key and headers shares with the last one, if its value is as
        #: long: its first bytes, the length of its value, how many bytes it takes.
        self._plain_length = -1
        self._plain_until = 0
        self._plain_bytes = 0
        self._head = b""
        self._length_part = b""
        self.count = 0
        #: What it takes of buffer.memory.
        self.reserved_bytes = 0
        self.attempts = 0
        self.retry_at_ms = 0
        self.is_transactional = False
        self.producer_id: int = NO_PRODUCER_ID
        self.producer_epoch: int = NO_PRODUCER_EPOCH
        #: Given when it is first sent, kept over retries.
        self.sequence: int = NO_SEQUENCE
        self.error: Exception | None = None
        #: Which of its records the broker rejected, where it named them.
        self.record_errors: RecordErrors | None = None
        #: Why the last attempt failed that will be repeated.
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
        """Adds a record. The first goes the general way: what it could share with others costs
        more than it, and often there are none."""
        count = self.count
        if timestamp != self._timestamp or not count:
            self._set_time(timestamp)
        if key is None and value is not None and not headers and count:
            if len(value) != self._plain_length or count >= self._plain_until:
                self._set_plain(len(value))
            place = PLACE_NO_KEY[count] if count < SMALL_COUNT else varint(count) + NULL
            self._parts += self._head, place, self._length_part, value, NO_HEADERS
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
        self.size_bytes += len(length_part) + length
        self.count = count + 1

    def extend(self, timestamp: int, values: Sequence[bytes], start: int) -> int:
        """Adds records without key and headers while they fit; from `start` on, returns to where.
        Stops at what is not bytes."""
        first = values[start] if start < len(values) else None
        if type(first) is not bytes:
            return start
        if self.size_bytes + len(first) + RECORD_OVERHEAD_MAX > self.limit_bytes:
            return start
        if timestamp != self._timestamp or not self.count:
            self._set_time(timestamp)
        count, size, limit = self.count, self.size_bytes, self.limit_bytes
        length, until = self._plain_length, self._plain_until
        parts, places, tail = self._parts, PLACE_NO_KEY, NO_HEADERS
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
            parts += head, places[count], length_part, value, tail
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
        place = varint(count) + NULL
        self._length_part = varint(value_length)
        length = len(self._time_part) + len(place) + len(self._length_part) + value_length + 1
        first = varint(length)
        self._head = first + self._time_part
        self._plain_length = value_length
        self._plain_bytes = len(first) + length
        self._plain_until = next((step for step in PLACE_STEPS if count < step), count + 1)

    def fill(self, payload: Buffer, count: int, base_timestamp: int, max_timestamp: int) -> None:
        """Takes the bytes of all its records at once. Whoever gave them asks for `offsets`, not for
        the outcome of single records."""
        assert not self.count
        self._parts.append(payload)  # type: ignore[arg-type]
        self.size_bytes += len(payload)
        self.count = count
        self.base_timestamp = base_timestamp
        self._max_timestamp = max_timestamp

    # ── closed ───────────────────────────────────────────────────────────────────────────────

    def data(self, codec: Codec, level: int | None) -> bytearray:
        """The whole batch as bytes, which nobody may change. A batch that gets another producer or
        sequence is written anew: the old bytes may still be on their way."""
        if self._data is None:
            buffer = self._joined()
            if codec != Codec.NONE:
                payload = compress(codec, memoryview(buffer)[HEADER_SIZE:], level=level)
                buffer = bytearray(HEADER_SIZE) + payload
            self._write_header(buffer, int(codec))
            self._data = buffer
        return self._data

    def _joined(self) -> bytearray:
        """Its bytes, not compressed."""
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

    def identify(self, producer_id: int, producer_epoch: int, sequence: int) -> None:
        """Names the producer; final bytes that named another are made anew."""
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
        """Its records again, to be put into smaller batches."""
        buffer = self._joined()[:]
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
        """Its records go on in smaller batches; it is done when they are."""
        self._children = children
        self._give_back()
        waits = len(children)

        def one_done() -> None:
            nonlocal waits
            waits -= 1
            if not waits:
                self._finish()

        for child in children:
            child.on_done(one_done)

    def on_done(self, callback: Callable[[], None]) -> None:
        if self.is_done:
            callback()
        else:
            self._callbacks.append(callback)

    def wait(self) -> "asyncio.Future[None]":
        """Until it is done: each who waits has a future, which may be cancelled."""
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        def end() -> None:
            if not waiter.done():
                waiter.set_result(None)

        self.on_done(end)
        return waiter

    def outcome(self, index: int, acks: int) -> Acknowledged:
        """Of one record; raises its error."""
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
            place = bisect_right(self._times, index, key=_first)
            timestamp = self._times[place - 1][1]
        return Acknowledged(self.topic, self.partition, offset, timestamp, acks)

    def offsets(self) -> Iterator[tuple[int, int]]:
        """First offset and count of its records where they follow each other; the offset is -1 when
        nobody told it. Raises their error."""
        if self._children is not None:
            for child in self._children:
                yield from child.offsets()
            return
        if self.error is not None:
            raise self.error
        yield self.base_offset, self.count

    def _give_back(self) -> None:
        """Its bytes are not needed any more."""
        self._parts = []
        self._buffer = self._data = None

    def _finish(self) -> None:
        self._give_back()
        self.is_done = True
        callbacks, self._callbacks = self._callbacks, []
        for callback in callbacks:
            callback()
