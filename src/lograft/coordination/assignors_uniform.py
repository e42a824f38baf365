"""The assignor `uniform`: members have equally many partitions and keep what they had.

1. Each member keeps its partitions of the topics that it still subscribes to.
2. Each partition without an owner goes to the subscriber with the fewest partitions.
3. While a member has at least two partitions more than another subscriber of the same topic, one
   partition moves.

With equal subscriptions, loads therefore differ by at most one and no partition moves without
need. With different subscriptions, no single move would make the loads more even. Among equally
suitable partitions, a member gets one that has a replica in its rack.
"""

import heapq
from collections import deque
from collections.abc import Callable, Collection
from typing import TypeAlias
from uuid import UUID

from lograft.coordination.assignors import Assignment, GroupSpec, assignments_by_member
from lograft.model.types import TopicIdPartition

Racks: TypeAlias = Callable[[UUID, int], Collection[str]]


def assign_uniform(group: GroupSpec) -> dict[str, Assignment]:
    members = sorted(group.members)
    loads = [0] * len(members)
    racks = [group.members[member_id].rack for member_id in members]
    pools = _pools(group, members)
    _keep(group, members, pools, loads)
    for pool in pools:
        pool.assign_unowned(loads, racks, group.racks)
    # Moves within one pool can allow better ones in another. Every move makes the sum of the
    # squares of the loads smaller, so this loop ends.
    while any(pool.level(loads, racks, group.racks) for pool in pools):
        pass
    placed: dict[str, list[TopicIdPartition]] = {member_id: [] for member_id in members}
    for pool in pools:
        for member, held in pool.held.items():
            placed[members[member]] += held
    return assignments_by_member(group, placed)


class _Pool:
    """All topics with the same subscribers. There is one pool if all subscriptions are equal."""

    def __init__(self, members: list[int]) -> None:
        #: Indexes into the sorted member ids.
        self.members = members
        self.topics: list[UUID] = []
        self.held: dict[int, list[TopicIdPartition]] = {member: [] for member in members}
        self.free: list[TopicIdPartition] = []

    def assign_unowned(self, loads: list[int], racks: list[str | None], racks_of: Racks) -> None:
        free = _UnownedPartitions(
            self.free, racks_of, {racks[member] for member in self.members} - {None}
        )
        heap = [(loads[member], member) for member in self.members]
        heapq.heapify(heap)
        for _ in range(len(self.free)):
            load, member = heap[0]
            self.held[member].append(free.take(racks[member]))
            loads[member] = load + 1
            heapq.heapreplace(heap, (load + 1, member))
        self.free = []

    def level(self, loads: list[int], racks: list[str | None], racks_of: Racks) -> bool:
        """Moves partitions from the most to the least loaded member; returns whether any moved."""
        fullest = [(-loads[member], member) for member in self.members if self.held[member]]
        emptiest = [(loads[member], member) for member in self.members]
        heapq.heapify(fullest)
        heapq.heapify(emptiest)
        moved = False
        while fullest:
            full, donor = fullest[0]
            load, receiver = emptiest[0]
            if -full - load < 2:
                break
            held = self.held[donor]
            held_index = _choose_partition(held, racks[donor], racks[receiver], racks_of)
            self.held[receiver].append(held.pop(held_index))
            loads[donor] -= 1
            loads[receiver] += 1
            moved = True
            # A donor has more than any receiver, so no member is ever both. The one outdated
            # entry in each heap can only make the difference smaller than it appears.
            if held:
                heapq.heapreplace(fullest, (-loads[donor], donor))
            else:
                heapq.heappop(fullest)
            heapq.heapreplace(emptiest, (loads[receiver], receiver))
        return moved


class _UnownedPartitions:
    """Partitions without an owner, which `take` hands out by rack."""

    def __init__(
        self,
        partitions: list[TopicIdPartition],
        racks_of: Racks,
        member_racks: Collection[str | None],
    ) -> None:
        self._left = dict.fromkeys(partitions)
        self._by_rack: dict[str, deque[TopicIdPartition]] = {}
        if not member_racks:
            return
        # Partitions with few racks to choose from are offered first.
        racks = {partition: racks_of(*partition) for partition in partitions}
        for partition in sorted(partitions, key=lambda partition: len(racks[partition])):
            for rack in racks[partition]:
                if rack in member_racks:
                    self._by_rack.setdefault(rack, deque()).append(partition)

    def take(self, rack: str | None) -> TopicIdPartition:
        near = None if rack is None else self._by_rack.get(rack)
        while near:
            partition = near.popleft()
            if partition in self._left:
                del self._left[partition]
                return partition
        partition = next(iter(self._left))
        del self._left[partition]
        return partition


def _pools(group: GroupSpec, members: list[str]) -> list[_Pool]:
    """Pools with the fewest subscribers come first, because they have the least choice."""
    alike: dict[tuple[UUID, ...], list[int]] = {}
    for index, member_id in enumerate(members):
        alike.setdefault(group.members[member_id].topics, []).append(index)
        # Topics have the same subscribers if the same subscriptions contain them.
    named_by: dict[UUID, list[int]] = {}
    for number, topics in enumerate(alike):
        for topic_id in topics:
            named_by.setdefault(topic_id, []).append(number)
    subscribers = list(alike.values())
    pools: dict[tuple[int, ...], _Pool] = {}
    for topic_id in sorted(named_by):
        numbers = tuple(named_by[topic_id])
        pool = pools.get(numbers)
        if pool is None:
            found = sorted(index for number in numbers for index in subscribers[number])
            pool = pools[numbers] = _Pool(found)
        pool.topics.append(topic_id)
    return sorted(pools.values(), key=lambda pool: len(pool.members))


def _keep(group: GroupSpec, members: list[str], pools: list[_Pool], loads: list[int]) -> None:
    pool_of = {topic_id: pool for pool in pools for topic_id in pool.topics}
    owned: set[TopicIdPartition] = set()
    for index, member_id in enumerate(members):
        for topic_id, partitions in group.members[member_id].previous.items():
            pool = pool_of.get(topic_id)
            if pool is None or index not in pool.held:
                continue
            count = group.partition_counts[topic_id]
            for partition in partitions:
                topic_partition = TopicIdPartition(topic_id, partition)
                if partition < count and topic_partition not in owned:
                    owned.add(topic_partition)
                    pool.held[index].append(topic_partition)
                    loads[index] += 1
    for pool in pools:
        pool.free = [
            topic_partition
            for topic_id in pool.topics
            for partition in range(group.partition_counts[topic_id])
            if (topic_partition := TopicIdPartition(topic_id, partition)) not in owned
        ]


def _choose_partition(
    held: list[TopicIdPartition], donor: str | None, receiver: str | None, racks_of: Racks
) -> int:
    """The index of the partition to give away: close to the receiver, not close to the donor."""
    last = len(held) - 1
    if donor == receiver:
        return last

    def worth(index: int) -> int:
        racks = racks_of(*held[index])
        return (receiver in racks) - (donor in racks)

    return max(range(last, -1, -1), key=worth)
