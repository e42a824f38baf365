"""Each reader a range of every topic, near its replicas where that costs no evenness (KIP-881).

Topic by topic the partitions go in order to the readers in order, the first ones get what does not
divide. Where readers and replicas say in which racks they are, and not every rack has everything,
partitions that have a replica in a reader's rack are given out first, within the same shares.
Topics with equally many partitions and the same readers stay side by side: partition 3 of all of
them goes to one reader, and only where it is near in all of them for the sake of the rack.

Java's members decide alike, since any member may come to lead the group.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple, TypeAlias

from lograft.client.types import TopicPartition

#: Where the replicas of a partition are, as far as their brokers say; also of those that are not in
#: sync or not there now, for they are likely to come back.
Racks: TypeAlias = Mapping[TopicPartition, frozenset[str]]


class Reader(NamedTuple):
    id: str
    topics: frozenset[str]
    #: None: everything is equally near.
    rack: str | None = None


def ranged(
    partitions: Mapping[str, int], readers: Sequence[Reader], racks: Racks
) -> dict[str, list[TopicPartition]]:
    """Of readers in order: who comes first gets what does not divide."""
    shares = [
        _Share(topic, partitions[topic], mine, racks)
        for topic in sorted(partitions)
        if (mine := tuple(reader for reader in readers if topic in reader.topics))
    ]
    if any(share.gains_by_racks() for share in shares):
        for alike in _side_by_side(shares):
            if len(alike) > 1:
                _give_near_together(alike)
            elif alike[0].gains_by_racks():
                alike[0].give_ranges(only_near=True)
    for share in shares:
        share.give_ranges()
    return {
        reader.id: sorted(one for share in shares for one in share.given.get(reader, ()))
        for reader in readers
    }


class _Share:
    """One topic, while it is given out."""

    def __init__(self, topic: str, count: int, readers: tuple[Reader, ...], racks: Racks) -> None:
        self.readers = readers
        self.partitions = tuple(TopicPartition(topic, index) for index in range(count))
        self.given: dict[Reader, list[TopicPartition]] = {reader: [] for reader in readers}
        self._racks = {one: racks.get(one, frozenset()) for one in self.partitions}
        self._left = dict.fromkeys(self.partitions)
        self._each, self._more = divmod(count, len(readers))

    def gains_by_racks(self) -> bool:
        wanted = {reader.rack for reader in self.readers if reader.rack is not None}
        there = frozenset().union(*self._racks.values())
        return not wanted.isdisjoint(there) and any(one != there for one in self._racks.values())

    def is_near(self, reader: Reader, one: TopicPartition) -> bool:
        return reader.rack is None or reader.rack in self._racks[one]

    def room(self, reader: Reader) -> int:
        """How many more the reader may get without having more than its share."""
        return max(0, self._each + (self._more > 0) - len(self.given[reader]))

    def give(self, reader: Reader, wanted: Iterable[TopicPartition]) -> None:
        mine = self.given[reader]
        for one in wanted:
            del self._left[one]
            mine.append(one)
        if len(mine) > self._each:
            self._more -= 1

    def give_ranges(self, *, only_near: bool = False) -> None:
        for reader in self.readers:
            wanted = [one for one in self._left if not only_near or self.is_near(reader, one)]
            if wanted := wanted[: self.room(reader)]:
                self.give(reader, wanted)


def _side_by_side(shares: Iterable[_Share]) -> Iterable[list[_Share]]:
    groups: dict[tuple[tuple[Reader, ...], int], list[_Share]] = {}
    for share in shares:
        groups.setdefault((share.readers, len(share.partitions)), []).append(share)
    return groups.values()


def _give_near_together(shares: Sequence[_Share]) -> None:
    """The same partition of all topics to the first reader that is near to all of them."""
    for row in zip(*(share.partitions for share in shares), strict=True):
        near = (
            reader
            for reader in shares[0].readers
            if all(
                share.room(reader) and share.is_near(reader, one)
                for share, one in zip(shares, row, strict=True)
            )
        )
        reader = next(near, None)
        if reader is not None:
            for share, one in zip(shares, row, strict=True):
                share.give(reader, [one])
