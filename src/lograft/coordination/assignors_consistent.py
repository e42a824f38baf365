"""The assignor `consistent`: partitions and members on a ring, as brokers are in placement.

Each partition goes to the next member clockwise that subscribes to its topic and has not got its
fair share yet. The result depends on who is in the group, never on what was before: after a
restart of all the same members (static ones, by instance id) have the same partitions, and when
one comes or goes about its own share moves, without a look at the past.
"""

from functools import lru_cache
from math import ceil
from typing import Final

from lograft.coordination.assignors import Assignment, GroupSpec, by_member, subscribers
from lograft.metadata.placement import Ring, ring_places
from lograft.model.types import TopicIdPartition

#: Points of a member on the ring; brokers have more, for there may be many more members.
POINTS: Final = 32
#: How far above the group's average a member may get. Less would make loads more even and let
#: more partitions move.
SLACK: Final = 1.1


def assign_consistent(group: GroupSpec) -> dict[str, Assignment]:
    name_of = {
        member_id: f"{member.instance_id is None} {member.instance_id or member_id}"
        for member_id, member in group.members.items()
    }
    member_of = {name: member_id for member_id, name in name_of.items()}
    assert len(member_of) == len(name_of), "an instance id belongs to one member"
    ring = _ring(tuple(sorted(member_of)))
    average = sum(group.partition_counts.values()) / max(1, len(group.members))
    load_max = ceil(average * SLACK)
    placed: dict[str, list[TopicIdPartition]] = {name: [] for name in member_of}
    for topic_id, members in subscribers(group, sorted(group.members)).items():
        names = dict.fromkeys(name_of[member_id] for member_id in members)
        if not names:
            continue
        for partition in range(group.partition_counts[topic_id]):
            clockwise = ring.clockwise(f"{topic_id} {partition}")
            near = (n for n in clockwise if n in names and len(placed[n]) < load_max)
            # Few subscribers of a big topic may all have more than their share.
            name = next(near, None) or min(names, key=lambda n: len(placed[n]))
            placed[name].append(TopicIdPartition(topic_id, partition))
    return by_member(group, {member_of[name]: held for name, held in placed.items()})


@lru_cache(maxsize=16)
def _ring(names: tuple[str, ...]) -> Ring[str]:
    return Ring(place for name in names for place in ring_places("member", name, POINTS))
