"""JoinGroup, versions 0-9: a member joins or rejoins a classic group.

The response waits until all members have joined or the rebalance timeout expires. v0: no rebalance
timeout, the session timeout is used. v4: a new member gets a member id and must send the request
again with it (KIP-394). v5: static members (KIP-345). v7: the response has the protocol type. v8: a
reason, for logs. v9: a static leader may skip the assignment (KIP-814). A topic that another group
has claimed (subscription.mode=ptp) is rejected with POLICY_VIOLATION.
"""

from functools import partial
from typing import Final

from lograft.api.authorization import is_allowed
from lograft.api.context import Api, Context
from lograft.api.errors import code_of
from lograft.api.types import group_of, whole_request
from lograft.broker.coordinators.coordinator_runtime import KEY_LENGTH_MAX
from lograft.coordination.classic_member import Client, protocols_of
from lograft.coordination.classic_subscription import CONSUMER_PROTOCOL, topics_named_in
from lograft.model.errors import ErrorCode, LograftError, Rejected
from lograft.security.authorization import GROUP_READ, TOPIC_DESCRIBE
from lograft.wire.messages.join_group import JoinGroupRequest, JoinGroupResponse

API: Final = Api(key=11, versions=range(10), needs=whole_request(GROUP_READ, names=group_of))

NULL_PROTOCOL_SINCE: Final = 7


async def handle(context: Context, request: JoinGroupRequest) -> JoinGroupResponse:
    try:
        response = await _join(context, request)
    except LograftError as error:
        response = error_response(request, code_of(error), str(error))
    is_nullable = context.api_version >= NULL_PROTOCOL_SINCE
    response.protocol_name = response.protocol_name or (None if is_nullable else "")
    return response


async def _join(context: Context, request: JoinGroupRequest) -> JoinGroupResponse:
    check_group(request.group_id)
    config = context.broker.config
    low_ms, high_ms = config.group_min_session_timeout_ms, config.group_max_session_timeout_ms
    if not low_ms <= request.session_timeout_ms <= high_ms:
        raise Rejected(
            ErrorCode.INVALID_SESSION_TIMEOUT,
            f"The session timeout of {request.session_timeout_ms} ms is not between {low_ms} and"
            f" {high_ms} ms.",
        )
    client = client_of(context)
    await _claim(context, request)
    response: JoinGroupResponse = await context.broker.groups.ask(
        request.group_id,
        lambda shard, ticket, now_ms: shard.classic.join(request, client, ticket, now_ms),
    )
    return response


async def _claim(context: Context, request: JoinGroupRequest) -> None:
    """Claims the topics of the subscription: a member of a group may not read every topic."""
    broker = context.broker
    if broker.image.claims and request.protocol_type == CONSUMER_PROTOCOL:
        broker.groups.led_for(request.group_id)  # Raises Rejected if it is coordinated elsewhere.
        topics = topics_named_in(protocols_of(request).values())
        await broker.claims.claim(request.group_id, topics)


def error_response(request: JoinGroupRequest, code: ErrorCode, message: str) -> JoinGroupResponse:
    return JoinGroupResponse(error_code=code, member_id=request.member_id)


def client_of(context: Context) -> Client:
    return Client(
        client_id=context.client_id or "",
        host=f"/{context.peer.host}",
        api_version=context.api_version,
        can_describe=partial(is_allowed, context, TOPIC_DESCRIBE),
    )


def check_group(group_id: str) -> None:
    """Raises Rejected unless the group id is valid."""
    if not group_id:
        raise Rejected(ErrorCode.INVALID_GROUP_ID, "The group id is empty.")
    if len(group_id) > KEY_LENGTH_MAX:
        raise Rejected(
            ErrorCode.INVALID_GROUP_ID, f"The group id is longer than {KEY_LENGTH_MAX} characters."
        )
