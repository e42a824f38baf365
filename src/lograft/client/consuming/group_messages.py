"""What members of a classic group tell each other through its coordinator, in Kafka's bytes: who
reads what (subscriptions), and what the leader has decided (assignments).
"""

from collections.abc import Iterable, Mapping
from struct import Struct
from struct import error as StructError
from typing import Final, TypeVar

from lograft.client.consuming.assignors import COOPERATIVE, Member
from lograft.client.types import TopicPartition
from lograft.wire import codec
from lograft.wire.errors import WireError
from lograft.wire.message import Message
from lograft.wire.records import consumer_protocol_assignment as assigning
from lograft.wire.records import consumer_protocol_subscription as subscribing

M = TypeVar("M", bound=Message)

PROTOCOL_TYPE: Final = "consumer"
_VERSION: Final = Struct(">h")
_VERSION_MAX: Final = 3
_INT16: Final = Struct(">h")
_INT32: Final = Struct(">i")


class MemberUnreadable(WireError):
    """Bytes of another member that are not a subscription or an assignment."""


def written_subscription(
    assignor: str,
    topics: Iterable[str],
    owned: Iterable[TopicPartition],
    generation: int,
    rack: str,
    *,
    is_eager: bool,
) -> bytes:
    """Of a member for one of its assignors. `owned` is what it had in `generation`. An eager member
    has given it back before joining: only the assignor `sticky` needs to know of it."""
    owned = sorted(owned)
    keeps = assignor in COOPERATIVE and not is_eager
    message = subscribing.ConsumerProtocolSubscription(
        topics=sorted(topics),
        user_data=_user_data(assignor, owned, generation),
        owned_partitions=[
            subscribing.TopicPartition(topic=topic, partitions=indexes)
            for topic, indexes in _by_topic(owned if keeps else ()).items()
        ],
        generation_id=generation,
        rack_id=rack or None,
    )
    return _VERSION.pack(_VERSION_MAX) + codec.write(message, _VERSION_MAX)


def read_member(member_id: str, instance_id: str | None, metadata: bytes, assignor: str) -> Member:
    """Raises MemberUnreadable."""
    told = _read(subscribing.ConsumerProtocolSubscription, metadata)
    owned = frozenset(
        TopicPartition(topic.topic, index)
        for topic in told.owned_partitions
        for index in topic.partitions
    )
    generation = told.generation_id
    if assignor == "sticky":
        owned, generation = _read_sticky(told.user_data)
    elif assignor == "cooperative-sticky" and generation < 0:
        data = told.user_data or b""
        generation = _INT32.unpack_from(data)[0] if len(data) >= _INT32.size else -1
    topics, rack = frozenset(told.topics), told.rack_id or None
    return Member(member_id, topics, instance_id, owned, generation, rack)


def written_assignment(partitions: Iterable[TopicPartition]) -> bytes:
    message = assigning.ConsumerProtocolAssignment(
        assigned_partitions=[
            assigning.TopicPartition(topic=topic, partitions=indexes)
            for topic, indexes in _by_topic(partitions).items()
        ]
    )
    return _VERSION.pack(_VERSION_MAX) + codec.write(message, _VERSION_MAX)


def read_assignment(data: bytes) -> set[TopicPartition]:
    """Raises MemberUnreadable. Who got nothing may get no bytes either."""
    if not data:
        return set()
    told = _read(assigning.ConsumerProtocolAssignment, data)
    return {
        TopicPartition(topic.topic, index)
        for topic in told.assigned_partitions
        for index in topic.partitions
    }


def _user_data(assignor: str, owned: Iterable[TopicPartition], generation: int) -> bytes | None:
    if assignor == "cooperative-sticky":
        return _INT32.pack(generation)
    if assignor != "sticky" or not owned:
        return None
    data = bytearray()
    by_topic = _by_topic(owned)
    data += _INT32.pack(len(by_topic))
    for topic, indexes in by_topic.items():
        name = topic.encode()
        data += _INT16.pack(len(name)) + name + _INT32.pack(len(indexes))
        for index in indexes:
            data += _INT32.pack(index)
    return bytes(data + _INT32.pack(generation))


def _read_sticky(data: bytes | None) -> tuple[frozenset[TopicPartition], int]:
    """What a member of the sticky assignor had; nothing where it does not say, or not so that it
    can be read."""
    if not data:
        return frozenset(), -1
    found: set[TopicPartition] = set()
    try:
        (count,) = _INT32.unpack_from(data)
        position = 4
        for _ in range(count):
            (size,) = _INT16.unpack_from(data, position)
            topic = data[position + 2 : position + 2 + size].decode()
            position += 2 + size
            (partitions,) = _INT32.unpack_from(data, position)
            position += 4
            for _ in range(partitions):
                found.add(TopicPartition(topic, _INT32.unpack_from(data, position)[0]))
                position += 4
        # Before version 1 it did not say since when.
        has_generation = position + 4 <= len(data)
        generation = _INT32.unpack_from(data, position)[0] if has_generation else -1
    except (ValueError, StructError):
        return frozenset(), -1
    return frozenset(found), generation


def _by_topic(partitions: Iterable[TopicPartition]) -> Mapping[str, list[int]]:
    found: dict[str, list[int]] = {}
    for topic, index in sorted(partitions):
        found.setdefault(topic, []).append(index)
    return found


def _read(kind: type[M], data: bytes) -> M:
    """A later version begins like the last one we know."""
    if len(data) < _VERSION.size:
        raise MemberUnreadable(f"{len(data)} bytes are too few for a version")
    version = _VERSION.unpack_from(data)[0]
    if version < 0:
        raise MemberUnreadable(f"version {version}")
    try:
        message, _ = codec.read(kind, min(version, _VERSION_MAX), data, _VERSION.size)
    except WireError as error:
        raise MemberUnreadable(str(error)) from None
    return message
