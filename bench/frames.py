"""Encoded frames, and the small changes between two uses of a frame."""

import struct
import time
from dataclasses import dataclass
from typing import Final
from uuid import UUID

from crc32c import crc32c

from lograft.wire.batches import CRC_START, HEADER_SIZE, Record, build_batch
from lograft.wire.headers import frame_request
from lograft.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from lograft.wire.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)

#: The API versions that recent releases of librdkafka and of the Java clients send.
PRODUCE_VERSION: Final = 10
FETCH_VERSION: Final = 16
#: Positions of header fields in a batch.
CRC_POSITION: Final = 17
SEQUENCE_POSITION: Final = 53


def values(count: int, value_bytes: int) -> list[Record]:
    """The records get the current time: otherwise retention would delete them during the
    measurement."""
    body = bytes(range(256)) * (value_bytes // 256 + 1)
    now_ms = time.time_ns() // 1_000_000
    return [Record(index, now_ms, None, body[:value_bytes], ()) for index in range(count)]


def produce_frame(
    topic: str, partition: int, batch: bytes, *, acks: int, correlation_id: int = 1
) -> bytes:
    request = ProduceRequest(
        acks=acks,
        timeout_ms=30_000,
        topic_data=[
            TopicProduceData(
                name=topic, partition_data=[PartitionProduceData(index=partition, records=batch)]
            )
        ],
    )
    return frame_request(request, PRODUCE_VERSION, correlation_id=correlation_id, client_id="bench")


def produce_error_position(topic: str) -> int:
    """Position of the error code in the response (without the size): after correlation id, tags,
    one topic with its name, and one partition with its index."""
    return 4 + 1 + 1 + 1 + len(topic) + 1 + 4


@dataclass(slots=True)
class SequencedFrame:
    """The frame of an idempotent producer; `next()` advances the sequence number and updates the
    CRC."""

    frame: bytearray
    batch_position: int
    records: int
    sequence: int = 0

    @classmethod
    def of(
        cls, topic: str, partition: int, *, count: int, value_bytes: int, producer_id: int
    ) -> "SequencedFrame":
        batch = build_batch(
            values(count, value_bytes),
            producer_id=producer_id,
            producer_epoch=0,
            base_sequence=0,
        )
        frame = bytearray(produce_frame(topic, partition, batch, acks=-1))
        return cls(frame, frame.index(batch), count)

    def next(self) -> bytes:
        frame, start = self.frame, self.batch_position
        struct.pack_into(">i", frame, start + SEQUENCE_POSITION, self.sequence)
        self.sequence = (self.sequence + self.records) & 0x7FFFFFFF
        # The batch ends before the tags at the end of the request.
        (size,) = struct.unpack_from(">i", frame, start + 8)
        checked = memoryview(frame)[start + CRC_START : start + 12 + size]
        struct.pack_into(">I", frame, start + CRC_POSITION, crc32c(checked))
        return bytes(frame)


@dataclass(slots=True)
class FetchFrame:
    """A Fetch request whose offset is changed in place."""

    frame: bytearray
    position: int

    @classmethod
    def of(cls, topic_id: UUID, partition: int, *, bytes_max: int, wait_ms: int) -> "FetchFrame":
        marker = 0x7A5A_1234_5678_9ABC
        request = FetchRequest(
            max_wait_ms=wait_ms,
            min_bytes=1,
            max_bytes=bytes_max,
            topics=[
                FetchTopic(
                    topic_id=topic_id,
                    partitions=[
                        FetchPartition(
                            partition=partition, fetch_offset=marker, partition_max_bytes=bytes_max
                        )
                    ],
                )
            ],
        )
        frame = bytearray(
            frame_request(request, FETCH_VERSION, correlation_id=1, client_id="bench")
        )
        return cls(frame, frame.index(struct.pack(">q", marker)))

    def at(self, offset: int) -> bytes:
        struct.pack_into(">q", self.frame, self.position, offset)
        return bytes(self.frame)


def last_offset_in(response: memoryview) -> int:
    """Of the only partition's records in a Fetch response (without size); -1 if there are none.

    Layout after correlation id and tags: throttle time, error, session, one topic (id), one
    partition (index, error, three offsets, aborted transactions, preferred replica), records.
    """
    (error,) = struct.unpack_from(">h", response, 9)
    position = 4 + 1 + 4 + 2 + 4 + 1 + 16 + 1 + 4
    (partition_error,) = struct.unpack_from(">h", response, position)
    assert error == partition_error == 0, f"fetch failed: {error} {partition_error}"
    position += 2 + 8 + 8 + 8
    aborted, position = read_varint(response, position)
    position += max(aborted - 1, 0) * 17 + 4
    size, position = read_varint(response, position)
    end, last = position + size - 1, -1
    while position + HEADER_SIZE <= end:
        base, batch_size = struct.unpack_from(">qi", response, position)
        if position + 12 + batch_size > end:
            break
        (delta,) = struct.unpack_from(">i", response, position + 23)
        last = base + delta
        position += 12 + batch_size
    return last


def read_varint(data: memoryview, position: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, position
        shift += 7
