"""Subscriptions and assignments of classic groups in Kafka's encoding (ConsumerProtocol). The
coordinator passes them between the members without decoding them.
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


class MalformedGroupMessage(WireError):
    """Bytes of another member that are not a valid subscription or assignment."""


def encode_subscription(
    assignor: str,
    topics: Iterable[str],
    owned: Iterable[TopicPartition],
    generation: int,
    rack: str,
    *,
    is_eager: bool,
) -> bytes:
    """Encodes the subscription of a member for one of its assignors. `owned` are its partitions in
    `generation`. An eager member has revoked them before it joins, so they are included only for
    the assignor `sticky`."""
    owned = sorted(owned)
    keeps_owned = assignor in COOPERATIVE and not is_eager
    message = subscribing.ConsumerProtocolSubscription(
        topics=sorted(topics),
        user_data=_encode_user_data(assignor, owned, generation),
        owned_partitions=[
            subscribing.TopicPartition(topic=topic, partitions=indexes)
            for topic, indexes in _group_by_topic(owned if keeps_owned else ()).items()
        ],
        generation_id=generation,
        rack_id=rack or None,
    )
    return _VERSION.pack(_VERSION_MAX) + codec.write(message, _VERSION_MAX)


def decode_member(
    member_id: str, instance_id: str | None, metadata: bytes, assignor: str
) -> Member:
    """Decodes the subscription of a member. Raises MalformedGroupMessage."""
    subscription = _decode(subscribing.ConsumerProtocolSubscription, metadata)
    owned = frozenset(
        TopicPartition(topic.topic, index)
        for topic in subscription.owned_partitions
        for index in topic.partitions
    )
    generation = subscription.generation_id
    if assignor == "sticky":
        owned, generation = _decode_sticky_user_data(subscription.user_data)
    elif assignor == "cooperative-sticky" and generation < 0:
        data = subscription.user_data or b""
        generation = _INT32.unpack_from(data)[0] if len(data) >= _INT32.size else -1
    topics, rack = frozenset(subscription.topics), subscription.rack_id or None
    return Member(member_id, topics, instance_id, owned, generation, rack)


def encode_assignment(partitions: Iterable[TopicPartition]) -> bytes:
    message = assigning.ConsumerProtocolAssignment(
        assigned_partitions=[
            assigning.TopicPartition(topic=topic, partitions=indexes)
            for topic, indexes in _group_by_topic(partitions).items()
        ]
    )
    return _VERSION.pack(_VERSION_MAX) + codec.write(message, _VERSION_MAX)


def decode_assignment(data: bytes) -> set[TopicPartition]:
    """Decodes an assignment; an empty one may have no bytes. Raises MalformedGroupMessage."""
    if not data:
        return set()
    assignment = _decode(assigning.ConsumerProtocolAssignment, data)
    return {
        TopicPartition(topic.topic, index)
        for topic in assignment.assigned_partitions
        for index in topic.partitions
    }


def _encode_user_data(
    assignor: str, owned: Iterable[TopicPartition], generation: int
) -> bytes | None:
    if assignor == "cooperative-sticky":
        return _INT32.pack(generation)
    if assignor != "sticky" or not owned:
        return None
    data = bytearray()
    by_topic = _group_by_topic(owned)
    data += _INT32.pack(len(by_topic))
    for topic, indexes in by_topic.items():
        name = topic.encode()
        data += _INT16.pack(len(name)) + name + _INT32.pack(len(indexes))
        for index in indexes:
            data += _INT32.pack(index)
    return bytes(data + _INT32.pack(generation))


def _decode_sticky_user_data(data: bytes | None) -> tuple[frozenset[TopicPartition], int]:
    """Returns the owned partitions and their generation; none if the data is missing or
    malformed."""
    if not data:
        return frozenset(), -1
    owned: set[TopicPartition] = set()
    try:
        (topic_count,) = _INT32.unpack_from(data)
        position = 4
        for _ in range(topic_count):
            (size,) = _INT16.unpack_from(data, position)
            topic = data[position + 2 : position + 2 + size].decode()
            position += 2 + size
            (partition_count,) = _INT32.unpack_from(data, position)
            position += 4
            for _ in range(partition_count):
                owned.add(TopicPartition(topic, _INT32.unpack_from(data, position)[0]))
                position += 4
        # Version 0 has no generation.
        has_generation = position + 4 <= len(data)
        generation = _INT32.unpack_from(data, position)[0] if has_generation else -1
    except (ValueError, StructError):
        return frozenset(), -1
    return frozenset(owned), generation


def _group_by_topic(partitions: Iterable[TopicPartition]) -> Mapping[str, list[int]]:
    by_topic: dict[str, list[int]] = {}
    for topic, index in sorted(partitions):
        by_topic.setdefault(topic, []).append(index)
    return by_topic


def _decode(kind: type[M], data: bytes) -> M:
    """Decodes a message. Later versions are decoded as the last known one, which they extend."""
    if len(data) < _VERSION.size:
        raise MalformedGroupMessage(f"{len(data)} bytes are too few for a version")
    version = _VERSION.unpack_from(data)[0]
    if version < 0:
        raise MalformedGroupMessage(f"invalid version {version}")
    try:
        message, _ = codec.read(kind, min(version, _VERSION_MAX), data, _VERSION.size)
    except WireError as error:
        raise MalformedGroupMessage(str(error)) from None
    return message
