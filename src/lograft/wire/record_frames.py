"""The encoding of records in Kafka's internal logs.

Metadata log: value = varints frame version (1), type, version, then the record.
Coordinator logs: key = int16 type, then the key; value = int16 version, then the value.
Control batches: key = int16 version, int16 type; the value begins with its int16 version.
"""

from functools import cache
from importlib import import_module
from struct import Struct
from typing import Final, NamedTuple, TypeAlias

from lograft.model.seams import Buffer
from lograft.wire import codec
from lograft.wire.errors import MalformedMessage, UnsupportedVersion
from lograft.wire.message import Message
from lograft.wire.records import index
from lograft.wire.varints import read_uvarint, uvarint

_FRAME_VERSION: Final = 1
_INT16: Final = Struct(">h")
_TWO_INT16: Final = Struct(">hh")

Table: TypeAlias = dict[int, tuple[str, str]]


class UnknownRecord(NamedTuple):
    """A record of a type or version that this release does not know."""

    type: int
    version: int
    data: bytes


class Coordinator(NamedTuple):
    """The record types of one internal topic."""

    keys: Table
    values: Table


GROUPS: Final = Coordinator(index.GROUP_KEYS, index.GROUP_VALUES)
TRANSACTIONS: Final = Coordinator(index.TRANSACTION_KEYS, index.TRANSACTION_VALUES)
SHARES: Final = Coordinator(index.SHARE_KEYS, index.SHARE_VALUES)

#: Types of control records.
ABORT_MARKER: Final = 0
COMMIT_MARKER: Final = 1
LEADER_CHANGE: Final = 2
SNAPSHOT_HEADER: Final = 3
SNAPSHOT_FOOTER: Final = 4
KRAFT_VERSION: Final = 5
KRAFT_VOTERS: Final = 6

CONTROL: Final[Table] = {
    ABORT_MARKER: ("end_txn_marker", "EndTxnMarker"),
    COMMIT_MARKER: ("end_txn_marker", "EndTxnMarker"),
    LEADER_CHANGE: ("leader_change_message", "LeaderChangeMessage"),
    SNAPSHOT_HEADER: ("snapshot_header_record", "SnapshotHeaderRecord"),
    SNAPSHOT_FOOTER: ("snapshot_footer_record", "SnapshotFooterRecord"),
    KRAFT_VERSION: ("kraft_version_record", "KRaftVersionRecord"),
    KRAFT_VOTERS: ("voters_record", "VotersRecord"),
}


def class_in(table: Table, number: int) -> type[Message] | None:
    entry = table.get(number)
    return None if entry is None else _class_named(*entry)


@cache
def _class_named(module: str, name: str) -> type[Message]:
    """Imported on first use: few processes need all of them."""
    kind: type[Message] = getattr(import_module(f"lograft.wire.records.{module}"), name)
    return kind


def encode_record(message: Message, version: int) -> bytes:
    """Encodes a metadata record as the value of a log record."""
    assert message.KEY in index.METADATA, type(message).__name__
    head = uvarint(_FRAME_VERSION) + uvarint(message.KEY) + uvarint(version)
    return head + codec.write(message, version)


def decode_record(data: Buffer) -> Message | UnknownRecord:
    """Decodes the metadata record in the value of a log record."""
    try:
        frame_version, position = read_uvarint(data, 0)
        number, position = read_uvarint(data, position)
        version, position = read_uvarint(data, position)
    except IndexError:
        raise MalformedMessage(f"metadata record of {len(data)} bytes") from None
    if frame_version != _FRAME_VERSION:
        raise MalformedMessage(f"metadata record with frame version {frame_version}")
    kind = class_in(index.METADATA, number)
    if kind is None:
        return UnknownRecord(number, version, bytes(data[position:]))
    try:
        return codec.read_all(kind, version, data, position)
    except UnsupportedVersion:
        return UnknownRecord(number, version, bytes(data[position:]))


def encode_coordinator_key(key: Message) -> bytes:
    return _INT16.pack(key.KEY) + codec.write(key, 0)


def encode_coordinator_value(value: Message, version: int) -> bytes:
    return _INT16.pack(version) + codec.write(value, version)


def decode_coordinator_key(topic: Coordinator, data: Buffer) -> Message | UnknownRecord:
    number = _leading_int16(data)
    kind = class_in(topic.keys, number)
    if kind is None:
        return UnknownRecord(number, 0, bytes(data[2:]))
    return codec.read_all(kind, 0, data, 2)


def decode_coordinator_value(
    topic: Coordinator, key: Message, data: Buffer
) -> Message | UnknownRecord:
    """Decodes the value that belongs to a decoded key."""
    version = _leading_int16(data)
    kind = class_in(topic.values, key.KEY)
    assert kind is not None, key
    try:
        return codec.read_all(kind, version, data, 2)
    except UnsupportedVersion:
        return UnknownRecord(key.KEY, version, bytes(data[2:]))


def encode_control_key(number: int) -> bytes:
    return _TWO_INT16.pack(0, number)


def decode_control_key(data: Buffer) -> int:
    """Returns the type of a control record; later versions of the key may be longer."""
    if len(data) < 4:
        raise MalformedMessage(f"key of a control record of {len(data)} bytes")
    _, number = _TWO_INT16.unpack_from(data, 0)
    return int(number)


def encode_control_value(number: int, message: Message) -> bytes:
    """Only transaction markers are preceded by their version; other records have it as a field."""
    if number <= COMMIT_MARKER:
        return _INT16.pack(0) + codec.write(message, 0)
    version: int = getattr(message, "version")  # noqa: B009 - the classes share no base with it
    return codec.write(message, version)


def decode_control_value(number: int, data: Buffer) -> Message | UnknownRecord:
    kind = class_in(CONTROL, number)
    version = _leading_int16(data)
    if kind is None or version < 0:
        return UnknownRecord(number, version, bytes(data))
    # A newer version only adds fields to the known one.
    version = min(version, kind.VERSIONS[1])
    message, _ = codec.read(kind, version, data, 2 if number <= COMMIT_MARKER else 0)
    return message


def _leading_int16(data: Buffer) -> int:
    if len(data) < 2:
        raise MalformedMessage(f"record of {len(data)} bytes")
    return int(_INT16.unpack_from(data, 0)[0])
