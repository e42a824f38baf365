"""ConsumerGroupHeartbeat, versions 0-1: joins, stays in and leaves a consumer group (KIP-848).

Responds immediately if nothing changes, and otherwise when the change is committed. v1: regular
expressions, and members generate their own id.
"""

from collections.abc import Awaitable, Coroutine, Iterable
from typing import Any, Final

from lograft.api.context import Api, Context
from lograft.api.join_group import client_of
from lograft.api.types import group_of, whole_request
from lograft.coordination.consumer_heartbeat import heartbeat
from lograft.metadata.types import GROUP_VERSION
from lograft.model.errors import ErrorCode, Rejected
from lograft.security.authorization import GROUP_READ, TOPIC_DESCRIBE
from lograft.wire.message import Message
from lograft.wire.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest


def _subscribed_topics(request: ConsumerGroupHeartbeatRequest) -> Iterable[str]:
    return request.subscribed_topic_names or ()


API: Final = Api(
    key=68,
    versions=range(2),
    needs=whole_request(GROUP_READ, names=group_of)
    + whole_request(TOPIC_DESCRIBE, names=_subscribed_topics),
)


def handle(
    context: Context, request: ConsumerGroupHeartbeatRequest
) -> Message | Coroutine[Any, Any, Message]:
    check_enabled(context)
    if context.broker.metadata.image.claims and request.subscribed_topic_names:
        return _claim_first(context, request)
    return _submit(context, request)


async def _claim_first(context: Context, request: ConsumerGroupHeartbeatRequest) -> Message:
    """Rejects topics that another group has claimed (subscription.mode=ptp)."""
    broker = context.broker
    broker.groups.led_for(request.group_id)  # Raises Rejected if it is coordinated elsewhere.
    await broker.claims.claim(request.group_id, set(request.subscribed_topic_names or ()))
    reply = _submit(context, request)
    return reply if isinstance(reply, Message) else await reply


def _submit(
    context: Context, request: ConsumerGroupHeartbeatRequest
) -> Message | Coroutine[Any, Any, Message]:
    client = client_of(context)
    reply = context.broker.groups.ask_now(
        request.group_id,
        lambda shard, ticket, now_ms: heartbeat(shard.consumer, request, client, ticket, now_ms),
    )
    return reply if isinstance(reply, Message) else _wait(reply)


def check_enabled(context: Context) -> None:
    metadata = context.broker.metadata
    if (
        "consumer" not in metadata.config.group_coordinator_rebalance_protocols
        or metadata.image.features.get(GROUP_VERSION, 0) < 1
    ):
        raise Rejected(
            ErrorCode.UNSUPPORTED_VERSION,
            "The consumer group protocol is not enabled: it needs group.version=1 and 'consumer'"
            " in group.coordinator.rebalance.protocols.",
        )


async def _wait(reply: Awaitable[Message]) -> Message:
    return await reply
