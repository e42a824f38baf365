"""ListGroups, DescribeGroups and DeleteGroups, for groups of all kinds."""

from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING

from lograft.coordination.classic_group import ClassicGroup
from lograft.coordination.classic_states import GroupState
from lograft.coordination.offset_records import offset_tombstones
from lograft.coordination.types import CoordinatorResult, Ticket
from lograft.model.errors import ErrorCode
from lograft.wire.messages.delete_groups import DeletableGroupResult
from lograft.wire.messages.describe_groups import DescribedGroup, DescribedGroupMember
from lograft.wire.messages.list_groups import ListedGroup, ListGroupsResponse

if TYPE_CHECKING:
    from lograft.coordination.group_shard import GroupShard


def list_users(
    shard: "GroupShard", ticket: Ticket, topics: Sequence[str], group_ids: Sequence[str]
) -> CoordinatorResult:
    """Lists the groups that use some of these topics, optionally only those in `group_ids`. A group
    uses a topic if a member subscribes to it or the group has committed offsets for it."""
    groups = shard.groups
    requested = (
        [groups[group_id] for group_id in group_ids if group_id in groups]
        if group_ids
        else groups.values()
    )
    listed = []
    for group in requested:
        positions = shard.offsets.of(group.group_id)
        pending = {topic for topic, _ in shard.offsets.pending_partitions(group.group_id)}
        used = [
            topic
            for topic in topics
            if topic in positions or topic in pending or group.reads(topic)
        ]
        if used:
            listed.append(ListedGroup(group_id=group.group_id, used_topics=used))
    return CoordinatorResult(replies=[(ticket, ListGroupsResponse(groups=listed))])


def list_groups(
    shard: "GroupShard", ticket: Ticket, *, states: Collection[str], types: Collection[str]
) -> CoordinatorResult:
    """Lists the groups in one of these states and of one of these types, both in lower case; empty
    means all."""
    listed = [
        ListedGroup(
            group_id=group.group_id,
            protocol_type=group.protocol_type,
            group_state=group.state_name,
            group_type=group.kind.value,
        )
        for group in shard.groups.values()
        if (not states or group.state_name.lower() in states)
        and (not types or group.kind.value.lower() in types)
    ]
    return CoordinatorResult(replies=[(ticket, ListGroupsResponse(groups=listed))])


def describe_group(shard: "GroupShard", ticket: Ticket, group_id: str) -> CoordinatorResult:
    """This API does not describe groups of other kinds than classic."""
    group = shard.groups.get(group_id)
    if isinstance(group, ClassicGroup):
        described = _describe(group)
    else:
        described = DescribedGroup(
            error_code=ErrorCode.GROUP_ID_NOT_FOUND,
            error_message=f"Group {group_id} not found."
            if group is None
            else f"Group {group_id} is not a classic group.",
            group_id=group_id,
            group_state=GroupState.DEAD.value,
        )
    return CoordinatorResult(replies=[(ticket, described)])


def _describe(group: ClassicGroup) -> DescribedGroup:
    """The members' metadata is included only once they have agreed on a protocol."""
    protocol = group.protocol if group.state is GroupState.STABLE else None
    return DescribedGroup(
        group_id=group.group_id,
        group_state=group.state_name,
        protocol_type=group.protocol_type,
        protocol_data=protocol or "",
        members=[
            DescribedGroupMember(
                member_id=member.member_id,
                group_instance_id=member.instance_id,
                client_id=member.client_id,
                client_host=member.client_host,
                member_metadata=b"" if protocol is None else member.protocols[protocol],
                member_assignment=member.assignment,
            )
            for member in group.members.values()
        ],
    )


def delete_group(shard: "GroupShard", ticket: Ticket, group_id: str) -> CoordinatorResult:
    """Deletes the group and its offsets in one batch."""
    group = shard.group(group_id)
    group.check_delete()
    records = [*offset_tombstones(shard.offsets, group_id), *group.tombstones()]
    return CoordinatorResult(
        records=records, replies=[(ticket, DeletableGroupResult(group_id=group_id))]
    )
