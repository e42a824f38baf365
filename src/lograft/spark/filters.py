"""Derives from a query's filters which offsets have to be read.

Only filters that certainly exclude records are used, and Spark evaluates every filter again.
Timestamps give a lower bound only: all records before the first record with that timestamp or a
later condition are older, but timestamps after it need not be in order."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from pyspark.sql.datasource import (
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    LessThan,
    LessThanOrEqual,
)

from lograft.model.types import TopicPartition


@dataclass(frozen=True, slots=True)
class Restriction:
    """Bounds on the records to read. None means unbounded."""

    topics: frozenset[str] | None = None
    partitions: frozenset[int] | None = None
    offset_min: int | None = None
    #: Exclusive.
    offset_end: int | None = None
    timestamp_min_ms: int | None = None

    def allows(self, partition: TopicPartition) -> bool:
        return (self.topics is None or partition.topic in self.topics) and (
            self.partitions is None or partition.partition in self.partitions
        )

    def clip(self, start: int, end: int) -> tuple[int, int]:
        """Narrows [start, end) to the offsets that can satisfy the filters."""
        if self.offset_min is not None:
            start = max(start, self.offset_min)
        if self.offset_end is not None:
            end = min(end, self.offset_end)
        return start, max(start, end)


def restriction_of(filters: Sequence[Filter]) -> Restriction:
    """Returns the bounds implied by `filters`; filters on other columns are ignored."""
    topics: frozenset[str] | None = None
    partitions: frozenset[int] | None = None
    offset_min: int | None = None
    offset_end: int | None = None
    timestamp_min_ms: int | None = None
    for condition in filters:
        match condition:
            case EqualTo(("topic",), str(name)):
                topics = _intersect(topics, (name,))
            case In(("topic",), names):
                topics = _intersect(topics, names)
            case EqualTo(("partition",), int(index)):
                partitions = _intersect(partitions, (index,))
            case In(("partition",), indexes):
                partitions = _intersect(partitions, indexes)
            case EqualTo(("offset",), int(offset)):
                offset_min, offset_end = (
                    _max_of(offset_min, offset),
                    _min_of(offset_end, offset + 1),
                )
            case GreaterThanOrEqual(("offset",), int(offset)):
                offset_min = _max_of(offset_min, offset)
            case GreaterThan(("offset",), int(offset)):
                offset_min = _max_of(offset_min, offset + 1)
            case LessThan(("offset",), int(offset)):
                offset_end = _min_of(offset_end, offset)
            case LessThanOrEqual(("offset",), int(offset)):
                offset_end = _min_of(offset_end, offset + 1)
            case (
                GreaterThan(("timestamp",), datetime() as timestamp)
                | GreaterThanOrEqual(("timestamp",), datetime() as timestamp)
                | EqualTo(("timestamp",), datetime() as timestamp)
            ):
                timestamp_min_ms = _max_of(timestamp_min_ms, _ms(timestamp))
            case _:
                pass
    return Restriction(topics, partitions, offset_min, offset_end, timestamp_min_ms)


def _intersect(known: frozenset[Any] | None, bound: Sequence[Any]) -> frozenset[Any]:
    return frozenset(bound) if known is None else known & frozenset(bound)


def _max_of(known: int | None, bound: int) -> int:
    return bound if known is None else max(known, bound)


def _min_of(known: int | None, bound: int) -> int:
    return bound if known is None else min(known, bound)


def _ms(timestamp: datetime) -> int:
    """Returns milliseconds, rounded down: record timestamps are whole milliseconds."""
    aware = timestamp if timestamp.tzinfo is not None else timestamp.replace(tzinfo=UTC)
    return int(aware.timestamp() * 1000 // 1)
