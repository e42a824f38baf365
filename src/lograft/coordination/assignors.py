"""Server-side assignors: compute which member of a consumer group gets which partitions.

An assignor is a function of the whole group. Every assignor gives each partition of a subscribed
topic to exactly one of its subscribers. `find_assignor` returns them by name.
"""

from collections.abc import Callable, Collection, Mapping
from typing import Final, NamedTuple, TypeAlias
from uuid import UUID

from lograft.model.types import TopicIdPartition

#: Partitions by topic, in ascending order; topics without partitions are omitted.
Assignment: TypeAlias = Mapping[UUID, tuple[int, ...]]

NO_PARTITIONS: Final[Assignment] = {}


class MemberSpec(NamedTuple):
    #: The existing topics that it subscribes to, without duplicates, in ascending order.
    topics: tuple[UUID, ...]
    #: The partitions that the previous assignment gave it.
    previous: Assignment = NO_PARTITIONS
    rack: str | None = None
    instance_id: str | None = None


def _no_racks(topic_id: UUID, partition: int) -> Collection[str]:
    return ()


class GroupSpec(NamedTuple):
    members: Mapping[str, MemberSpec]
    #: How many partitions each subscribed topic has.
    partition_counts: Mapping[UUID, int]
    #: The racks in which a partition has a replica.
    racks: Callable[[UUID, int], Collection[str]] = _no_racks


Assignor: TypeAlias = Callable[[GroupSpec], dict[str, Assignment]]


def assignments_by_member(
    group: GroupSpec, placed: Mapping[str, Collection[TopicIdPartition]]
) -> dict[str, Assignment]:
    """The result of an assignor, including members without partitions."""
    result: dict[str, Assignment] = {}
    for member_id in group.members:
        topics: dict[UUID, list[int]] = {}
        for topic_id, partition in sorted(placed.get(member_id, ())):
            topics.setdefault(topic_id, []).append(partition)
        result[member_id] = {topic_id: tuple(partitions) for topic_id, partitions in topics.items()}
    return result


def subscribers(group: GroupSpec, order: Collection[str]) -> dict[UUID, list[str]]:
    """The subscribers of each topic, in the given order of members."""
    partitions: dict[UUID, list[str]] = {
        topic_id: [] for topic_id in sorted(group.partition_counts)
    }
    for member_id in order:
        for topic_id in group.members[member_id].topics:
            partitions[topic_id].append(member_id)
    return partitions


def assign_range(group: GroupSpec) -> dict[str, Assignment]:
    """Gives each member a contiguous range of each topic's partitions. The order of members is the
    same for every topic, so topics with equal partition counts and equal subscribers are
    co-assigned, so joins are local to one member.

    Static members come first, ordered by instance id, so that a restarted one gets the same range.
    """

    def sort_key(member_id: str) -> tuple[bool, str]:
        instance_id = group.members[member_id].instance_id
        return (True, member_id) if instance_id is None else (False, instance_id)

    result: dict[str, dict[UUID, tuple[int, ...]]] = {member_id: {} for member_id in group.members}
    for topic_id, members in subscribers(group, sorted(group.members, key=sort_key)).items():
        if not members:
            continue
        share, extra = divmod(group.partition_counts[topic_id], len(members))
        start = 0
        for position, member_id in enumerate(members):
            end = start + share + (position < extra)
            if end > start:
                result[member_id][topic_id] = tuple(range(start, end))
            start = end
    return dict(result)


def find_assignor(name: str) -> Assignor | None:
    """None if there is no assignor with this name."""
    # Imported here because both modules need the types above.
    from lograft.coordination.assignors_consistent import assign_consistent
    from lograft.coordination.assignors_uniform import assign_uniform

    return {
        "uniform": assign_uniform,
        "range": assign_range,
        "consistent": assign_consistent,
    }.get(name)
