"""What a consumer tells the leader of its classic group, and what the leader assigns to it: for
who needs to know the topics and partitions.
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

#: The protocol type of consumers. Others (Kafka Connect) send what only they understand.
CONSUMER_PROTOCOL: Final = "consumer"
_VERSION: Final = Struct(">h")
_VERSION_MAX: Final = 3


def subscription_of(metadata: bytes) -> ConsumerProtocolSubscription | None:
    return _read(ConsumerProtocolSubscription, metadata)


def assignment_of(assignment: bytes) -> ConsumerProtocolAssignment | None:
    return _read(ConsumerProtocolAssignment, assignment)


def written_assignment(partitions: Mapping[str, Iterable[int]], *, metadata: bytes) -> bytes:
    """Partitions by topic; in the version in which the member has sent its `metadata`."""
    version = min(_VERSION.unpack_from(metadata)[0], _VERSION_MAX)
    message = ConsumerProtocolAssignment(
        assigned_partitions=[
            TopicPartition(topic=topic, partitions=sorted(partitions[topic]))
            for topic in sorted(partitions)
        ]
    )
    return _VERSION.pack(version) + codec.write(message, version)


def _read(kind: type[M], data: bytes) -> M | None:
    """None: not readable. A later version begins like the last one we know."""
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
    """The topics of all protocols that one member brings, as far as they can be read."""
    found = (subscription_of(one) for one in metadata)
    return {topic for one in found if one is not None for topic in one.topics}


def subscribed_topics(metadata: Iterable[bytes]) -> frozenset[str] | None:
    """The topics of all these members; None: one of them cannot be read."""
    topics: set[str] = set()
    for one in metadata:
        subscription = subscription_of(one)
        if subscription is None:
            return None
        topics.update(subscription.topics)
    return frozenset(topics)
