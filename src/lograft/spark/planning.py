"""Sizes micro-batches and splits them into tasks, with the same arithmetic as Spark's Kafka
source."""

from collections.abc import Mapping, Sequence
from itertools import pairwise
from math import ceil, floor
from typing import NamedTuple
from uuid import UUID

from lograft.model.types import TopicPartition
from lograft.spark.offsets import Offsets


class Range(NamedTuple):
    """Offsets [start, end) of a partition."""

    topic: str
    partition: int
    start: int
    end: int
    #: Expected topic ID, or None to accept any topic of that name.
    topic_id: UUID | None = None

    @property
    def size(self) -> int:
        return max(0, self.end - self.start)


def limit_offsets(
    start: Mapping[TopicPartition, int], end: Mapping[TopicPartition, int], total_max: int
) -> Offsets:
    """Returns end offsets lowered so that about `total_max` offsets remain. Each partition
    contributes in proportion to its backlog, and at least one offset if it has any. `start` must
    contain new partitions, too."""
    sizes = {partition: max(0, end[partition] - start.get(partition, 0)) for partition in end}
    total = sum(sizes.values())
    if total <= total_max:
        return dict(end)
    shares = {}
    for partition, size in sizes.items():
        begin = start.get(partition, 0)
        share = total_max * (size / total)
        shares[partition] = (
            min(begin + (ceil(share) if share < 1 else floor(share)), end[partition])
            if size
            else end[partition]
        )
    return shares


def backlog_of(start: Mapping[TopicPartition, int], end: Mapping[TopicPartition, int]) -> int:
    return sum(max(0, offset - start.get(partition, 0)) for partition, offset in end.items())


def rows_in_bytes(
    bytes_max: int,
    start: Mapping[TopicPartition, int],
    end: Mapping[TopicPartition, int],
    row_bytes: Mapping[TopicPartition, float],
) -> int:
    """Returns how many offsets fit into `bytes_max` if all partitions contribute in proportion."""
    sizes = {partition: max(0, end[partition] - start.get(partition, 0)) for partition in end}
    total_bytes = sum(size * row_bytes.get(partition, 0.0) for partition, size in sizes.items())
    total = sum(sizes.values())
    if total_bytes <= bytes_max:
        return total
    return max(1, int(total * (bytes_max / total_bytes)))


def split(
    ranges: Sequence[Range], *, partitions_min: int | None, records_max: int | None
) -> list[Range]:
    """Splits ranges into tasks: one per range, more if the options require it."""
    parts = list(ranges)
    if records_max is not None:
        parts = [
            part for whole in parts for part in _split_evenly(whole, ceil(whole.size / records_max))
        ]
    if partitions_min is not None and len(parts) < partitions_min:
        total = max(1, sum(part.size for part in parts))
        parts = [
            part
            for whole in parts
            for part in _split_evenly(whole, ceil(whole.size / total * partitions_min))
        ]
    return parts


def _split_evenly(whole: Range, count: int) -> list[Range]:
    count = max(1, min(count, whole.size))
    bounds = [whole.start + whole.size * number // count for number in range(count + 1)]
    return [whole._replace(start=begin, end=end) for begin, end in pairwise(bounds)]
