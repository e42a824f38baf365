"""Assigns partitions evenly and moves as few of them as possible.

Members keep the partitions that they own; unassigned partitions go to the least loaded member; then
partitions are moved one by one from the most loaded members to members that have subscribed to the
topic and have at least two partitions fewer. Each of these moves makes the assignment more even, so
the loop ends, and evenness requires each of them.

If members and replicas have racks, partitions are then moved to members in a rack of their replicas
as far as the assignment stays as even: by moves to a member that has one partition fewer, and by
exchanges between two or three members. So racks have priority over stickiness, as in Java's
assignors (KIP-881). Each step adds rack matches or makes the assignment more even, so this loop
ends, too. Applied to its own result it moves nothing.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from lograft.client.consuming.range_assignor import Racks
from lograft.client.types import TopicPartition


class StickyMember(NamedTuple):
    """A member, with the partitions that it owned in a generation."""

    id: str
    topics: frozenset[str]
    owned: frozenset[TopicPartition]
    generation: int
    #: None: every partition matches.
    rack: str | None = None


def assign_sticky(
    partitions: Mapping[str, int], members: Sequence[StickyMember], racks: Racks
) -> dict[str, list[TopicPartition]]:
    """Returns the partitions of each member. The first members get the remainder."""
    assignment = _Assignment(partitions, members, racks)
    assignment.assign_unowned()
    assignment.balance()
    while assignment.improve_rack_matches():
        assignment.balance()
    return {member.id: sorted(assignment.partitions_of[member.id]) for member in members}


class _Assignment:
    def __init__(
        self, partitions: Mapping[str, int], members: Sequence[StickyMember], racks: Racks
    ) -> None:
        self._members = members
        self._partition_counts = partitions
        self._racks = racks
        self._order = {member.id: index for index, member in enumerate(members)}
        #: Ids of the members that have subscribed to each topic.
        self._subscribers = {
            topic: [member.id for member in members if topic in member.topics]
            for topic in partitions
        }
        #: By member id.
        self.partitions_of: dict[str, set[TopicPartition]] = {
            member.id: set() for member in members
        }
        for partition, owner in self._owners().items():
            self.partitions_of[owner].add(partition)

    def _owners(self) -> dict[TopicPartition, str]:
        """Returns the member that keeps each partition. If several members claim one, the member of
        the latest generation owns it; if several of that generation do, none owns it."""
        claims: dict[TopicPartition, tuple[int, str | None]] = {}
        for member in self._members:
            for partition in member.owned:
                if partition.topic not in member.topics or not self._exists(partition):
                    continue
                generation, _ = claims.get(partition, (member.generation - 1, None))
                if member.generation > generation:
                    claims[partition] = member.generation, member.id
                elif member.generation == generation:
                    claims[partition] = member.generation, None
        return {partition: owner for partition, (_, owner) in claims.items() if owner is not None}

    def _exists(self, partition: TopicPartition) -> bool:
        return 0 <= partition.partition < self._partition_counts.get(partition.topic, 0)

    def assign_unowned(self) -> None:
        """Assigns the partitions without an owner, those with the fewest subscribers first, because
        they have the fewest alternatives."""
        owned = set().union(*self.partitions_of.values()) if self.partitions_of else set()
        unowned = [partition for partition in self._all_partitions() if partition not in owned]
        unowned.sort(key=lambda partition: (len(self._subscribers[partition.topic]), partition))
        for partition in unowned:
            subscribers = self._subscribers[partition.topic]
            if subscribers:
                least = min(len(self.partitions_of[member]) for member in subscribers)
                candidates = [
                    member for member in subscribers if len(self.partitions_of[member]) == least
                ]
                matching = [member for member in candidates if self._is_match(member, partition)]
                self.partitions_of[(matching or candidates)[0]].add(partition)

    def balance(self) -> None:
        while True:
            move = self._best_move()
            if move is None:
                return
            self._move(*move)

    def _best_move(self) -> tuple[TopicPartition, str, str] | None:
        """Returns the next move (partition, source, target), from the most loaded possible member
        to one with at least two partitions fewer. None: the assignment is balanced."""
        for source in sorted(self.partitions_of, key=self._load, reverse=True):
            limit = len(self.partitions_of[source]) - 2
            if limit < 0:
                return None
            topics = {partition.topic for partition in self.partitions_of[source]}
            targets = {
                member
                for topic in topics
                for member in self._subscribers[topic]
                if len(self.partitions_of[member]) <= limit
            }
            if targets:
                target = min(targets, key=self._load)
                subscribed = self._member(target).topics
                movable = [
                    partition
                    for partition in self.partitions_of[source]
                    if partition.topic in subscribed
                ]
                best = max(
                    movable,
                    key=lambda partition: (self._match_gain(partition, source, target), partition),
                )
                return best, source, target
        return None

    def improve_rack_matches(self) -> bool:
        """Moves partitions to members in their racks, without making the assignment less even.
        Returns whether any was moved."""
        has_moved = False
        #: What fails for one partition fails for all with the same owner, topic and racks.
        failed: set[tuple[str, str, frozenset[str]]] = set()
        for member in self._members:
            source = member.id
            for partition in sorted(self.partitions_of[source]):
                if self._is_match(source, partition):
                    continue
                case = source, partition.topic, self._racks.get(partition, frozenset())
                if case in failed:
                    continue
                if self._move_to_match(partition, source):
                    has_moved = True
                else:
                    failed.add(case)
        return has_moved

    def _move_to_match(self, partition: TopicPartition, source: str) -> bool:
        targets = [
            member
            for member in self._subscribers[partition.topic]
            if self._is_match(member, partition)
        ]
        for target in sorted(targets, key=self._load):
            count = len(self.partitions_of[target])
            if count < len(self.partitions_of[source]):
                self._move(partition, source, target)
                return True
            # The source needs another partition in exchange: from the target, or from a member that
            # has more than the target.
            more_loaded = [
                member
                for member in self.partitions_of
                if len(self.partitions_of[member]) > count and member != source
            ]
            for giver in (target, *more_loaded):
                replacement = self._find_replacement(giver, source)
                if replacement is not None:
                    self._move(partition, source, target)
                    self._move(replacement, giver, source)
                    return True
        return False

    def _find_replacement(self, source: str, target: str) -> TopicPartition | None:
        """Returns a partition that can be moved without losing a rack match, preferably one that
        the source has not owned before."""
        subscribed, owned = self._member(target).topics, self._member(source).owned
        candidates = [
            (-gain, partition in owned, partition)
            for partition in self.partitions_of[source]
            if partition.topic in subscribed
            and (gain := self._match_gain(partition, source, target)) >= 0
        ]
        return min(candidates)[-1] if candidates else None

    def _move(self, partition: TopicPartition, source: str, target: str) -> None:
        self.partitions_of[source].discard(partition)
        self.partitions_of[target].add(partition)

    def _is_match(self, member_id: str, partition: TopicPartition) -> bool:
        rack = self._member(member_id).rack
        return rack is None or rack in self._racks.get(partition, ())

    def _match_gain(self, partition: TopicPartition, source: str, target: str) -> int:
        return self._is_match(target, partition) - self._is_match(source, partition)

    def _member(self, member_id: str) -> StickyMember:
        return self._members[self._order[member_id]]

    def _all_partitions(self) -> Iterator[TopicPartition]:
        for topic in sorted(self._partition_counts):
            for index in range(self._partition_counts[topic]):
                yield TopicPartition(topic, index)

    def _load(self, member_id: str) -> tuple[int, int]:
        return len(self.partitions_of[member_id]), self._order[member_id]
