"""Produce requests, made from the bytes of batches."""

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

#: With topic ids instead of names.
_TOPIC_IDS_SINCE: Final = 13
#: Up to this size one piece is cheaper to send than three.
_JOINED_BYTES_MAX: Final = 4 << 10
#: Behind the records: tags of the partition, of the topic, of the request.
_TAGS: Final = bytes(3)


class Content(NamedTuple):
    topic: str
    partition: int
    records: Buffer


class LoneRequest:
    """One batch for one partition: the requests of a producer that sends record by record. They
    are equal but for their numbers and their batches, so the codec writes the rest only once."""

    __slots__ = ("_head", "_pack", "_shared", "_size", "meaning", "version")

    def __init__(
        self, meaning: object, request: ProduceRequest, version: int, client_id: str
    ) -> None:
        """`request` has no records; `meaning`: what the bytes depend on."""
        assert version >= ProduceRequest.FLEXIBLE_SINCE, "lengths are compact, tags are there"
        self.meaning = meaning
        self.version = version
        whole = b"".join(request_parts(request, version, 0, client_id))
        self._head = whole[SIZE_BYTES:CORRELATION_ID_START]
        # An empty batch has a length of one byte.
        self._shared = whole[CORRELATION_ID_END : -1 - len(_TAGS)]
        self._size = len(whole) - SIZE_BYTES - 1
        self._pack = Struct(f">i{len(self._head)}si{len(self._shared)}s").pack

    def parts(self, number: int, records: Buffer) -> list[Buffer]:
        length = uvarint(len(records) + 1)
        size = self._size + len(length) + len(records)
        start = self._pack(size, self._head, number, self._shared) + length
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
        #: Of each partition, as it was made last.
        self._lone: dict[tuple[str, int], LoneRequest] = {}

    def of(self, contents: Iterable[Content], version: int) -> ProduceRequest:
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

    def lone(
        self, topic: str, partition: int, link: BrokerConnection, at_most: int | None
    ) -> LoneRequest | None:
        """`at_most`: of the version. None: the broker is too old for it."""
        meaning = link, at_most, self._id_of(topic)
        found = self._lone.get((topic, partition))
        if found is None or found.meaning != meaning:
            version = link.version_of(PRODUCE_KEY, at_most=at_most)
            if version < ProduceRequest.FLEXIBLE_SINCE:
                return None
            bare = self.of([Content(topic, partition, b"")], version)
            found = LoneRequest(meaning, bare, version, link.client_id)
            self._lone[topic, partition] = found
        return found

    def _id_of(self, name: str) -> UUID:
        known = self._topics.topic(name)
        assert known is not None, name
        return known.id
