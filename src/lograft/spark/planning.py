"""How much a micro-batch takes, and how it is cut into tasks. The arithmetic is Spark's own."""

from collections.abc import Mapping, Sequence
from itertools import pairwise
from math import ceil, floor
from typing import NamedTuple
from uuid import UUID

from lograft.model.types import TopicPartition
from lograft.spark.offsets import Offsets


class Range(NamedTuple):
    """Some offsets of a partition: [start, end)."""

    topic: str
    partition: int
    start: int
    end: int
    #: The topic must still be this one; None: whatever has its name.
    topic_id: UUID | None = None

    @property
    def size(self) -> int:
        return max(0, self.end - self.start)


def limited(
    start: Mapping[TopicPartition, int], end: Mapping[TopicPartition, int], total_max: int
) -> Offsets:
    """`end`, drawn back so that about `total_max` offsets are left: each partition gives its
    share, and at least one of what it has. Partitions that are new begin with `end`'s caller's
    knowledge of them in `start`."""
    sizes = {one: max(0, end[one] - start.get(one, 0)) for one in end}
    total = sum(sizes.values())
    if total <= total_max:
        return dict(end)
    shares = {}
    for one, size in sizes.items():
        begin = start.get(one, 0)
        share = total_max * (size / total)
        shares[one] = (
            min(begin + (ceil(share) if share < 1 else floor(share)), end[one])
            if size
            else end[one]
        )
    return shares


def backlog(start: Mapping[TopicPartition, int], end: Mapping[TopicPartition, int]) -> int:
    return sum(max(0, offset - start.get(one, 0)) for one, offset in end.items())


def rows_in_bytes(
    bytes_max: int,
    start: Mapping[TopicPartition, int],
    end: Mapping[TopicPartition, int],
    row_bytes: Mapping[TopicPartition, float],
) -> int:
    """How many offsets fit into so many bytes, where each partition gives its share of them."""
    sizes = {one: max(0, end[one] - start.get(one, 0)) for one in end}
    total_bytes = sum(size * row_bytes.get(one, 0.0) for one, size in sizes.items())
    total = sum(sizes.values())
    if total_bytes <= bytes_max:
        return total
    return max(1, int(total * (bytes_max / total_bytes)))


def split(
    ranges: Sequence[Range], *, partitions_min: int | None, records_max: int | None
) -> list[Range]:
    """Into tasks: one for each range, more where the options ask for them."""
    found = list(ranges)
    if records_max is not None:
        found = [part for one in found for part in _even(one, ceil(one.size / records_max))]
    if partitions_min is not None and len(found) < partitions_min:
        total = max(1, sum(one.size for one in found))
        found = [
            part for one in found for part in _even(one, ceil(one.size / total * partitions_min))
        ]
    return found


def _even(whole: Range, parts: int) -> list[Range]:
    parts = max(1, min(parts, whole.size))
    cuts = [whole.start + whole.size * number // parts for number in range(parts + 1)]
    return [whole._replace(start=begin, end=end) for begin, end in pairwise(cuts)]
