"""ListGroups, versions 0-5: all groups that this broker coordinates, of every kind.

v4: only those in some states. v5: only those of some types.
"""

from typing import Final

from lograft.api.context import Api, Context, Resource, authorize
from lograft.api.operations import DESCRIBE
from lograft.coordination.group_listing import list_groups
from lograft.wire.messages.list_groups import ListGroupsRequest, ListGroupsResponse

API: Final = Api(key=16, versions=range(6))


async def handle(context: Context, request: ListGroupsRequest) -> ListGroupsResponse:
    states = frozenset(state.lower() for state in request.states_filter)
    types = frozenset(kind.lower() for kind in request.types_filter)
    answers: list[ListGroupsResponse] = await context.broker.groups.ask_every(
        lambda shard, ticket, _: list_groups(shard, ticket, states=states, types=types)
    )
    return ListGroupsResponse(
        groups=[
            group
            for answer in answers
            for group in answer.groups
            if authorize(context, DESCRIBE, Resource.group, group.group_id)
        ]
    )
