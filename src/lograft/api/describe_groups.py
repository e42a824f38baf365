"""DescribeGroups, versions 0-6: state and members of classic groups.

v3: authorized operations on request. v4: instance ids. v6: a group that does not exist is an error;
before v6 it is returned as a group in state Dead.
"""

from typing import Final

from lograft.api.authorization import authorized_operations, find_denied
from lograft.api.context import Api, Context
from lograft.api.errors import code_of
from lograft.api.types import each_item
from lograft.coordination.group_listing import describe_group
from lograft.model.errors import ErrorCode, LograftError
from lograft.security.authorization import GROUP_DESCRIBE, ResourceType
from lograft.wire.messages.describe_groups import (
    DescribedGroup,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
)

API: Final = Api(key=15, versions=range(7), needs=each_item(GROUP_DESCRIBE))

NOT_FOUND_SINCE: Final = 6


async def handle(context: Context, request: DescribeGroupsRequest) -> DescribeGroupsResponse:
    denied = find_denied(context, GROUP_DESCRIBE, request.groups)
    described = [
        DescribedGroup(group_id=group_id, error_code=ErrorCode.GROUP_AUTHORIZATION_FAILED)
        if group_id in denied
        else await _describe(context, group_id)
        for group_id in dict.fromkeys(request.groups)
    ]
    for group in described:
        if group.error_code == ErrorCode.GROUP_ID_NOT_FOUND:
            if context.api_version < NOT_FOUND_SINCE:
                group.error_code, group.error_message = ErrorCode.NONE, None
        elif request.include_authorized_operations and not group.error_code:
            group.authorized_operations = authorized_operations(
                context, ResourceType.GROUP, group.group_id
            )
    return DescribeGroupsResponse(groups=described)


def error_response(
    request: DescribeGroupsRequest, code: ErrorCode, message: str
) -> DescribeGroupsResponse:
    return DescribeGroupsResponse(
        groups=[DescribedGroup(group_id=group_id, error_code=code) for group_id in request.groups]
    )


async def _describe(context: Context, group_id: str) -> DescribedGroup:
    try:
        group: DescribedGroup = await context.broker.groups.ask(
            group_id, lambda shard, ticket, _: describe_group(shard, ticket, group_id)
        )
    except LograftError as error:
        return DescribedGroup(group_id=group_id, error_code=code_of(error))
    return group
