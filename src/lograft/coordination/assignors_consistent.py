"""The assignor `consistent`: partitions and members on a hash ring, like brokers in placement.

The result depends only on the current members, never on the previous assignment. After a restart
of all members, the same members (static ones, by instance id) have the same partitions, and when a
member joins or leaves, only about its own share of the partitions moves.
"""

from lograft.coordination.assignors import Assignment, GroupSpec, assignments_by_member, subscribers
from lograft.model.hash_ring import member_name, share_partitions
from lograft.model.types import TopicIdPartition


def assign_consistent(group: GroupSpec) -> dict[str, Assignment]:
    name_of = {
        member_id: member_name(member_id, member.instance_id)
        for member_id, member in group.members.items()
    }
    member_of = {name: member_id for member_id, name in name_of.items()}
    assert len(member_of) == len(name_of), "each instance id belongs to one member"
    subscribed = {
        topic_id: [name_of[member_id] for member_id in members]
        for topic_id, members in subscribers(group, sorted(group.members)).items()
    }
    placed = share_partitions(member_of, group.partition_counts, subscribed)
    return assignments_by_member(
        group,
        {
            member_of[name]: [TopicIdPartition(*partition) for partition in held]
            for name, held in placed.items()
        },
    )
