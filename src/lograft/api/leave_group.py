"""LeaveGroup, versions 0-5: members leave a classic group, or an administrator removes them.

v3: several members in one request, each with its own error code; static members need only their
instance id. v5: reasons, for logs.
"""

from typing import Final

from lograft.api.context import Api, Context
from lograft.api.join_group import check_group
from lograft.api.types import group_of, whole_request
from lograft.model.errors import ErrorCode
from lograft.security.authorization import GROUP_READ
from lograft.wire.messages.leave_group import (
    LeaveGroupRequest,
    LeaveGroupResponse,
    MemberIdentity,
)

API: Final = Api(key=13, versions=range(6), needs=whole_request(GROUP_READ, names=group_of))

SEVERAL_SINCE: Final = 3


async def handle(context: Context, request: LeaveGroupRequest) -> LeaveGroupResponse:
    check_group(request.group_id)
    is_single = context.api_version < SEVERAL_SINCE
    if is_single:
        request.members = [MemberIdentity(member_id=request.member_id)]
    response: LeaveGroupResponse = await context.broker.groups.ask(
        request.group_id,
        lambda shard, ticket, now_ms: shard.classic.leave(request, ticket, now_ms),
    )
    if is_single and response.error_code == ErrorCode.NONE:
        return LeaveGroupResponse(error_code=response.members[0].error_code)
    return response
