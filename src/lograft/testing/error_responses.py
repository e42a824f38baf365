"""Error responses to a request, or to some of the partitions in it.

If only some partitions of a request get an error, the rest of the request is handled, and both
responses are merged. A fetch is not handled in this case: its client sends the next one anyway.
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
#: Field values of a partition with an error.
_EMPTY_FIELDS: Final = {"base_offset": -1, "high_watermark": -1, "records": b""}


@dataclass(frozen=True, slots=True)
class Shape:
    """The names of the fields with topics and partitions, in the request and in the response."""

    topics: str = "topics"
    partitions: str = "partitions"
    index: str = "partition_index"
    response_topics: str = "topics"
    response_partitions: str = "partitions"
    response_index: str = "partition_index"


SHAPES: Final[dict[int, Shape]] = {
    ProduceRequest.KEY: Shape(
        "topic_data", "partition_data", "index", "responses", "partition_responses", "index"
    ),
    FetchRequest.KEY: Shape(index="partition", response_topics="responses"),
    ListOffsetsRequest.KEY: Shape(),
    OffsetCommitRequest.KEY: Shape(),
    TxnOffsetCommitRequest.KEY: Shape(),
    DeleteRecordsRequest.KEY: Shape(),
    OffsetForLeaderEpochRequest.KEY: Shape(index="partition", response_index="partition"),
}


def has_partition_errors(key: int) -> bool:
    return key in SHAPES


def _read(frame: memoryview) -> tuple[RequestHeader, Any]:
    header = read_request_header(frame)
    request, _ = read(
        request_class(header.api_key), header.api_version, frame, header.body_position
    )
    return header, request


def _name_of(topic: Any, router: Router) -> str:
    """Returns the name of a topic; newer versions of requests contain only its id."""
    name: str = getattr(topic, "name", "") or getattr(topic, "topic", "")
    if name:
        return name
    state = router.shared.image.topics.get(topic.topic_id)
    return "" if state is None else state.name


def _is_selected(name: str, index: int, topic: str | None, partition: int | None) -> bool:
    return topic in (None, name) and partition in (None, index)


class Match(Enum):
    YES = "yes"
    NO = "no"
    #: An incremental fetch, which does not name all partitions of its session.
    UNKNOWN = "unknown"


def match_partition(
    frame: memoryview, router: Router, topic: str | None, partition: int | None
) -> Match:
    """Returns whether the request contains the partition; None matches any."""
    header, request = _read(frame)
    shape = SHAPES.get(header.api_key)
    if shape is None:
        return Match.YES
    for topic_item in getattr(request, shape.topics):
        name = _name_of(topic_item, router)
        for item in getattr(topic_item, shape.partitions):
            if _is_selected(name, getattr(item, shape.index), topic, partition):
                return Match.YES
    is_incremental = header.api_key == FETCH_KEY and request.session_epoch > 0
    return Match.UNKNOWN if is_incremental else Match.NO


@dataclass(frozen=True, slots=True)
class ErrorResponse:
    header: RequestHeader
    response: Any
    #: The frame of the request without the partitions that get an error; None if none remain.
    rest: memoryview | None

    def encode(self) -> EncodedResponse:
        version = self.header.api_version
        parts = frame_response(
            self.response,
            version,
            correlation_id=self.header.correlation_id,
            header_version=response_header_version(self.header.api_key, version),
        )
        return EncodedResponse(parts)

    def merge(self, handled: EncodedResponse | None) -> EncodedResponse | None:
        """Merges the errors into the response to the rest; None if no response is expected."""
        if handled is None:
            return None
        header = self.header
        kind = response_class(header.api_key)
        data = b"".join(
            part.file.pread(part.size, part.position) if isinstance(part, FileSlice) else part
            for part in handled.parts
        )
        header_version = response_header_version(header.api_key, header.api_version)
        _, position = read_response_header(memoryview(data)[_LENGTH_BYTES:], header_version)
        response: Any = read_all(kind, header.api_version, data, _LENGTH_BYTES + position)
        topics = SHAPES[header.api_key].response_topics
        getattr(response, topics).extend(getattr(self.response, topics))
        return ErrorResponse(header, response, None).encode()


def build_error_response(
    frame: memoryview, router: Router, code: ErrorCode, topic: str | None, partition: int | None
) -> ErrorResponse:
    header, request = _read(frame)
    if header.api_key not in SHAPES:
        return ErrorResponse(header, _request_error(router, request, code), None)
    response: Any = response_class(header.api_key)()
    is_fetch = header.api_key == FETCH_KEY
    if is_fetch and code in _OF_SESSIONS:
        response.error_code = code
        return ErrorResponse(header, response, None)
    has_rest = _move_failed(request, response, router, code, topic, partition)
    if not has_rest or is_fetch:
        return ErrorResponse(header, response, None)
    rest = frame_request(
        request,
        header.api_version,
        correlation_id=header.correlation_id,
        client_id=header.client_id,
    )
    return ErrorResponse(header, response, memoryview(bytearray(rest))[_LENGTH_BYTES:])


def _request_error(router: Router, request: Message, code: ErrorCode) -> Message:
    route = router.route(request.KEY)
    if route.error_response is None:
        raise CloseConnection(f"{route.spec.name} has no response for {code.name}")
    return route.error_response(request, code, "injected fault")


def _move_failed(
    request: Any,
    response: Any,
    router: Router,
    code: ErrorCode,
    topic: str | None,
    partition: int | None,
) -> bool:
    """Moves failed partitions from the request to the response; returns whether any are left."""
    shape = SHAPES[request.KEY]
    topic_class = _element_class(type(response), shape.response_topics)
    partition_class = _element_class(topic_class, shape.response_partitions)
    rest = []
    for topic_item in getattr(request, shape.topics):
        name = _name_of(topic_item, router)
        response_topic: Any = topic_class()
        for field in ("name", "topic", "topic_id"):
            if hasattr(topic_item, field) and hasattr(response_topic, field):
                setattr(response_topic, field, getattr(topic_item, field))
        others = []
        for item in getattr(topic_item, shape.partitions):
            index = getattr(item, shape.index)
            if not _is_selected(name, index, topic, partition):
                others.append(item)
                continue
            error: Any = partition_class()
            setattr(error, shape.response_index, index)
            error.error_code = code
            for field, value in _EMPTY_FIELDS.items():
                if hasattr(error, field):
                    setattr(error, field, value)
            getattr(response_topic, shape.response_partitions).append(error)
        if getattr(response_topic, shape.response_partitions):
            getattr(response, shape.response_topics).append(response_topic)
        if others:
            setattr(topic_item, shape.partitions, others)
            rest.append(topic_item)
    setattr(request, shape.topics, rest)
    return bool(rest)


def _element_class(kind: Any, name: str) -> Any:
    """Returns the class of the elements of a list field."""
    return next(field for field in kind.FIELDS if field.name == name).element
