"""Checks that the records that the node has acknowledged still exist, in topics that no request may
delete from."""

from typing import NamedTuple
from uuid import UUID

from lograft.model.errors import ErrorCode
from lograft.wire.batches import (
    HEADER_SIZE,
    Record,
    check_crc,
    iterate_headers,
    read_header,
    read_records,
)
from lograft.wire.errors import MalformedMessage
from lograft.wire.message import Message
from lograft.wire.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic
from lograft.wire.messages.produce import ProduceRequest, ProduceResponse
from tests.fuzz.hostile_requests import KEPT
from tests.fuzz.simulated_node import SimulatedNode

UNPACKED_BYTES_MAX = 1 << 20
FETCH_VERSION = 16


class Key(NamedTuple):
    topic_id: UUID
    partition: int


class Ledger:
    def __init__(self) -> None:
        #: By partition and base offset: the batch as it was sent.
        self._batches: dict[Key, dict[int, bytes]] = {}
        self.acknowledged = 0

    def note(self, node: SimulatedNode, request: Message, response: Message) -> None:
        if not isinstance(request, ProduceRequest):
            return
        assert isinstance(response, ProduceResponse)
        kept_ids = {node.image.topic_ids[name] for name in KEPT}
        for topic, results in zip(request.topic_data, response.responses, strict=True):
            topic_id = (
                topic.topic_id if topic.topic_id.int else node.image.topic_ids.get(topic.name)
            )
            if topic_id not in kept_ids:
                continue
            pairs = zip(topic.partition_data, results.partition_responses, strict=True)
            for data, result in pairs:
                assert data.index == result.index
                if result.error_code == ErrorCode.NONE:
                    assert isinstance(data.records, memoryview | bytes)
                    self.acknowledged += 1
                    # A duplicate gets the offset of the original batch.
                    known = self._batches.setdefault(Key(topic_id, data.index), {})
                    known.setdefault(result.base_offset, bytes(data.records))

    def check(self, node: SimulatedNode) -> None:
        for name in KEPT:
            topic_id = node.image.topic_ids[name]
            for index in node.image.topics[topic_id].partitions:
                stored = node.run(_read_all(node, topic_id, index))
                for offset, sent in self._batches.get(Key(topic_id, index), {}).items():
                    assert offset in stored, f"{name}-{index}: offset {offset} was acknowledged"
                    _check_same(sent, stored[offset], f"{name}-{index} at {offset}")


async def _read_all(node: SimulatedNode, topic_id: UUID, index: int) -> dict[int, bytes]:
    """Returns all batches by base offset; checks that there are no gaps, and every CRC."""
    found: dict[int, bytes] = {}
    offset, high_watermark = 0, 1
    while offset < high_watermark:
        partition = FetchPartition(
            partition=index, fetch_offset=offset, partition_max_bytes=1 << 20
        )
        request = FetchRequest(
            max_bytes=1 << 20,
            session_epoch=-1,
            topics=[FetchTopic(topic_id=topic_id, partitions=[partition])],
        )
        response = await node.ask(request, FETCH_VERSION, FetchResponse)
        (result,) = response.responses[0].partitions
        assert result.error_code == ErrorCode.NONE, ErrorCode(result.error_code)
        high_watermark = result.high_watermark
        data = result.records
        assert isinstance(data, bytes | memoryview)
        if high_watermark == 0:
            break
        assert len(data), f"nothing at {offset} of {high_watermark}"
        for position, header in iterate_headers(data):
            assert header.base_offset == offset, (header, offset)
            assert check_crc(data, position, header.size_bytes), (index, offset)
            found[offset] = bytes(data[position : position + header.size_bytes])
            offset = header.last_offset + 1
    return found


def _check_same(sent: bytes, stored: bytes, where: str) -> None:
    before, after = read_header(sent), read_header(stored)
    if before.producer_id >= 0:
        # A hostile producer repeats a sequence with other records: the first ones are kept.
        assert before[9:] == after[9:], where
    elif sent[HEADER_SIZE:] == stored[HEADER_SIZE:]:
        assert before.record_count == after.record_count, where
    else:
        assert _contents(sent) == _contents(stored), where


def _contents(batch: bytes) -> list[Record] | None:
    """Returns the records without offsets and timestamps, which the broker may set."""
    try:
        records = read_records(batch, bytes_max=UNPACKED_BYTES_MAX)
    except MalformedMessage:
        return None
    return [record._replace(offset=0, timestamp=0) for record in records]
