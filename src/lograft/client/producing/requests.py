"""Builds Produce requests from the bytes of batches."""

from collections.abc import Iterable
from struct import Struct
from typing import Final, NamedTuple
from uuid import UUID

from lograft.client.broker_connection import BrokerConnection
from lograft.client.core import ClientCore
from lograft.client.producing.settings import ProducerSettings
from lograft.model.seams import Buffer
from lograft.wire.apis import PRODUCE_KEY
from lograft.wire.headers import CORRELATION_ID_END, CORRELATION_ID_START, SIZE_BYTES, request_parts
from lograft.wire.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)
from lograft.wire.varints import uvarint

#: Since this version requests contain topic ids instead of names.
_TOPIC_IDS_SINCE: Final = 13
#: Up to this size, sending one buffer is cheaper than sending three.
_JOINED_BYTES_MAX: Final = 4 << 10
#: After the records: the empty tagged fields of partition, topic and request.
_TAGS: Final = bytes(3)


class Content(NamedTuple):
    topic: str
    partition: int
    records: Buffer


class SingleBatchRequest:
    """Builds requests with one batch for one partition, as a producer sends them that sends record
    by record. They differ only in correlation id and batch, so the codec encodes the rest once."""

    __slots__ = ("_head", "_pack", "_shared", "_size", "cache_key", "version")

    def __init__(
        self, cache_key: object, request: ProduceRequest, version: int, client_id: str
    ) -> None:
        """`request` has no records; `cache_key`: all that the encoded bytes depend on."""
        assert version >= ProduceRequest.FLEXIBLE_SINCE, (
            "older versions have no compact lengths and tagged fields"
        )
        self.cache_key = cache_key
        self.version = version
        whole = b"".join(request_parts(request, version, 0, client_id))
        self._head = whole[SIZE_BYTES:CORRELATION_ID_START]
        # The length of an empty batch has one byte.
        self._shared = whole[CORRELATION_ID_END : -1 - len(_TAGS)]
        self._size = len(whole) - SIZE_BYTES - 1
        self._pack = Struct(f">i{len(self._head)}si{len(self._shared)}s").pack

    def pack(self, correlation_id: int, records: Buffer) -> list[Buffer]:
        """Returns the frame as a list of buffers."""
        length = uvarint(len(records) + 1)
        size = self._size + len(length) + len(records)
        start = self._pack(size, self._head, correlation_id, self._shared) + length
        if size <= _JOINED_BYTES_MAX:
            return [b"".join((start, records, _TAGS))]
        return [start, records, _TAGS]


class ProduceRequests:
    def __init__(self, core: ClientCore[ProducerSettings]) -> None:
        settings = core.settings
        self._topics = core.metadata.cache
        self._transactional_id = settings.transactional_id
        self._acks = settings.required_acks
        self._timeout_ms = settings.request_timeout_ms
        #: The last one of each partition.
        self._single: dict[tuple[str, int], SingleBatchRequest] = {}

    def build(self, contents: Iterable[Content], version: int) -> ProduceRequest:
        topics: dict[str, TopicProduceData] = {}
        for name, partition, records in contents:
            topic = topics.get(name)
            if topic is None:
                topic = topics[name] = TopicProduceData(name=name)
                if version >= _TOPIC_IDS_SINCE:
                    topic.topic_id = self._id_of(name)
            topic.partition_data.append(PartitionProduceData(index=partition, records=records))
        return ProduceRequest(
            transactional_id=self._transactional_id,
            acks=self._acks,
            timeout_ms=self._timeout_ms,
            topic_data=list(topics.values()),
        )

    def single_batch(
        self, topic: str, partition: int, connection: BrokerConnection, at_most: int | None
    ) -> SingleBatchRequest | None:
        """Returns a builder for requests with one batch, or None if the broker is too old.
        `at_most`: the maximum version."""
        cache_key = connection, at_most, self._id_of(topic)
        request = self._single.get((topic, partition))
        if request is None or request.cache_key != cache_key:
            version = connection.version_of(PRODUCE_KEY, at_most=at_most)
            if version < ProduceRequest.FLEXIBLE_SINCE:
                return None
            empty = self.build([Content(topic, partition, b"")], version)
            request = SingleBatchRequest(cache_key, empty, version, connection.client_id)
            self._single[topic, partition] = request
        return request

    def _id_of(self, name: str) -> UUID:
        known = self._topics.topic(name)
        assert known is not None, name
        return known.id
