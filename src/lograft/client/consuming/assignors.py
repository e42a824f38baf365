"""Who in a classic group reads what: decided by the member that leads it. Functions of what the
members have told; every leader decides alike.
"""

from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Final, NamedTuple, Protocol, TypeAlias

from lograft.client.consuming.range_assignor import Racks, Reader, ranged
from lograft.client.consuming.sticky_assignor import Claim, balanced
from lograft.client.types import TopicPartition
from lograft.model.hash_ring import member_name, share_partitions


class Member(NamedTuple):
    id: str
    topics: frozenset[str]
    #: Of static members.
    instance_id: str | None = None
    #: What it had, by its own word, and since which generation.
    owned: frozenset[TopicPartition] = frozenset()
    generation: int = -1
    #: Its client.rack.
    rack: str | None = None

    @property
    def place(self) -> tuple[bool, str]:
        """In the order of members: static ones first, whatever id they have this time."""
        is_static = self.instance_id is not None
        return not is_static, (self.instance_id if self.instance_id is not None else self.id)


#: Partitions of each member; every member has an entry.
Assignment: TypeAlias = dict[str, list[TopicPartition]]
NOWHERE: Final[Racks] = MappingProxyType({})


class Assignor(Protocol):
    def __call__(
        self, partitions: Mapping[str, int], members: Sequence[Member], racks: Racks = NOWHERE, /
    ) -> Assignment:
        """From the number of partitions of each topic, the members, and where the replicas are."""


def by_range(
    partitions: Mapping[str, int], members: Sequence[Member], racks: Racks = NOWHERE, /
) -> Assignment:
    """Topic by topic, each member a range; so the same partitions of topics that have equally many
    go to the same member."""
    readers = [
        Reader(member.id, member.topics, member.rack) for member in sorted(members, key=_place)
    ]
    return ranged(partitions, readers, racks)


def by_turns(
    partitions: Mapping[str, int], members: Sequence[Member], _racks: Racks = NOWHERE, /
) -> Assignment:
    """All partitions in order, one to each member in turn, past those that do not want it."""
    assigned: Assignment = {member.id: [] for member in members}
    line = sorted(members, key=_place)
    turn = 0
    for topic in sorted(partitions):
        if not any(topic in member.topics for member in line):
            continue
        for index in range(partitions[topic]):
            while topic not in line[turn % len(line)].topics:
                turn += 1
            assigned[line[turn % len(line)].id].append(TopicPartition(topic, index))
            turn += 1
    return assigned


def by_sticking(
    partitions: Mapping[str, int], members: Sequence[Member], racks: Racks = NOWHERE, /
) -> Assignment:
    """As even as can be, then as near as can be, with as few moves as that takes."""
    claims = [
        Claim(member.id, member.topics, member.owned, member.generation, member.rack)
        for member in sorted(members, key=_place)
    ]
    return balanced(partitions, claims, racks)


def by_cooperative_sticking(
    partitions: Mapping[str, int], members: Sequence[Member], racks: Racks = NOWHERE, /
) -> Assignment:
    """As `by_sticking`, in two steps: what is to move is given to nobody until its owner has let
    go of it, and then joins again."""
    return _without_moving(by_sticking(partitions, members, racks), members)


def by_ring(
    partitions: Mapping[str, int], members: Sequence[Member], _racks: Racks = NOWHERE, /
) -> Assignment:
    """By consistent hashing: the result depends on the topics and on who is in the group, not on
    what was before. In two steps, as `by_cooperative_sticking`."""
    member_of = {member_name(member.id, member.instance_id): member for member in members}
    subscribers = {
        topic: [name for name in sorted(member_of) if topic in member_of[name].topics]
        for topic in sorted(partitions)
    }
    read = {topic: partitions[topic] for topic, names in subscribers.items() if names}
    placed = share_partitions(member_of, read, subscribers)
    assigned = {
        member_of[name].id: [TopicPartition(*partition) for partition in sorted(held)]
        for name, held in placed.items()
    }
    return _without_moving(assigned, members)


def _without_moving(assigned: Assignment, members: Sequence[Member]) -> Assignment:
    """What every member may have at once: partitions that others still own are left out."""
    owners = {one: member.id for member in members for one in member.owned}
    return {
        member_id: [one for one in mine if owners.get(one, member_id) == member_id]
        for member_id, mine in assigned.items()
    }


ASSIGNORS: Final[Mapping[str, Assignor]] = {
    "range": by_range,
    "roundrobin": by_turns,
    "sticky": by_sticking,
    "cooperative-sticky": by_cooperative_sticking,
    "consistent": by_ring,
}
#: Of those, the ones whose members keep what they have while they join.
COOPERATIVE: Final = frozenset(("cooperative-sticky", "consistent"))


def is_cooperative(names: Iterable[str]) -> bool:
    """Whether a member with these assignors keeps its partitions while it joins: if it may be given
    to an eager assignor, it must give all of them back."""
    return all(name in COOPERATIVE for name in names)


def _place(member: Member) -> tuple[bool, str]:
    return member.place
