"""Request and response headers, in both directions, and whole frames.

Written by hand because the header is read first: before the version is known to be supported, and
before the peer has been identified.
"""

from struct import Struct
from typing import Final, NamedTuple

from lograft.model.seams import Buffer, FileSlice, Part
from lograft.wire.apis import API_VERSIONS, request_header_version
from lograft.wire.codec import write_tail
from lograft.wire.errors import MalformedMessage
from lograft.wire.message import Message
from lograft.wire.varints import skip_tags

#: No header needs more, and it is read before the peer is identified.
HEADER_TAGS_MAX: Final = 64

#: Positions in a request: the correlation id follows size, key and version.
SIZE_BYTES: Final = 4
CORRELATION_ID_START: Final = 8
CORRELATION_ID_END: Final = 12

_FIXED: Final = Struct(">hhih")
_CORRELATION: Final = Struct(">i")
_SIZE_AND_CORRELATION: Final = (Struct(">ii"), Struct(">iix"))

_NONE: Final = range(0)
#: By API: the versions whose header has tagged fields.
_FLEXIBLE_VERSIONS: Final = {
    key: range(spec.flexible_since, (spec.unstable_version or spec.max_version) + 1)
    for key, spec in API_VERSIONS.items()
}


class RequestHeader(NamedTuple):
    api_key: int
    api_version: int
    correlation_id: int
    client_id: str | None
    #: Position of the body in the frame.
    body_position: int


def read_request_header(frame: Buffer) -> RequestHeader:
    """Reads the header of a frame (without its size).

    An unknown API or version is not an error here: the caller handles it. The part of the header
    that all versions share is read, and the position of its body is meaningless.
    """
    end = len(frame)
    if end < 10:
        raise MalformedMessage(f"request of {end} bytes")
    api_key, version, correlation_id, size = _FIXED.unpack_from(frame, 0)
    position = 10
    client_id = None
    if size >= 0:
        position += size
        if position > end:
            raise MalformedMessage(f"client id of {size} bytes in a request of {end}")
        try:
            client_id = str(frame[10:position], "utf-8")
        except UnicodeDecodeError as error:
            raise MalformedMessage("client id is not UTF-8") from error
    if version in _FLEXIBLE_VERSIONS.get(api_key, _NONE):
        position = _skip_header_tags(frame, position, end)
    return RequestHeader(api_key, version, correlation_id, client_id, position)


def _skip_header_tags(frame: Buffer, position: int, end: int) -> int:
    try:
        count = frame[position]
        position += 1
        if count == 0:
            return position
        if count > HEADER_TAGS_MAX:
            raise MalformedMessage(f"more than {HEADER_TAGS_MAX} tagged fields in a header")
        return skip_tags(frame, position, end, count)
    except IndexError:
        raise MalformedMessage("header is truncated") from None


def write_request_header(
    api_key: int, api_version: int, correlation_id: int, client_id: str | None
) -> bytes:
    name = b"" if client_id is None else client_id.encode()
    size = -1 if client_id is None else len(name)
    head = _FIXED.pack(api_key, api_version, correlation_id, size) + name
    return head + b"\0" if request_header_version(api_key, api_version) == 2 else head


def read_response_header(frame: Buffer, header_version: int) -> tuple[int, int]:
    """Returns the correlation id and the position of the body."""
    if len(frame) < 4:
        raise MalformedMessage(f"response of {len(frame)} bytes")
    (correlation_id,) = _CORRELATION.unpack_from(frame, 0)
    position = 4
    if header_version:
        position = _skip_header_tags(frame, position, len(frame))
    return correlation_id, position


def frame_request(
    message: Message, version: int, *, correlation_id: int, client_id: str | None
) -> bytes:
    """Returns a complete request, including its size."""
    return b"".join(request_parts(message, version, correlation_id, client_id))


def request_parts(
    message: Message, version: int, correlation_id: int, client_id: str | None
) -> list[Buffer]:
    """Returns a complete request, including its size; its records are not copied."""
    head = write_request_header(message.KEY, version, correlation_id, client_id)
    parts: list[Part] = []
    tail = write_tail(message, version, parts)
    if not parts:
        return [_CORRELATION.pack(len(head) + len(tail)) + head + tail]
    pieces: list[Buffer] = [head]
    for part in parts:
        assert not isinstance(part, FileSlice), "the parts of a request are in memory"
        pieces.append(part)
    if tail:
        pieces.append(tail)
    pieces[0] = _CORRELATION.pack(sum(map(len, pieces))) + head
    return pieces


def frame_response(
    message: Message, version: int, *, correlation_id: int, header_version: int
) -> list[Part]:
    """Returns a complete response as parts: size, header, body. Small ones are a single part."""
    parts: list[Part] = []
    tail = write_tail(message, version, parts)
    head = _SIZE_AND_CORRELATION[header_version]
    size = len(tail) + head.size - 4
    if not parts:
        return [head.pack(size, correlation_id) + tail]
    for part in parts:
        size += part.size if type(part) is FileSlice else len(part)
    first = parts[0]
    assert isinstance(first, bytes)
    parts[0] = head.pack(size, correlation_id) + first
    if tail:
        parts.append(tail)
    return parts
