"""Answers that refuse a request, or some of the partitions that it names.

A request of which only some partitions are refused goes on without them, and what comes of that is
put together with the refusals. A fetch is answered at once instead: whoever fetches asks again.
"""

from dataclasses import dataclass
from enum import Enum
from typing import Any, Final

from lograft.api.router import Router
from lograft.model.errors import ErrorCode
from lograft.model.exchange import CloseConnection, EncodedResponse
from lograft.model.seams import FileSlice
from lograft.wire.apis import FETCH_KEY, request_class, response_class, response_header_version
from lograft.wire.codec import read, read_all
from lograft.wire.headers import (
    RequestHeader,
    frame_request,
    frame_response,
    read_request_header,
    read_response_header,
)
from lograft.wire.message import Message
from lograft.wire.messages.delete_records import DeleteRecordsRequest
from lograft.wire.messages.fetch import FetchRequest
from lograft.wire.messages.list_offsets import ListOffsetsRequest
from lograft.wire.messages.offset_commit import OffsetCommitRequest
from lograft.wire.messages.offset_for_leader_epoch import OffsetForLeaderEpochRequest
from lograft.wire.messages.produce import ProduceRequest
from lograft.wire.messages.txn_offset_commit import TxnOffsetCommitRequest

_LENGTH_BYTES: Final = 4
#: Errors of a whole fetch, not of its partitions.
_OF_SESSIONS: Final = (
    ErrorCode.FETCH_SESSION_ID_NOT_FOUND,
    ErrorCode.INVALID_FETCH_SESSION_EPOCH,
    ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR,
)
#: What a partition says that has nothing to say.
_NOTHING: Final = {"base_offset": -1, "high_watermark": -1, "records": b""}


@dataclass(frozen=True, slots=True)
class Shape:
    """What the fields are called that name topics and partitions."""

    topics: str = "topics"
    partitions: str = "partitions"
    index: str = "partition_index"
    topics_told: str = "topics"
    partitions_told: str = "partitions"
    index_told: str = "partition_index"


SHAPES: Final[dict[int, Shape]] = {
    ProduceRequest.KEY: Shape(
        "topic_data", "partition_data", "index", "responses", "partition_responses", "index"
    ),
    FetchRequest.KEY: Shape(index="partition", topics_told="responses"),
    ListOffsetsRequest.KEY: Shape(),
    OffsetCommitRequest.KEY: Shape(),
    TxnOffsetCommitRequest.KEY: Shape(),
    DeleteRecordsRequest.KEY: Shape(),
    OffsetForLeaderEpochRequest.KEY: Shape(index="partition", index_told="partition"),
}


def fails_by_partition(key: int) -> bool:
    return key in SHAPES


def _read(frame: memoryview) -> tuple[RequestHeader, Any]:
    header = read_request_header(frame)
    request, _ = read(
        request_class(header.api_key), header.api_version, frame, header.body_position
    )
    return header, request


def _name_of(topic: Any, router: Router) -> str:
    """Newer versions name topics by their ids."""
    name: str = getattr(topic, "name", "") or getattr(topic, "topic", "")
    if name:
        return name
    known = router.shared.image.topics.get(topic.topic_id)
    return "" if known is None else known.name


def _is_meant(name: str, index: int, topic: str | None, partition: int | None) -> bool:
    return topic in (None, name) and partition in (None, index)


class Asked(Enum):
    YES = "yes"
    NO = "no"
    #: A fetch of a session, which does not say again what it is for.
    UNSAID = "unsaid"


def is_asked_for(
    frame: memoryview, router: Router, topic: str | None, partition: int | None
) -> Asked:
    """Whether the request names the partition; None is any."""
    header, request = _read(frame)
    shape = SHAPES.get(header.api_key)
    if shape is None:
        return Asked.YES
    for named in getattr(request, shape.topics):
        name = _name_of(named, router)
        for one in getattr(named, shape.partitions):
            if _is_meant(name, getattr(one, shape.index), topic, partition):
                return Asked.YES
    is_unsaid = header.api_key == FETCH_KEY and request.session_epoch > 0
    return Asked.UNSAID if is_unsaid else Asked.NO


@dataclass(frozen=True, slots=True)
class Refusal:
    header: RequestHeader
    response: Any
    #: The frame of what is left of the request, if anything is.
    rest: memoryview | None

    @property
    def answer(self) -> EncodedResponse:
        version = self.header.api_version
        parts = frame_response(
            self.response,
            version,
            correlation_id=self.header.correlation_id,
            header_version=response_header_version(self.header.api_key, version),
        )
        return EncodedResponse(parts)

    def merged(self, answer: EncodedResponse | None) -> EncodedResponse | None:
        """With what was answered to the rest; None: it wants no answer."""
        if answer is None:
            return None
        header = self.header
        kind = response_class(header.api_key)
        data = b"".join(
            part.file.pread(part.size, part.position) if isinstance(part, FileSlice) else part
            for part in answer.parts
        )
        header_version = response_header_version(header.api_key, header.api_version)
        _, position = read_response_header(memoryview(data)[_LENGTH_BYTES:], header_version)
        response: Any = read_all(kind, header.api_version, data, _LENGTH_BYTES + position)
        topics = SHAPES[header.api_key].topics_told
        getattr(response, topics).extend(getattr(self.response, topics))
        return Refusal(header, response, None).answer


def refused(
    frame: memoryview, router: Router, code: ErrorCode, topic: str | None, partition: int | None
) -> Refusal:
    header, request = _read(frame)
    if header.api_key not in SHAPES:
        return Refusal(header, _whole_refusal(router, request, code), None)
    response: Any = response_class(header.api_key)()
    is_fetch = header.api_key == FETCH_KEY
    if is_fetch and code in _OF_SESSIONS:
        response.error_code = code
        return Refusal(header, response, None)
    left = _move_refused(request, response, router, code, topic, partition)
    if not left or is_fetch:
        return Refusal(header, response, None)
    rest = frame_request(
        request,
        header.api_version,
        correlation_id=header.correlation_id,
        client_id=header.client_id,
    )
    return Refusal(header, response, memoryview(bytearray(rest))[_LENGTH_BYTES:])


def _whole_refusal(router: Router, request: Message, code: ErrorCode) -> Message:
    route = router.route(request.KEY)
    if route.error_response is None:
        raise CloseConnection(f"{route.spec.name} has no answer for {code.name}")
    return route.error_response(request, code, "a fault that the test asked for")


def _move_refused(
    request: Any,
    response: Any,
    router: Router,
    code: ErrorCode,
    topic: str | None,
    partition: int | None,
) -> bool:
    """Takes what is refused out of the request and into the response; whether anything is left."""
    shape = SHAPES[request.KEY]
    told_kind = _element(type(response), shape.topics_told)
    partition_kind = _element(told_kind, shape.partitions_told)
    left = []
    for named in getattr(request, shape.topics):
        name = _name_of(named, router)
        told: Any = told_kind()
        for field in ("name", "topic", "topic_id"):
            if hasattr(named, field) and hasattr(told, field):
                setattr(told, field, getattr(named, field))
        kept = []
        for one in getattr(named, shape.partitions):
            index = getattr(one, shape.index)
            if not _is_meant(name, index, topic, partition):
                kept.append(one)
                continue
            refusal: Any = partition_kind()
            setattr(refusal, shape.index_told, index)
            refusal.error_code = code
            for field, nothing in _NOTHING.items():
                if hasattr(refusal, field):
                    setattr(refusal, field, nothing)
            getattr(told, shape.partitions_told).append(refusal)
        if getattr(told, shape.partitions_told):
            getattr(response, shape.topics_told).append(told)
        if kept:
            setattr(named, shape.partitions, kept)
            left.append(named)
    setattr(request, shape.topics, left)
    return bool(left)


def _element(kind: Any, field: str) -> Any:
    """The class of the elements of a list."""
    return next(one for one in kind.FIELDS if one.name == field).element
