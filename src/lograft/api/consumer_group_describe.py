"""ConsumerGroupDescribe, versions 0-1: epochs, members and assignments of consumer groups.

Each group has its own error code, also if another broker coordinates it. v1: the protocol that a
member uses.
"""

from typing import Final

from lograft.api.authorization import authorized_operations, find_denied
from lograft.api.consumer_group_heartbeat import check_enabled
from lograft.api.context import Api, Context
from lograft.api.errors import code_of
from lograft.api.types import each_item
from lograft.coordination.consumer_describe import describe
from lograft.model.errors import ErrorCode, LograftError
from lograft.security.authorization import GROUP_DESCRIBE, TOPIC_DESCRIBE, ResourceType
from lograft.wire.messages.consumer_group_describe import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
    DescribedGroup,
)

API: Final = Api(key=69, versions=range(2), needs=each_item(GROUP_DESCRIBE, TOPIC_DESCRIBE))


async def handle(
    context: Context, request: ConsumerGroupDescribeRequest
) -> ConsumerGroupDescribeResponse:
    check_enabled(context)
    denied = find_denied(context, GROUP_DESCRIBE, filter(None, request.group_ids))
    groups = [
        DescribedGroup(group_id=group_id, error_code=ErrorCode.GROUP_AUTHORIZATION_FAILED)
        if group_id in denied
        else await _describe(context, group_id)
        for group_id in request.group_ids
    ]
    if request.include_authorized_operations:
        for group in groups:
            if not group.error_code:
                group.authorized_operations = authorized_operations(
                    context, ResourceType.GROUP, group.group_id
                )
    return ConsumerGroupDescribeResponse(groups=groups)


async def _describe(context: Context, group_id: str) -> DescribedGroup:
    if not group_id:
        return DescribedGroup(group_id=group_id, error_code=ErrorCode.INVALID_GROUP_ID)
    try:
        group: DescribedGroup = await context.broker.groups.ask(
            group_id, lambda shard, ticket, now_ms: describe(shard.consumer, group_id, ticket)
        )
    except LograftError as error:
        return DescribedGroup(
            group_id=group_id, error_code=code_of(error), error_message=str(error)
        )
    if find_denied(context, TOPIC_DESCRIBE, _topics(group)):
        return DescribedGroup(
            group_id=group_id,
            error_code=ErrorCode.TOPIC_AUTHORIZATION_FAILED,
            error_message="The group subscribes to topics that the principal may not describe.",
        )
    return group


def _topics(group: DescribedGroup) -> set[str]:
    return {
        topic.topic_name
        for member in group.members
        for assignment in (member.assignment, member.target_assignment)
        for topic in assignment.topic_partitions
    }


def error_response(
    request: ConsumerGroupDescribeRequest, code: ErrorCode, message: str
) -> ConsumerGroupDescribeResponse:
    return ConsumerGroupDescribeResponse(
        groups=[
            DescribedGroup(group_id=group_id, error_code=code, error_message=message)
            for group_id in request.group_ids
        ]
    )
