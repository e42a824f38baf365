"""What a consumer tells the leader of its classic group, for who needs to know the topics."""

from collections.abc import Iterable
from struct import Struct
from typing import Final

from lograft.wire import codec
from lograft.wire.errors import WireError
from lograft.wire.records.consumer_protocol_subscription import ConsumerProtocolSubscription

#: The protocol type of consumers. Others (Kafka Connect) send what only they understand.
CONSUMER_PROTOCOL: Final = "consumer"
_VERSION: Final = Struct(">h")
_VERSION_MAX: Final = 3


def subscription_of(metadata: bytes) -> ConsumerProtocolSubscription | None:
    """None: not readable. A later version begins like the last one we know."""
    if len(metadata) < _VERSION.size:
        return None
    version = _VERSION.unpack_from(metadata)[0]
    if version < 0:
        return None
    try:
        subscription, _ = codec.read(
            ConsumerProtocolSubscription, min(version, _VERSION_MAX), metadata, _VERSION.size
        )
    except WireError:
        return None
    return subscription


def subscribed_topics(metadata: Iterable[bytes]) -> frozenset[str] | None:
    """The topics of all these members; None: one of them cannot be read."""
    topics: set[str] = set()
    for one in metadata:
        subscription = subscription_of(one)
        if subscription is None:
            return None
        topics.update(subscription.topics)
    return frozenset(topics)
