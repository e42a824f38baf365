"""SyncGroup, versions 0-5: the leader sends the assignment, the other members fetch theirs.

The response waits until the leader has sent it and it is committed. v3: static members. v5: the
member sends the protocol that it expects.
"""

from typing import Final

from lograft.api.context import Api, Context
from lograft.api.join_group import check_group
from lograft.api.types import group_of, whole_request
from lograft.model.errors import ErrorCode, Rejected
from lograft.security.authorization import GROUP_READ
from lograft.wire.messages.sync_group import SyncGroupRequest, SyncGroupResponse

API: Final = Api(key=14, versions=range(6), needs=whole_request(GROUP_READ, names=group_of))

PROTOCOL_SINCE: Final = 5


async def handle(context: Context, request: SyncGroupRequest) -> SyncGroupResponse:
    if context.api_version >= PROTOCOL_SINCE and None in (
        request.protocol_type,
        request.protocol_name,
    ):
        raise Rejected(
            ErrorCode.INCONSISTENT_GROUP_PROTOCOL, "The request has no protocol type or name."
        )
    check_group(request.group_id)
    response: SyncGroupResponse = await context.broker.groups.ask(
        request.group_id,
        lambda shard, ticket, now_ms: shard.classic.sync(request, ticket, now_ms),
    )
    return response
