"""The fast path of frequent Produce requests: one batch for one partition.

A client's requests for one partition differ only in their correlation id and their records. The
first one takes the general path and leaves a pattern: the bytes that all of them share, and those
that all responses share. A later frame with these bytes needs no decoding, and its response is one
`pack`. Patterns are built by the general codec, so both paths give the same bytes.

A frame without a pattern takes the general path, and so does one that cannot be appended: nothing
has changed by then, so the request can start again. (A batch that begins a transaction may have
added its partition to it, which can be repeated.) The rules of the partition are checked for every
request. With an authorizer, a pattern belongs to a principal, a host and a version of the ACLs, of
which a key is part of the compared bytes, and exists only if they permit the request: the next
request after a change takes the general path. There is no fast path while quotas are configured.
"""

from struct import Struct
from typing import Final

from lograft.api import produce
from lograft.api.context import Context
from lograft.api.produce import ATTRIBUTES_AT, MAGIC_AT, TOPIC_IDS_SINCE
from lograft.api.produce_acks import DelayedAck, ResponsePattern
from lograft.api.produce_transactions import verify_immediately
from lograft.broker.broker import Broker
from lograft.model.errors import ErrorCode, LograftError
from lograft.model.exchange import EncodedResponse
from lograft.model.types import INTERNAL_TOPICS
from lograft.wire.apis import PRODUCE_KEY
from lograft.wire.batches import HEADER_SIZE, MAGIC, TRANSACTIONAL_FLAG
from lograft.wire.codec import write
from lograft.wire.headers import write_request_header
from lograft.wire.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)

#: Compact lengths and tags: the versions of current clients.
VERSIONS: Final = range(9, 14)
#: Shared by the connections of a listener. When it is reached, all patterns are discarded.
PATTERNS_MAX: Final = 4096
#: Longer patterns, which include the client id, are not stored.
SHARED_BYTES_MAX: Final = 512
#: Every request that fits the fast path has at least this size; its first bytes need no checks.
FRAME_BYTES_MIN: Final = 100
#: API key, version, correlation id, size of the client id.
_HEAD: Final = Struct(">hhih").unpack_from
#: Patterns compare what follows the correlation id, up to the size of the records.
_COMPARED_FROM: Final = 8
#: From the end of the client id to the transactional id: tags.
_TO_TRANSACTIONAL_ID: Final = 10 + 1
#: From the end of the client id to the topic, if the transactional id is null: tags, that id, acks,
#: timeout, count.
_TO_TOPIC: Final = 10 + 9
#: Topic id, count, partition.
_ID_TO_RECORDS: Final = 16 + 1 + 4
#: The name's size byte includes itself; then count, partition.
_NAME_TO_RECORDS: Final = 1 + 4
#: Four bytes are enough for the size of the records of the longest frame.
_LENGTH_SHIFT_MAX: Final = 21
#: Tags of the partition, of the topic, of the request.
_TAGS_BYTES: Final = 3


class ProducePatterns:
    __slots__ = (
        "_broker",
        "_count",
        "_listener",
        "_patterns",
        "errors",
        "measured",
        "served",
        "timed_at",
    )

    def __init__(self, broker: Broker, listener: str) -> None:
        self._broker = broker
        self._listener = listener
        #: Indexed by version, then by the bytes that requests share.
        self._patterns: tuple[dict[bytes, ResponsePattern], ...] = ()
        self.forget()
        #: Number of requests that the fast path served.
        self.served = 0
        #: The number of served requests after which the next one is measured.
        self.timed_at = 1
        #: `served` when the last one was measured.
        self.measured = 0
        #: Error codes of responses, with their number.
        self.errors: dict[ErrorCode, int] = {}

    def forget(self) -> None:
        self._count = 0
        self._patterns = tuple({} for _ in range(VERSIONS.stop))

    def serve(
        self, frame: memoryview, access: bytes
    ) -> bytes | EncodedResponse | DelayedAck | None:
        """Returns the response, or one that waits; or None, and then nothing has changed.
        `access` is the key of the sender (`access_key`)."""
        size = len(frame)
        if size < FRAME_BYTES_MIN:
            return None
        _, version, correlation_id, at = _HEAD(frame)
        if not 9 <= version <= 13 or not 0 <= at < size - _TO_TOPIC - _ID_TO_RECORDS:
            return None
        # Compact: the size plus one, 0 for null. A longer id matches no pattern, like everything
        # else that is misread here.
        id_size = frame[at + _TO_TRANSACTIONAL_ID]
        at += _TO_TOPIC + (id_size - 1 if id_size else 0)
        if at + _ID_TO_RECORDS >= size:
            return None
        at += _ID_TO_RECORDS if version == TOPIC_IDS_SINCE else frame[at] + _NAME_TO_RECORDS
        pattern = self._patterns[version].get(bytes(frame[_COMPARED_FROM:at]) + access)
        if pattern is None or at + HEADER_SIZE >= size:
            return None
        length = shift = 0
        while (byte := frame[at]) >= 0x80 and shift < _LENGTH_SHIFT_MAX:
            length |= (byte & 0x7F) << shift
            shift += 7
            at += 1
        at += 1
        # Compact: the size plus one.
        end = at + (length | byte << shift) - 1
        if end + _TAGS_BYTES != size or end - at < HEADER_SIZE:
            return None
        if frame[end] or frame[end + 1] or frame[end + 2]:
            return None
        records = frame[at:end]
        if records[MAGIC_AT] != MAGIC:
            return None
        return self._append(pattern, correlation_id, records)

    def _append(
        self, pattern: ResponsePattern, correlation_id: int, records: memoryview
    ) -> bytes | EncodedResponse | DelayedAck | None:
        partition = pattern.partition()
        if partition is None or partition.topic in INTERNAL_TOPICS:
            return None
        acks = pattern.acks
        broker = self._broker
        verification = None
        try:
            if records[ATTRIBUTES_AT] & TRANSACTIONAL_FLAG:
                if pattern.transactional_id is None:
                    # The general path decides whether it is permitted.
                    return None
                verification = verify_immediately(
                    broker, pattern.version, pattern.transactional_id, partition, records
                )
            now_ms = broker.clock.wall_ms()
            result = produce.append(partition, records, now_ms, acks, verification=verification)
        except LograftError:
            return None
        self.served += 1
        try:
            if produce.is_acknowledged(partition, result.end_offset, acks):
                return pattern.build_success(correlation_id, result)
        except LograftError as error:
            return pattern.build_failure(correlation_id, error)
        return DelayedAck(pattern, correlation_id, partition, result)

    def learn(
        self, frame: memoryview, context: Context, request: ProduceRequest, access: bytes
    ) -> None:
        """Adds the pattern of a frequent request that the general path has handled."""
        version, client_id = context.api_version, context.client_id
        if version not in VERSIONS or client_id is None or len(request.topic_data) != 1:
            return
        (topic,) = request.topic_data
        if len(topic.partition_data) != 1 or request.acks not in (
            produce.ACKS_LEADER,
            produce.ACKS_ALL,
        ):
            return
        index = topic.partition_data[0].index
        # Encodes the same request again, without records.
        bare = _bare_request(request, topic, index)
        head = write_request_header(PRODUCE_KEY, version, 0, client_id)
        shared = (head + write(bare, version))[_COMPARED_FROM : -1 - _TAGS_BYTES]
        if (
            len(shared) > SHARED_BYTES_MAX
            or shared + access in self._patterns[version]
            or frame[_COMPARED_FROM : _COMPARED_FROM + len(shared)] != shared
            or not produce.is_permitted(context, request)
        ):
            return
        if self._count == PATTERNS_MAX:
            self.forget()
        self._count += 1
        self._patterns[version][shared + access] = ResponsePattern(
            self._broker, self._listener, version, request, self.errors
        )


def _bare_request(request: ProduceRequest, topic: TopicProduceData, index: int) -> ProduceRequest:
    return ProduceRequest(
        transactional_id=request.transactional_id,
        acks=request.acks,
        timeout_ms=request.timeout_ms,
        topic_data=[
            TopicProduceData(
                name=topic.name,
                topic_id=topic.topic_id,
                partition_data=[PartitionProduceData(index=index, records=b"")],
            )
        ],
    )
