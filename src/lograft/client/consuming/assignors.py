"""The assignors of classic groups, which the leader of a group runs. They are deterministic
functions of the subscriptions: every member would compute the same assignment.
"""

from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Final, NamedTuple, Protocol, TypeAlias

from lograft.client.consuming.range_assignor import Racks, RangeMember, assign_ranges
from lograft.client.consuming.sticky_assignor import StickyMember, assign_sticky
from lograft.client.types import TopicPartition
from lograft.model.hash_ring import member_name, share_partitions


class Member(NamedTuple):
    id: str
    topics: frozenset[str]
    #: group.instance.id of a static member.
    instance_id: str | None = None
    #: The partitions that it reports as owned, and the generation in which they were assigned.
    owned: frozenset[TopicPartition] = frozenset()
    generation: int = -1
    #: client.rack.
    rack: str | None = None

    @property
    def sort_key(self) -> tuple[bool, str]:
        """Static members come first, in the order of their instance ids, which unlike their member
        ids survive a restart."""
        is_static = self.instance_id is not None
        return not is_static, (self.instance_id if self.instance_id is not None else self.id)


#: Partitions of each member; every member has an entry.
Assignment: TypeAlias = dict[str, list[TopicPartition]]
NO_RACKS: Final[Racks] = MappingProxyType({})


class Assignor(Protocol):
    def __call__(
        self, partitions: Mapping[str, int], members: Sequence[Member], racks: Racks = NO_RACKS, /
    ) -> Assignment:
        """Returns the assignment, given the number of partitions of each topic, the members, and
        the racks of the replicas."""


def assign_by_range(
    partitions: Mapping[str, int], members: Sequence[Member], racks: Racks = NO_RACKS, /
) -> Assignment:
    """Assigns each member a range of each topic. Topics with the same number of partitions and the
    same subscribers are co-partitioned: their partitions with the same index have one owner."""
    range_members = [
        RangeMember(member.id, member.topics, member.rack)
        for member in sorted(members, key=_sort_key)
    ]
    return assign_ranges(partitions, range_members, racks)


def assign_round_robin(
    partitions: Mapping[str, int], members: Sequence[Member], _racks: Racks = NO_RACKS, /
) -> Assignment:
    """Assigns all partitions in order to the members in turn, skipping members that have not
    subscribed to the topic."""
    assigned: Assignment = {member.id: [] for member in members}
    ordered = sorted(members, key=_sort_key)
    turn = 0
    for topic in sorted(partitions):
        if not any(topic in member.topics for member in ordered):
            continue
        for index in range(partitions[topic]):
            while topic not in ordered[turn % len(ordered)].topics:
                turn += 1
            assigned[ordered[turn % len(ordered)].id].append(TopicPartition(topic, index))
            turn += 1
    return assigned


def assign_by_stickiness(
    partitions: Mapping[str, int], members: Sequence[Member], racks: Racks = NO_RACKS, /
) -> Assignment:
    """Assigns as evenly as possible, then with as many rack matches as possible, and moves no more
    partitions than that requires."""
    sticky_members = [
        StickyMember(member.id, member.topics, member.owned, member.generation, member.rack)
        for member in sorted(members, key=_sort_key)
    ]
    return assign_sticky(partitions, sticky_members, racks)


def assign_by_cooperative_stickiness(
    partitions: Mapping[str, int], members: Sequence[Member], racks: Racks = NO_RACKS, /
) -> Assignment:
    """Like `assign_by_stickiness`, but in two rebalances: a partition that moves stays unassigned
    until its owner has revoked it and joined again."""
    return _without_moves(assign_by_stickiness(partitions, members, racks), members)


def assign_by_hash_ring(
    partitions: Mapping[str, int], members: Sequence[Member], _racks: Racks = NO_RACKS, /
) -> Assignment:
    """Assigns by consistent hashing: the result depends on the topics and the members, not on the
    assignment before. Takes two rebalances like `assign_by_cooperative_stickiness`."""
    member_of = {member_name(member.id, member.instance_id): member for member in members}
    subscribers = {
        topic: [name for name in sorted(member_of) if topic in member_of[name].topics]
        for topic in sorted(partitions)
    }
    subscribed = {topic: partitions[topic] for topic, names in subscribers.items() if names}
    shares = share_partitions(member_of, subscribed, subscribers)
    assigned = {
        member_of[name].id: [TopicPartition(*partition) for partition in sorted(share)]
        for name, share in shares.items()
    }
    return _without_moves(assigned, members)


def _without_moves(assigned: Assignment, members: Sequence[Member]) -> Assignment:
    """Returns the assignment without the partitions that another member still owns."""
    owners = {partition: member.id for member in members for partition in member.owned}
    return {
        member_id: [
            partition for partition in share if owners.get(partition, member_id) == member_id
        ]
        for member_id, share in assigned.items()
    }


ASSIGNORS: Final[Mapping[str, Assignor]] = {
    "range": assign_by_range,
    "roundrobin": assign_round_robin,
    "sticky": assign_by_stickiness,
    "cooperative-sticky": assign_by_cooperative_stickiness,
    "consistent": assign_by_hash_ring,
}
#: Assignors whose members keep their partitions while they join.
COOPERATIVE: Final = frozenset(("cooperative-sticky", "consistent"))


def is_cooperative(names: Iterable[str]) -> bool:
    """Whether a member with these assignors keeps its partitions while it joins. With one eager
    assignor among them it must revoke all, because the group may select that one."""
    return all(name in COOPERATIVE for name in names)


def _sort_key(member: Member) -> tuple[bool, str]:
    return member.sort_key
