"""Server-side assignors: which member of a consumer group is to have which partitions.

An assignor is a function of the whole group. All of them give every partition of a subscribed
topic to exactly one of its subscribers. `ASSIGNORS` has them by the name that consumers ask for.
"""

from collections.abc import Callable, Collection, Mapping
from typing import Final, NamedTuple, TypeAlias
from uuid import UUID

from lograft.model.types import TopicIdPartition

#: Partitions by topic, in ascending order; a topic without partitions is left out.
Assignment: TypeAlias = Mapping[UUID, tuple[int, ...]]

NO_PARTITIONS: Final[Assignment] = {}


class MemberSpec(NamedTuple):
    #: The existing topics that it subscribes to, each once, in ascending order.
    topics: tuple[UUID, ...]
    #: What the last assignment gave it.
    had: Assignment = NO_PARTITIONS
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


def by_member(
    group: GroupSpec, placed: Mapping[str, Collection[TopicIdPartition]]
) -> dict[str, Assignment]:
    """In the form that an assignor returns, with members that got nothing."""
    result: dict[str, Assignment] = {}
    for member_id in group.members:
        topics: dict[UUID, list[int]] = {}
        for topic_id, partition in sorted(placed.get(member_id, ())):
            topics.setdefault(topic_id, []).append(partition)
        result[member_id] = {topic_id: tuple(found) for topic_id, found in topics.items()}
    return result


def subscribers(group: GroupSpec, order: Collection[str]) -> dict[UUID, list[str]]:
    """Of every topic, in the given order of the members."""
    found: dict[UUID, list[str]] = {topic_id: [] for topic_id in sorted(group.partition_counts)}
    for member_id in order:
        for topic_id in group.members[member_id].topics:
            found[topic_id].append(member_id)
    return found


def assign_range(group: GroupSpec) -> dict[str, Assignment]:
    """Of each topic a run of neighbours, in the same order of members for every topic: topics with
    equal partition counts and subscribers are split alike, so that joins stay within a member.

    Static members come first, by instance id, so that one that restarts finds the same place.
    """

    def place(member_id: str) -> tuple[bool, str]:
        instance_id = group.members[member_id].instance_id
        return (True, member_id) if instance_id is None else (False, instance_id)

    result: dict[str, dict[UUID, tuple[int, ...]]] = {member_id: {} for member_id in group.members}
    for topic_id, members in subscribers(group, sorted(group.members, key=place)).items():
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


def assignor(name: str) -> Assignor | None:
    """None: there is none of this name."""
    # Imported here: each of them needs the types above.
    from lograft.coordination.assignors_consistent import assign_consistent
    from lograft.coordination.assignors_uniform import assign_uniform

    return {
        "uniform": assign_uniform,
        "range": assign_range,
        "consistent": assign_consistent,
    }.get(name)
