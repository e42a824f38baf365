"""ListGroups, versions 0-5: all groups that this broker coordinates, of every kind.

v4: only those in some states. v5: only those of some types. Our own, between nodes: only those that
use some topics, told with the partitions of the internal topic that the answer speaks for.
"""

from typing import Final

from lograft.api.context import Api, Context, Resource, authorize
from lograft.api.operations import DESCRIBE
from lograft.coordination.group_listing import list_groups, list_users
from lograft.wire.messages.list_groups import ListedGroup, ListGroupsRequest, ListGroupsResponse

API: Final = Api(key=16, versions=range(6))


async def handle(context: Context, request: ListGroupsRequest) -> ListGroupsResponse:
    if request.used_topics:
        return await _list_users(context, request)
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


async def _list_users(context: Context, request: ListGroupsRequest) -> ListGroupsResponse:
    groups = context.broker.groups
    partitions = groups.loaded_partitions()
    answers: list[ListGroupsResponse] = await groups.ask_every(
        lambda shard, ticket, _: list_users(shard, ticket, request.used_topics, request.group_ids)
    )
    found = [group for answer in answers for group in answer.groups]
    found += (
        ListedGroup(group_id=group_id, used_topics=[topic])
        for group_id, topic in context.broker.claims.claiming(request.used_topics)
        if not request.group_ids or group_id in request.group_ids
    )
    return ListGroupsResponse(groups=found, partitions=partitions)
