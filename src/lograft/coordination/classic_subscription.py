"""The subscriptions that consumers send to the leader of their classic group and the assignments
that it returns, parsed by code that needs the topics and partitions.
"""

from collections.abc import Iterable, Mapping
from struct import Struct
from typing import Final, TypeVar

from lograft.wire import codec
from lograft.wire.errors import WireError
from lograft.wire.message import Message
from lograft.wire.records.consumer_protocol_assignment import (
    ConsumerProtocolAssignment,
    TopicPartition,
)
from lograft.wire.records.consumer_protocol_subscription import ConsumerProtocolSubscription

M = TypeVar("M", bound=Message)

#: The protocol type of consumers. Metadata of other types (Kafka Connect) is opaque.
CONSUMER_PROTOCOL: Final = "consumer"
_VERSION: Final = Struct(">h")
_VERSION_MAX: Final = 3


def subscription_of(metadata: bytes) -> ConsumerProtocolSubscription | None:
    return _read(ConsumerProtocolSubscription, metadata)


def assignment_of(assignment: bytes) -> ConsumerProtocolAssignment | None:
    return _read(ConsumerProtocolAssignment, assignment)


def written_assignment(partitions: Mapping[str, Iterable[int]], *, metadata: bytes) -> bytes:
    """Partitions by topic, encoded in the version of the member's own `metadata`."""
    version = min(_VERSION.unpack_from(metadata)[0], _VERSION_MAX)
    message = ConsumerProtocolAssignment(
        assigned_partitions=[
            TopicPartition(topic=topic, partitions=sorted(partitions[topic]))
            for topic in sorted(partitions)
        ]
    )
    return _VERSION.pack(version) + codec.write(message, version)


def _read(kind: type[M], data: bytes) -> M | None:
    """None if the bytes cannot be parsed. Later versions start with the fields of the last known
    one."""
    if len(data) < _VERSION.size:
        return None
    version = _VERSION.unpack_from(data)[0]
    if version < 0:
        return None
    try:
        message, _ = codec.read(kind, min(version, _VERSION_MAX), data, _VERSION.size)
    except WireError:
        return None
    return message


def topics_named_in(metadata: Iterable[bytes]) -> set[str]:
    """The topics in all protocols of one member, as far as they can be parsed."""
    found = (subscription_of(member_metadata) for member_metadata in metadata)
    return {
        topic
        for member_metadata in found
        if member_metadata is not None
        for topic in member_metadata.topics
    }


def subscribed_topics(metadata: Iterable[bytes]) -> frozenset[str] | None:
    """The topics of all these members; None if the metadata of one of them cannot be parsed."""
    topics: set[str] = set()
    for member_metadata in metadata:
        subscription = subscription_of(member_metadata)
        if subscription is None:
            return None
        topics.update(subscription.topics)
    return frozenset(topics)
