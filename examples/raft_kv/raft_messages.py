"""What servers say to each other, to bytes and back: the values of `lograft.consensus.messages`.

A message is a tuple of its kind and its fields. A decoder checks types, not meaning: the core takes
any message in any state.
"""

from typing import Final
from uuid import UUID

from examples.raft_kv.entries import slice_of
from examples.raft_kv.packing import Malformed, Value, content, number, values
from lograft.consensus.messages import (
    BeginQuorumEpochRequest,
    BeginQuorumEpochResponse,
    EndQuorumEpochRequest,
    EndQuorumEpochResponse,
    Error,
    FetchRequest,
    FetchResponse,
    FetchSnapshotRequest,
    FetchSnapshotResponse,
    Message,
    VoteRequest,
    VoteResponse,
)
from lograft.consensus.types import LogEnd, LogSlice, ReplicaKey, SnapshotId
from lograft.model.types import Epoch, NodeId, Offset

_VOTE: Final = 1
_VOTED: Final = 2
_BEGIN: Final = 3
_BEGUN: Final = 4
_END: Final = 5
_ENDED: Final = 6
_FETCH: Final = 7
_FETCHED: Final = 8
_FETCH_SNAPSHOT: Final = 9
_SNAPSHOT_FETCHED: Final = 10

_ERRORS: Final = tuple(Error)
SUCCESSORS_MAX: Final = 100


def to_values(message: Message) -> tuple[Value, ...]:
    match message:
        case VoteRequest():
            return (
                _VOTE, message.request_id, _key(message.sender), _key(message.to), message.epoch,
                tuple(message.log_end), int(message.pre_vote),
            )  # fmt: skip
        case VoteResponse():
            return (_VOTED, *_answer(message), int(message.granted))
        case BeginQuorumEpochRequest():
            return (
                _BEGIN, message.request_id, _key(message.sender), _key(message.to), message.epoch
            )  # fmt: skip
        case BeginQuorumEpochResponse():
            return (_BEGUN, *_answer(message))
        case EndQuorumEpochRequest():
            successors = tuple(_key(key) for key in message.successors)
            return (_END, message.request_id, _key(message.sender), message.epoch, successors)
        case EndQuorumEpochResponse():
            return (_ENDED, *_answer(message))
        case FetchRequest():
            return (
                _FETCH, message.request_id, _key(message.sender), message.epoch,
                tuple(message.log_end), message.high_watermark, message.wait_ms,
            )  # fmt: skip
        case FetchResponse():
            data = None if message.entries is None else message.entries.data
            assert data is None or isinstance(data, bytes)
            return (
                _FETCHED, *_answer(message), message.high_watermark, _pair(message.diverging),
                _pair(message.snapshot), data,
            )  # fmt: skip
        case FetchSnapshotRequest():
            return (
                _FETCH_SNAPSHOT, message.request_id, _key(message.sender), message.epoch,
                tuple(message.snapshot), message.position,
            )  # fmt: skip
        case FetchSnapshotResponse():
            return (
                _SNAPSHOT_FETCHED, *_answer(message), _pair(message.snapshot), message.position,
                message.size_bytes, message.data,
            )  # fmt: skip
        case _:
            raise AssertionError(f"{type(message).__name__} stays inside its server")


def from_values(parts: tuple[Value, ...]) -> Message:
    """Raises Malformed."""
    kind = parts[0] if parts else None
    rest = parts[1:]
    if kind in (_VOTE, _BEGIN, _END, _FETCH, _FETCH_SNAPSHOT):
        return _request(number(kind), rest)
    if kind in (_VOTED, _BEGUN, _ENDED, _FETCHED, _SNAPSHOT_FETCHED):
        return _response(number(kind), rest)
    raise Malformed("a message of no known kind")


def _request(kind: int, parts: tuple[Value, ...]) -> Message:
    if kind == _VOTE:
        request_id, sender, to, epoch, end, pre_vote = values(parts, 6)
        return VoteRequest(
            sender=_read_key(sender), to=_read_key(to), epoch=_epoch(epoch), log_end=_log_end(end),
            pre_vote=bool(number(pre_vote)), request_id=number(request_id),
        )  # fmt: skip
    if kind == _BEGIN:
        request_id, sender, to, epoch = values(parts, 4)
        return BeginQuorumEpochRequest(
            sender=_read_key(sender), to=_read_key(to), epoch=_epoch(epoch),
            request_id=number(request_id),
        )  # fmt: skip
    if kind == _END:
        request_id, sender, epoch, successors = values(parts, 4)
        keys = tuple(_read_key(key) for key in values(successors))
        if len(keys) > SUCCESSORS_MAX:
            raise Malformed(f"{len(keys)} successors")
        return EndQuorumEpochRequest(
            sender=_read_key(sender), epoch=_epoch(epoch), successors=keys,
            request_id=number(request_id),
        )  # fmt: skip
    if kind == _FETCH:
        request_id, sender, epoch, end, high_watermark, wait_ms = values(parts, 6)
        return FetchRequest(
            sender=_read_key(sender), epoch=_epoch(epoch), log_end=_log_end(end),
            high_watermark=Offset(number(high_watermark)), wait_ms=number(wait_ms),
            request_id=number(request_id),
        )  # fmt: skip
    request_id, sender, epoch, snapshot, position = values(parts, 5)
    return FetchSnapshotRequest(
        sender=_read_key(sender), epoch=_epoch(epoch), snapshot=_snapshot_id(snapshot),
        position=number(position), request_id=number(request_id),
    )  # fmt: skip


def _response(kind: int, parts: tuple[Value, ...]) -> Message:
    if len(parts) < 5:
        raise Malformed("an answer that is cut short")
    sender, epoch, leader = NodeId(number(parts[1])), _epoch(parts[2]), NodeId(number(parts[3]))
    error, request_id = _error(parts[4]), number(parts[0])
    rest = parts[5:]
    if kind == _VOTED:
        (granted,) = values(rest, 1)
        return VoteResponse(
            sender=sender, epoch=epoch, leader=leader, error=error, request_id=request_id,
            granted=bool(number(granted)),
        )  # fmt: skip
    if kind == _FETCHED:
        high_watermark, diverging, snapshot, data = values(rest, 4)
        entries: LogSlice | None = None if data is None else slice_of(content(data))
        return FetchResponse(
            sender=sender, epoch=epoch, leader=leader, error=error, request_id=request_id,
            high_watermark=Offset(number(high_watermark)),
            diverging=None if diverging is None else _log_end(diverging),
            snapshot=None if snapshot is None else _snapshot_id(snapshot),
            entries=entries,
        )  # fmt: skip
    if kind == _SNAPSHOT_FETCHED:
        snapshot, position, size_bytes, data = values(rest, 4)
        return FetchSnapshotResponse(
            sender=sender, epoch=epoch, leader=leader, error=error, request_id=request_id,
            snapshot=None if snapshot is None else _snapshot_id(snapshot),
            position=number(position), size_bytes=number(size_bytes), data=content(data),
        )  # fmt: skip
    values(rest, 0)
    plain = BeginQuorumEpochResponse if kind == _BEGUN else EndQuorumEpochResponse
    return plain(sender=sender, epoch=epoch, leader=leader, error=error, request_id=request_id)


# ── parts ────────────────────────────────────────────────────────────────────────────────────


def _answer(
    message: VoteResponse
    | BeginQuorumEpochResponse
    | EndQuorumEpochResponse
    | FetchResponse
    | FetchSnapshotResponse,
) -> tuple[Value, ...]:
    error = _ERRORS.index(message.error)
    return (message.request_id, message.sender, message.epoch, message.leader, error)


def _key(key: ReplicaKey) -> Value:
    return (key.node_id, key.directory_id.bytes)


def _read_key(value: Value) -> ReplicaKey:
    node_id, directory = values(value, 2)
    raw = content(directory)
    if len(raw) != 16:
        raise Malformed(f"a directory id of {len(raw)} bytes")
    return ReplicaKey(NodeId(number(node_id)), UUID(bytes=raw))


def _pair(pair: tuple[int, int] | None) -> Value:
    return None if pair is None else tuple(pair)


def _log_end(value: Value) -> LogEnd:
    epoch, offset = values(value, 2)
    return LogEnd(_epoch(epoch), Offset(number(offset)))


def _snapshot_id(value: Value) -> SnapshotId:
    end, epoch = values(value, 2)
    return SnapshotId(Offset(number(end)), _epoch(epoch))


def _epoch(value: Value) -> Epoch:
    return Epoch(number(value))


def _error(value: Value) -> Error:
    index = number(value)
    if not 0 <= index < len(_ERRORS):
        raise Malformed(f"no error has the number {index}")
    return _ERRORS[index]
