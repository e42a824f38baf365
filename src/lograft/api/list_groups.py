"""ListGroups, versions 0-5: all groups that this broker coordinates, of every type.

v4: filtered by state. v5: filtered by type. Lograft only, between nodes: the groups that use given
topics, with the partitions of the internal topic that the response covers.
"""

from typing import Final

from lograft.api.authorization import find_denied
from lograft.api.context import Api, Context
from lograft.api.types import each_item, whole_request
from lograft.coordination.group_listing import list_groups, list_users
from lograft.security.authorization import CLUSTER_ACTION, CLUSTER_DESCRIBE, GROUP_DESCRIBE
from lograft.wire.messages.list_groups import ListedGroup, ListGroupsRequest, ListGroupsResponse


def is_from_node(request: ListGroupsRequest) -> bool:
    """Returns whether the request is the one between Lograft nodes, see above."""
    return bool(request.used_topics)


API: Final = Api(
    key=16,
    versions=range(6),
    needs=whole_request(CLUSTER_ACTION, when=is_from_node)
    + each_item(CLUSTER_DESCRIBE, GROUP_DESCRIBE),
)


async def handle(context: Context, request: ListGroupsRequest) -> ListGroupsResponse:
    if request.used_topics:
        return await _list_users(context, request)
    states = frozenset(state.lower() for state in request.states_filter)
    types = frozenset(kind.lower() for kind in request.types_filter)
    responses: list[ListGroupsResponse] = await context.broker.groups.ask_every(
        lambda shard, ticket, _: list_groups(shard, ticket, states=states, types=types)
    )
    groups = [group for response in responses for group in response.groups]
    hidden = find_denied(
        context,
        GROUP_DESCRIBE,
        (group.group_id for group in groups),
        unless=CLUSTER_DESCRIBE,
        is_filter=True,
    )
    return ListGroupsResponse(groups=[group for group in groups if group.group_id not in hidden])


async def _list_users(context: Context, request: ListGroupsRequest) -> ListGroupsResponse:
    groups = context.broker.groups
    partitions = groups.loaded_partitions()
    responses: list[ListGroupsResponse] = await groups.ask_every(
        lambda shard, ticket, _: list_users(shard, ticket, request.used_topics, request.group_ids)
    )
    listed = [group for response in responses for group in response.groups]
    listed += (
        ListedGroup(group_id=group_id, used_topics=[topic])
        for group_id, topic in context.broker.claims.find_pending(request.used_topics)
        if not request.group_ids or group_id in request.group_ids
    )
    return ListGroupsResponse(groups=listed, partitions=partitions)
