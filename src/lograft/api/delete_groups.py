"""DeleteGroups, versions 0-2: deletes empty groups of any type, with their committed offsets."""

from collections.abc import Awaitable
from typing import Final

from lograft.api.authorization import find_denied, permission_error
from lograft.api.context import Api, Context
from lograft.api.errors import code_of
from lograft.api.types import each_item
from lograft.coordination.group_listing import delete_group
from lograft.model.errors import ErrorCode, LograftError
from lograft.security.authorization import GROUP_DELETE
from lograft.wire.message import Message
from lograft.wire.messages.delete_groups import (
    DeletableGroupResult,
    DeleteGroupsRequest,
    DeleteGroupsResponse,
)

API: Final = Api(key=42, versions=range(3), needs=each_item(GROUP_DELETE))


async def handle(context: Context, request: DeleteGroupsRequest) -> DeleteGroupsResponse:
    # All groups write their records before the first commit is awaited.
    denied_groups = find_denied(context, GROUP_DELETE, request.groups_names)
    started = [
        (group_id, permission_error(GROUP_DELETE, group_id))
        if group_id in denied_groups
        else _start_deletion(context, group_id)
        for group_id in dict.fromkeys(request.groups_names)
    ]
    return DeleteGroupsResponse(results=[await _wait_deletion(*result) for result in started])


def error_response(
    request: DeleteGroupsRequest, code: ErrorCode, message: str
) -> DeleteGroupsResponse:
    return DeleteGroupsResponse(
        results=[
            DeletableGroupResult(group_id=group_id, error_code=code)
            for group_id in request.groups_names
        ]
    )


def _start_deletion(
    context: Context, group_id: str
) -> tuple[str, Message | Awaitable[Message] | LograftError]:
    try:
        return group_id, context.broker.groups.ask_now(
            group_id, lambda shard, ticket, _: delete_group(shard, ticket, group_id)
        )
    except LograftError as error:
        return group_id, error


async def _wait_deletion(
    group_id: str, started: Message | Awaitable[Message] | LograftError
) -> DeletableGroupResult:
    try:
        if isinstance(started, LograftError):
            raise started
        if not isinstance(started, Message):
            await started
    except LograftError as error:
        return DeletableGroupResult(group_id=group_id, error_code=code_of(error))
    return DeletableGroupResult(group_id=group_id)
