"""Keys and values of log records as text: plain, or decoded for Kafka's internal topics."""

from collections.abc import Callable
from typing import Any, Final

from lograft.cli.record_json import json_form, json_line
from lograft.wire import codec
from lograft.wire import record_frames as frames
from lograft.wire.batches import Record
from lograft.wire.errors import MalformedMessage
from lograft.wire.message import Message
from lograft.wire.varints import read_uvarint

TOMBSTONE: Final = "<DELETE>"
#: (text of the key, text of the value); None for a part that is not printed.
Texts = tuple[str | None, str | None]


def format_plain(record: Record) -> Texts:
    return _decode_text(record.key), _decode_text(record.value)


def format_metadata(record: Record) -> Texts:
    if record.value is None:
        return _decode_text(record.key), None
    message = frames.decode_record(record.value)
    if isinstance(message, frames.UnknownRecord):
        return None, f"<unknown record type {message.type} version {message.version}>"
    value = {
        "type": record_type_name(message),
        "version": metadata_version_of(record.value),
        "data": json_form(message, metadata_version_of(record.value)),
    }
    return None, json_line(value)


def record_type_name(message: Message) -> str:
    """RegisterBrokerRecord -> REGISTER_BROKER_RECORD"""
    name = type(message).__name__
    return "".join(f"_{c}" if c.isupper() else c.upper() for c in name).lstrip("_")


def metadata_version_of(value: bytes) -> int:
    _, position = read_uvarint(value, 0)
    _, position = read_uvarint(value, position)
    version, _ = read_uvarint(value, position)
    return version


def coordinator_formatter(topic: frames.Coordinator) -> Callable[[Record], Texts]:
    def decode(record: Record) -> Texts:
        if record.key is None:
            raise MalformedMessage("a record of an internal topic has no key")
        key = frames.decode_coordinator_key(topic, record.key)
        if isinstance(key, frames.UnknownRecord):
            return f"<unknown record type {key.type}>", _decode_text(record.value)
        key_text = json_line({"type": str(key.KEY), "data": json_form(key, 0)})
        if record.value is None:
            return key_text, TOMBSTONE
        value = frames.decode_coordinator_value(topic, key, record.value)
        if isinstance(value, frames.UnknownRecord):
            return key_text, f"<unknown version {value.version}>"
        version = int.from_bytes(record.value[:2], "big", signed=True)
        data = json_form(value, version)
        if data.get("protocolType") == "consumer" and "members" in data:
            _decode_members(value, data)
        return key_text, json_line({"version": str(version), "data": data})

    return decode


DECODERS: Final[dict[str | None, Callable[[Record], Texts]]] = {
    None: format_plain,
    "metadata": format_metadata,
    "offsets": coordinator_formatter(frames.GROUPS),
    "transactions": coordinator_formatter(frames.TRANSACTIONS),
    "shares": coordinator_formatter(frames.SHARES),
}


def control_text(record: Record) -> str:
    """Formats a control record, e.g. `endTxnMarker: COMMIT coordinatorEpoch: 0`."""
    assert record.key is not None
    number = frames.decode_control_key(record.key)
    message = frames.decode_control_value(number, record.value or b"")
    if isinstance(message, frames.UnknownRecord):
        return f"controlType: UNKNOWN({number})"
    if number <= frames.COMMIT_MARKER:
        kind = "COMMIT" if number == frames.COMMIT_MARKER else "ABORT"
        epoch: int = getattr(message, "coordinator_epoch", -1)
        return f"endTxnMarker: {kind} coordinatorEpoch: {epoch}"
    version: int = getattr(message, "version", 0)
    name = {
        frames.LEADER_CHANGE: "LeaderChange:",
        frames.SNAPSHOT_HEADER: "SnapshotHeader",
        frames.SNAPSHOT_FOOTER: "SnapshotFooter",
        frames.KRAFT_VERSION: "KRaftVersion",
        frames.KRAFT_VOTERS: "KRaftVoters",
    }[number]
    return f"{name} {json_line(json_form(message, version))}"


def _decode_text(data: bytes | None) -> str | None:
    return None if data is None else data.decode("utf-8", errors="replace")


def _decode_members(group: Message, data: dict[str, Any]) -> None:
    """Decodes the subscriptions and assignments of classic consumers, which are opaque bytes."""
    from lograft.wire.records.consumer_protocol_assignment import ConsumerProtocolAssignment
    from lograft.wire.records.consumer_protocol_subscription import ConsumerProtocolSubscription

    members: list[Message] = getattr(group, "members", [])
    for member, shown in zip(members, data["members"], strict=True):
        for name, kind in (
            ("subscription", ConsumerProtocolSubscription),
            ("assignment", ConsumerProtocolAssignment),
        ):
            raw: bytes = getattr(member, name)
            if len(raw) < 2:
                continue
            version = min(int.from_bytes(raw[:2], "big"), kind.VERSIONS[1])
            try:
                message, _ = codec.read(kind, version, raw, 2)
            except MalformedMessage:
                continue
            shown[name] = json_form(message, version)
