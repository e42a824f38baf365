"""Heartbeat, versions 0-4: keeps a classic member's session alive and reports rebalances.

Responds immediately. v3: static members. While the group is being loaded the response has no error:
the members' sessions start again when loading has finished.
"""

from collections.abc import Coroutine
from typing import Any, Final, cast

from lograft.api.context import Api, Context
from lograft.api.join_group import check_group
from lograft.api.types import group_of, whole_request
from lograft.coordination.errors import CoordinatorLoading
from lograft.security.authorization import GROUP_READ
from lograft.wire.messages.heartbeat import HeartbeatRequest, HeartbeatResponse

API: Final = Api(key=12, versions=range(5), needs=whole_request(GROUP_READ, names=group_of))


def handle(
    context: Context, request: HeartbeatRequest
) -> HeartbeatResponse | Coroutine[Any, Any, HeartbeatResponse]:
    check_group(request.group_id)
    try:
        response = context.broker.groups.ask_now(
            request.group_id,
            lambda shard, ticket, now_ms: shard.classic.heartbeat(request, ticket, now_ms),
        )
    except CoordinatorLoading:
        return HeartbeatResponse()
    return cast(HeartbeatResponse, response)
