"""Batches on their way to a broker, built as bytes in place.

A record is written once, into the bytes of its batch. Whoever sent it holds a Delivery: the batch
and the record's place in it, so that a thousand records share one future.
"""

import asyncio
from collections.abc import Callable, Generator, Iterator, Sequence
from typing import Any, Final

from crc32c import crc32c

from lograft.client.errors import WrongUse
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

Headers = Sequence[tuple[str, bytes | None]]

_NULL: Final = b"\x01"  # the length -1
_NO_HEADERS: Final = b"\x00"


def _varint(value: int) -> bytes:
    """A zigzag number, as records hold them."""
    value = ((value << 1) ^ (value >> 63)) & 0xFFFF_FFFF_FFFF_FFFF
    data = bytearray()
    while value > 0x7F:
        data.append((value & 0x7F) | 0x80)
        value >>= 7
    data.append(value)
    return bytes(data)


#: The numbers that nearly all records are made of: lengths, deltas.
_SMALL: Final = tuple(_varint(value) for value in range(16_384))
_SMALL_COUNT: Final = len(_SMALL)


def varint(value: int) -> bytes:
    return _SMALL[value] if 0 <= value < _SMALL_COUNT else _varint(value)


def record_size_max(key: bytes | None, value: bytes | None, headers: Headers) -> int:
    """An upper bound of what a record adds to a batch."""
    size = 32 + (len(key) if key else 0) + (len(value) if value else 0)
    for name, content in headers:
        size += 10 + 4 * len(name) + (len(content) if content else 0)
    return size


class Batch:
    """Records of one partition. Open: takes more; closed: has its final bytes; done: acknowledged
    or failed."""

    __slots__ = (
        "_buffer",
        "_callbacks",
        "_children",
        "_data",
        "_delivered",
        "_max_timestamp",
        "_timestamps",
        "attempts",
        "base_offset",
        "base_timestamp",
        "count",
        "created_ms",
        "error",
        "is_transactional",
        "last_error",
        "log_append_time_ms",
        "order",
        "partition",
        "producer_epoch",
        "producer_id",
        "reserved_bytes",
        "retry_at_ms",
        "sequence",
        "topic",
    )

    def __init__(self, topic: str, partition: int, created_ms: int, order: tuple[int, ...]) -> None:
        self.topic = topic
        self.partition = partition
        self.created_ms = created_ms
        #: Batches of a partition are sent in this order, the first time and again. The parts of a
        #: batch that was split have a number more.
        self.order = order
        self._buffer = bytearray(HEADER_SIZE)
        self._data: bytes | None = None
        self._timestamps: list[int] = []
        self.base_timestamp = -1
        self._max_timestamp = -1
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
        #: Why the last attempt failed that will be repeated.
        self.last_error: Exception | None = None
        self.base_offset = -1
        self.log_append_time_ms = -1
        self._children: list[Batch] | None = None
        self._callbacks: list[Callable[[], None]] = []
        self._delivered: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    # ── open ─────────────────────────────────────────────────────────────────────────────────

    @property
    def size_bytes(self) -> int:
        """Of its bytes so far, not compressed; 0 when they have been given back."""
        return len(self._buffer)

    def append(
        self, timestamp: int, key: bytes | None, value: bytes | None, headers: Headers = ()
    ) -> int:
        """Adds a record; returns how many bytes it takes."""
        count = self.count
        if not count:
            self.base_timestamp = timestamp
        if timestamp > self._max_timestamp:
            self._max_timestamp = timestamp
        delta = timestamp - self.base_timestamp
        key_part = _NULL if key is None else varint(len(key)) + key
        value_length = _NULL if value is None else varint(len(value))
        head = b"\0%b%b%b%b" % (
            _SMALL[delta] if 0 <= delta < _SMALL_COUNT else _varint(delta),
            _SMALL[count] if count < _SMALL_COUNT else _varint(count),
            key_part,
            value_length,
        )
        tail = _header_bytes(headers) if headers else _NO_HEADERS
        buffer = self._buffer
        before = len(buffer)
        if value is None:
            buffer += varint(len(head) + len(tail)) + head + tail
        else:
            buffer += varint(len(head) + len(value) + len(tail)) + head + value + tail
        self.count = count + 1
        self._timestamps.append(timestamp)
        return len(buffer) - before

    def fill(self, payload: Buffer, count: int, base_timestamp: int, max_timestamp: int) -> None:
        """Takes the bytes of all its records at once. Whoever gave them asks for `offsets`, not for
        the outcome of single records."""
        assert not self.count
        self._buffer += payload
        self.count = count
        self.base_timestamp = base_timestamp
        self._max_timestamp = max_timestamp

    # ── closed ───────────────────────────────────────────────────────────────────────────────

    def data(self, codec: Codec, level: int | None) -> bytes:
        """The whole batch as bytes. Compressed once; the fields of the header that a retry may
        change (producer and sequence) are written anew."""
        if self._data is None:
            buffer = self._buffer
            if codec != Codec.none:
                payload = compress(codec, memoryview(buffer)[HEADER_SIZE:], level=level)
                buffer = bytearray(HEADER_SIZE) + payload
            self._write_header(buffer, int(codec))
            self._data = bytes(buffer)
        return self._data

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
            self._data = None
        self.producer_id = producer_id
        self.producer_epoch = producer_epoch
        self.sequence = sequence

    def records(self) -> list[Record]:
        """Its records again, to be put into smaller batches."""
        self._write_header(self._buffer, int(Codec.none))
        return read_records(self._buffer, bytes_max=len(self._buffer))

    # ── done ─────────────────────────────────────────────────────────────────────────────────

    @property
    def is_done(self) -> bool:
        return self._delivered.done()

    def acknowledge(self, base_offset: int, log_append_time_ms: int = -1) -> None:
        self.base_offset = base_offset
        self.log_append_time_ms = log_append_time_ms
        self._finish()

    def fail(self, error: Exception) -> None:
        self.error = error
        self._finish()

    def replace(self, children: "list[Batch]") -> None:
        """Its records go on in smaller batches; it is done when they are."""
        self._children = children
        self._buffer = bytearray()
        self._data = None
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

    async def wait(self) -> None:
        await asyncio.shield(self._delivered)

    def outcome(self, index: int, acks: int) -> Acknowledged:
        """Of one record; raises its error."""
        if self._children is not None:
            for child in self._children:
                if index < child.count:
                    return child.outcome(index, acks)
                index -= child.count
        if self.error is not None:
            raise self.error
        offset = self.base_offset + index if self.base_offset >= 0 else -1
        timestamp = self.log_append_time_ms
        if timestamp < 0:
            timestamp = self._timestamps[index]
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

    def _finish(self) -> None:
        self._buffer = bytearray()
        self._data = None
        self._delivered.set_result(None)
        callbacks, self._callbacks = self._callbacks, []
        for callback in callbacks:
            callback()


class Delivery:
    """The fate of one record: await it, or ask it."""

    __slots__ = ("_acks", "_batch", "_index")

    def __init__(self, batch: Batch, index: int, acks: int) -> None:
        self._batch = batch
        self._index = index
        self._acks = acks

    def __await__(self) -> Generator[Any, None, Acknowledged]:
        if not self._batch.is_done:
            yield from self._batch.wait().__await__()
        return self.result()

    def done(self) -> bool:
        return self._batch.is_done

    async def wait(self) -> None:
        """Until its fate is known, whatever it is."""
        if not self._batch.is_done:
            await self._batch.wait()

    def result(self) -> Acknowledged:
        """Raises what the record failed with, or WrongUse while nobody knows."""
        if not self._batch.is_done:
            raise WrongUse("the record is still on its way: await the delivery, or ask done()")
        return self._batch.outcome(self._index, self._acks)

    def add_done_callback(self, callback: "Callable[[Delivery], object]") -> None:
        """Called with this delivery when its fate is known, at once if it is."""
        self._batch.on_done(lambda: _called(callback, self))


def _called(callback: Callable[[Delivery], object], delivery: Delivery) -> None:
    try:
        callback(delivery)
    except Exception as error:
        asyncio.get_running_loop().call_exception_handler(
            {"message": "a callback of a delivery failed", "exception": error}
        )


def _header_bytes(headers: Headers) -> bytes:
    parts = [varint(len(headers))]
    for name, content in headers:
        raw = name.encode()
        parts += (varint(len(raw)), raw)
        parts += (_NULL,) if content is None else (varint(len(content)), content)
    return b"".join(parts)
