"""A minimal client: one connection, one request at a time, no retries.

It exposes what libraries hide: high watermark and log start offset of every fetch, the CRC of every
batch, the offset of a retried batch.
"""

import socket
import struct
from collections.abc import Mapping
from typing import Final, NamedTuple, TypeVar

from lograft.model.errors import ErrorCode
from lograft.model.types import TopicPartition
from lograft.wire.apis import response_header_version
from lograft.wire.batches import Record, build_batch, check_crc, iterate_headers, read_records
from lograft.wire.codec import read_all
from lograft.wire.headers import frame_request, read_response_header
from lograft.wire.message import Message
from lograft.wire.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from lograft.wire.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic
from lograft.wire.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from lograft.wire.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from lograft.wire.messages.metadata import MetadataRequest, MetadataResponse
from lograft.wire.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from tests.chaos.payloads import DamagedValue, uid_in
from tests.compatibility.readiness import receive_exactly
from tests.compatibility.servers import HOST

RESPONSE_SECONDS_MAX: Final = 15.0
LATEST: Final = -1
EARLIEST: Final = -2
FETCH_BYTES_MAX: Final = 1 << 20
BATCH_BYTES_MAX: Final = 16 << 20
#: The last versions with topic names, because these tests identify partitions by name.
PRODUCE_VERSION: Final = 12
FETCH_VERSION: Final = 12
M = TypeVar("M", bound=Message)


class ErrorResponse(Exception):
    """The response has an error code."""

    def __init__(self, code: int, message: str | None = None) -> None:
        super().__init__(f"{ErrorCode(code).name}: {message or ''}")
        self.code = code


class Fetched(NamedTuple):
    records: list[tuple[int, str]]
    high_watermark: int
    last_stable_offset: int
    log_start: int
    #: Offset for the next fetch.
    next_offset: int
    bytes_read: int
    bad_crc: bool


class RawClient:
    """Raises OSError if the connection breaks; the next call reconnects."""

    def __init__(self, port: int, *, name: str = "raw", host: str = HOST) -> None:
        self._address = (host, port)
        self._name = name
        self._socket: socket.socket | None = None

    def close(self) -> None:
        if self._socket is not None:
            self._socket.close()
            self._socket = None

    def __enter__(self) -> "RawClient":
        return self

    def __exit__(self, *_error: object) -> None:
        self.close()

    def request(self, request: Message, version: int, response_type: type[M]) -> M:
        try:
            if self._socket is None:
                self._socket = socket.create_connection(self._address, RESPONSE_SECONDS_MAX)
            frame = frame_request(request, version, correlation_id=1, client_id=self._name)
            self._socket.sendall(frame)
            (size,) = struct.unpack(">i", receive_exactly(self._socket, 4))
            data = receive_exactly(self._socket, size)
        except OSError:
            self.close()
            raise
        header_version = response_header_version(request.KEY, version)
        _correlation_id, position = read_response_header(data, header_version)
        return read_all(response_type, version, data, position)

    def topics(self) -> dict[str, dict[int, int]]:
        """Returns the error code of every partition by topic."""
        response = self.request(MetadataRequest(topics=None), 12, MetadataResponse)
        return {
            topic.name or "": {p.partition_index: p.error_code for p in topic.partitions}
            for topic in response.topics
        }

    def create_topic(
        self,
        name: str,
        *,
        partitions: int = 1,
        configs: Mapping[str, str] | None = None,
        replication_factor: int = 1,
    ) -> None:
        topic = CreatableTopic(
            name=name,
            num_partitions=partitions,
            replication_factor=replication_factor,
            configs=[
                CreatableTopicConfig(name=key, value=value)
                for key, value in (configs or {}).items()
            ],
        )
        request = CreateTopicsRequest(topics=[topic], timeout_ms=10_000)
        (created,) = self.request(request, 7, CreateTopicsResponse).topics
        if created.error_code:
            raise ErrorResponse(created.error_code, created.error_message)

    def producer_id(self) -> tuple[int, int]:
        """Returns a new producer ID and its epoch."""
        request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=60_000)
        response = self.request(request, 4, InitProducerIdResponse)
        if response.error_code:
            raise ErrorResponse(response.error_code)
        return response.producer_id, response.producer_epoch

    def produce(self, tp: TopicPartition, batch: bytes) -> int:
        """Sends a batch and returns its base offset."""
        return base_offset_in(
            self.request(produce_request(tp, batch), PRODUCE_VERSION, ProduceResponse)
        )

    def fetch(
        self, tp: TopicPartition, offset: int, *, wait_ms: int = 500, bytes_max: int = 0
    ) -> Fetched:
        request = fetch_request(tp, offset, wait_ms=wait_ms, bytes_max=bytes_max or FETCH_BYTES_MAX)
        return fetched_in(self.request(request, FETCH_VERSION, FetchResponse), offset)

    def offset_at(self, tp: TopicPartition, timestamp: int) -> int:
        """Returns the offset for a timestamp, LATEST or EARLIEST."""
        partition = ListOffsetsPartition(partition_index=tp.partition, timestamp=timestamp)
        topic = ListOffsetsTopic(name=tp.topic, partitions=[partition])
        request = ListOffsetsRequest(replica_id=-1, topics=[topic])
        (response,) = self.request(request, 7, ListOffsetsResponse).topics[0].partitions
        if response.error_code:
            raise ErrorResponse(response.error_code)
        return response.offset


def produce_request(tp: TopicPartition, batch: bytes) -> ProduceRequest:
    partition = PartitionProduceData(index=tp.partition, records=batch)
    data = TopicProduceData(name=tp.topic, partition_data=[partition])
    return ProduceRequest(acks=-1, timeout_ms=10_000, topic_data=[data])


def base_offset_in(response: ProduceResponse) -> int:
    (partition,) = response.responses[0].partition_responses
    if partition.error_code:
        raise ErrorResponse(partition.error_code, partition.error_message)
    return partition.base_offset


def fetch_request(
    tp: TopicPartition, offset: int, *, wait_ms: int, bytes_max: int = FETCH_BYTES_MAX
) -> FetchRequest:
    fetch_partition = FetchPartition(
        partition=tp.partition, fetch_offset=offset, partition_max_bytes=bytes_max
    )
    return FetchRequest(
        max_wait_ms=wait_ms,
        min_bytes=1,
        max_bytes=bytes_max,
        topics=[FetchTopic(topic=tp.topic, partitions=[fetch_partition])],
    )


def fetched_in(response: FetchResponse, offset: int) -> Fetched:
    if response.error_code:
        raise ErrorResponse(response.error_code)
    (partition,) = response.responses[0].partitions
    if partition.error_code:
        raise ErrorResponse(partition.error_code)
    data = partition.records
    assert data is None or isinstance(data, bytes | bytearray | memoryview)
    return unpack(
        memoryview(data or b""),
        offset,
        high_watermark=partition.high_watermark,
        last_stable_offset=partition.last_stable_offset,
        log_start=partition.log_start_offset,
    )


def unpack(
    data: memoryview,
    start: int,
    *,
    high_watermark: int,
    last_stable_offset: int,
    log_start: int,
) -> Fetched:
    """Decodes fetched bytes like a consumer, which drops records below the requested offset."""
    records: list[tuple[int, str]] = []
    next_offset, bytes_read, bad_crc = start, 0, False
    for position, header in iterate_headers(data):
        bytes_read += header.size_bytes
        next_offset = header.last_offset + 1
        if not check_crc(data, position, header.size_bytes):
            bad_crc = True
            continue
        batch = data[position : position + header.size_bytes]
        if header.is_control:
            continue
        for record in read_records(batch, bytes_max=BATCH_BYTES_MAX):
            try:
                uid = uid_in(record.value)
            except DamagedValue:
                bad_crc = True
            else:
                if record.offset >= start:
                    records.append((record.offset, uid))
    return Fetched(
        records, high_watermark, last_stable_offset, log_start, next_offset, bytes_read, bad_crc
    )


def batch_of(
    values: list[bytes],
    *,
    now_ms: int,
    keys: list[bytes] | None = None,
    producer_id: int = -1,
    producer_epoch: int = -1,
    sequence: int = -1,
) -> bytes:
    records = [
        Record(index, now_ms, keys[index] if keys else None, value)
        for index, value in enumerate(values)
    ]
    return build_batch(
        records,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        base_sequence=sequence,
    )
