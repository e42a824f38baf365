"""ConsumerGroupDescribe: describes a group by its replayed state."""

from lograft.coordination.assignors import Assignment
from lograft.coordination.consumer_group import ConsumerGroup
from lograft.coordination.consumer_groups import ConsumerGroups
from lograft.coordination.consumer_member import ConsumerMember
from lograft.coordination.types import CoordinatorResult, Ticket
from lograft.metadata.image import MetadataImage
from lograft.model.errors import Rejected
from lograft.wire.messages import consumer_group_describe as wire


def describe(groups: ConsumerGroups, group_id: str, ticket: Ticket) -> CoordinatorResult:
    try:
        group = groups.group(group_id)
    except Rejected as rejection:
        missing = wire.DescribedGroup(
            group_id=group_id, error_code=rejection.code, error_message=rejection.message
        )
        return CoordinatorResult(replies=[(ticket, missing)])
    image = groups.shard.context.image()
    preferences = (member.assignor for member in group.members.values())
    described = wire.DescribedGroup(
        group_id=group_id,
        group_state=group.state_name,
        group_epoch=group.epoch,
        assignment_epoch=group.target_epoch,
        assignor_name=groups.settings(group_id).preferred_assignor(preferences),
        members=[_member(group, member, image) for member in group.members.values()],
    )
    return CoordinatorResult(replies=[(ticket, described)])


def _member(group: ConsumerGroup, member: ConsumerMember, image: MetadataImage) -> wire.Member:
    return wire.Member(
        member_id=member.member_id,
        instance_id=member.instance_id,
        rack_id=member.rack,
        member_epoch=member.epoch,
        client_id=member.client_id,
        client_host=member.client_host,
        subscribed_topic_names=list(member.topics),
        subscribed_topic_regex=member.regex,
        assignment=_encode_assignment(member.held_partitions(), image),
        target_assignment=_encode_assignment(group.target(member.member_id), image),
        member_type=1 if member.classic is None else 0,
    )


def _encode_assignment(assignment: Assignment, image: MetadataImage) -> wire.Assignment:
    """Without deleted topics."""
    return wire.Assignment(
        topic_partitions=[
            wire.TopicPartitions(
                topic_id=topic_id,
                topic_name=image.topics[topic_id].name,
                partitions=sorted(partitions),
            )
            for topic_id, partitions in assignment.items()
            if topic_id in image.topics
        ]
    )
