"""Assigns each member a range of each topic, rack-aware where that keeps the assignment balanced
(KIP-881).

The partitions of a topic are assigned in order to the members in order; the first members get one
more if the division leaves a remainder. If members and replicas have racks, and not every rack has
a replica of every partition, then partitions with a replica in a member's rack are assigned first,
within the same limits. Topics with the same number of partitions and the same members stay
co-partitioned: one member gets partition 3 of all of them, and as a rack match only if it matches
in all of them.

Java's RangeAssignor gives the same result, since members of both clients may lead one group.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple, TypeAlias

from lograft.client.types import TopicPartition

#: The racks of the replicas of a partition, as far as they are known. Includes replicas that
#: are offline or out of sync, because they are likely to come back.
Racks: TypeAlias = Mapping[TopicPartition, frozenset[str]]


class RangeMember(NamedTuple):
    id: str
    topics: frozenset[str]
    #: None: every partition matches.
    rack: str | None = None


def assign_ranges(
    partitions: Mapping[str, int], members: Sequence[RangeMember], racks: Racks
) -> dict[str, list[TopicPartition]]:
    """Returns the partitions of each member. The first members get the remainder."""
    topics = [
        _TopicAssignment(topic, partitions[topic], subscribers, racks)
        for topic in sorted(partitions)
        if (subscribers := tuple(member for member in members if topic in member.topics))
    ]
    if any(topic.uses_racks() for topic in topics):
        for co_partitioned in _group_co_partitioned(topics):
            if len(co_partitioned) > 1:
                _assign_co_partitioned_matches(co_partitioned)
            elif co_partitioned[0].uses_racks():
                co_partitioned[0].assign_ranges(only_matches=True)
    for topic in topics:
        topic.assign_ranges()
    return {
        member.id: sorted(
            partition for topic in topics for partition in topic.assigned.get(member, ())
        )
        for member in members
    }


class _TopicAssignment:
    """The assignment of one topic while it is computed."""

    def __init__(
        self, topic: str, count: int, members: tuple[RangeMember, ...], racks: Racks
    ) -> None:
        self.members = members
        self.partitions = tuple(TopicPartition(topic, index) for index in range(count))
        self.assigned: dict[RangeMember, list[TopicPartition]] = {member: [] for member in members}
        self._racks = {
            partition: racks.get(partition, frozenset()) for partition in self.partitions
        }
        self._unassigned = dict.fromkeys(self.partitions)
        #: Every member gets `_quota` partitions, and `_remainder` members one more.
        self._quota, self._remainder = divmod(count, len(members))

    def uses_racks(self) -> bool:
        """Whether the racks make a difference."""
        member_racks = {member.rack for member in self.members if member.rack is not None}
        replica_racks = frozenset().union(*self._racks.values())
        return not member_racks.isdisjoint(replica_racks) and any(
            racks != replica_racks for racks in self._racks.values()
        )

    def is_match(self, member: RangeMember, partition: TopicPartition) -> bool:
        return member.rack is None or member.rack in self._racks[partition]

    def remaining_quota(self, member: RangeMember) -> int:
        return max(0, self._quota + (self._remainder > 0) - len(self.assigned[member]))

    def assign(self, member: RangeMember, partitions: Iterable[TopicPartition]) -> None:
        assigned = self.assigned[member]
        for partition in partitions:
            del self._unassigned[partition]
            assigned.append(partition)
        if len(assigned) > self._quota:
            self._remainder -= 1

    def assign_ranges(self, *, only_matches: bool = False) -> None:
        for member in self.members:
            candidates = [
                partition
                for partition in self._unassigned
                if not only_matches or self.is_match(member, partition)
            ]
            if candidates := candidates[: self.remaining_quota(member)]:
                self.assign(member, candidates)


def _group_co_partitioned(topics: Iterable[_TopicAssignment]) -> Iterable[list[_TopicAssignment]]:
    groups: dict[tuple[tuple[RangeMember, ...], int], list[_TopicAssignment]] = {}
    for topic in topics:
        groups.setdefault((topic.members, len(topic.partitions)), []).append(topic)
    return groups.values()


def _assign_co_partitioned_matches(topics: Sequence[_TopicAssignment]) -> None:
    """Assigns the partitions with one index to the first member whose rack matches all of them."""
    for partitions in zip(*(topic.partitions for topic in topics), strict=True):
        matching = (
            member
            for member in topics[0].members
            if all(
                topic.remaining_quota(member) and topic.is_match(member, partition)
                for topic, partition in zip(topics, partitions, strict=True)
            )
        )
        member = next(matching, None)
        if member is not None:
            for topic, partition in zip(topics, partitions, strict=True):
                topic.assign(member, [partition])
