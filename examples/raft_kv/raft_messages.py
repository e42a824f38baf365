"""Encodes the messages of `lograft.consensus.messages` for other servers.

A message is a tuple of its kind, as an index of KINDS, and its fields. Decoding checks only the
types of the fields: the core accepts any message in any state.
"""

from dataclasses import fields
from types import UnionType
from typing import Any, Final, get_args, get_origin, get_type_hints
from uuid import UUID

from examples.raft_kv.entries import slice_of
from examples.raft_kv.packing import Malformed, Value, content, number, values
from lograft.consensus import messages
from lograft.consensus.messages import Error, Message
from lograft.consensus.types import LogSlice

KINDS: Final = (
    messages.VoteRequest,
    messages.VoteResponse,
    messages.BeginQuorumEpochRequest,
    messages.BeginQuorumEpochResponse,
    messages.EndQuorumEpochRequest,
    messages.EndQuorumEpochResponse,
    messages.FetchRequest,
    messages.FetchResponse,
    messages.FetchSnapshotRequest,
    messages.FetchSnapshotResponse,
)
#: Fields that are not sent: this group has a single life, and the server that requested a
#: vote knows the request.
_LOCAL: Final = {"life", "read_from", "VoteResponse.pre_vote"}
#: Names and types of the other fields.
_FIELDS: Final[dict[type[Message], dict[str, Any]]] = {
    kind: {
        field.name: get_type_hints(kind)[field.name]
        for field in fields(kind)
        if not _LOCAL & {field.name, f"{kind.__name__}.{field.name}"}
    }
    for kind in KINDS
}
_ERRORS: Final = tuple(Error)
#: Values of one tuple.
PARTS_MAX: Final = 100


def to_values(message: Message) -> tuple[Value, ...]:
    kind = type(message)
    assert kind in KINDS, f"{kind.__name__} is not sent to other servers"
    parts = (_value_of(getattr(message, name)) for name in _FIELDS[kind])
    return (KINDS.index(kind), *parts)


def _value_of(part: Any) -> Value:
    if isinstance(part, Error):
        return _ERRORS.index(part)
    if isinstance(part, UUID):
        return part.bytes
    if isinstance(part, LogSlice):
        return _value_of(part.data)
    if isinstance(part, tuple):
        return tuple(_value_of(each) for each in part)
    assert part is None or isinstance(part, int | bytes), part
    return part


def from_values(parts: tuple[Value, ...]) -> Message:
    """Raises Malformed."""
    place = number(parts[0]) if parts else -1
    if not 0 <= place < len(KINDS):
        raise Malformed("unknown kind of message")
    kind = KINDS[place]
    return kind(**dict(zip(_FIELDS[kind], _read_all(_FIELDS[kind], parts[1:]), strict=True)))


def _read_all(types: dict[str, Any], parts: Value) -> list[Any]:
    found = values(parts, len(types))
    return [_read(wanted, part) for wanted, part in zip(types.values(), found, strict=True)]


def _read(wanted: Any, part: Value) -> Any:
    wanted = getattr(wanted, "__supertype__", wanted)  # Offset, Epoch, NodeId: int
    if get_origin(wanted) is UnionType:
        return None if part is None else _read(get_args(wanted)[0], part)
    if get_origin(wanted) is tuple:
        found = values(part)
        if len(found) > PARTS_MAX:
            raise Malformed(f"{len(found)} values in a tuple exceed the maximum of {PARTS_MAX}")
        return tuple(_read(get_args(wanted)[0], each) for each in found)
    if wanted is LogSlice:
        return slice_of(content(part))
    if wanted is bytes:
        return content(part)
    if wanted is UUID:
        if len(raw := content(part)) != 16:
            raise Malformed(f"a directory id of {len(raw)} bytes")
        return UUID(bytes=raw)
    if wanted is Error:
        if not 0 <= (place := number(part)) < len(_ERRORS):
            raise Malformed(f"unknown error {place}")
        return _ERRORS[place]
    if wanted in (int, bool):
        return wanted(number(part))
    return wanted(*_read_all(get_type_hints(wanted), part))  # a NamedTuple
