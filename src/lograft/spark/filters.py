"""What a query's conditions say about which offsets must be read at all.

Only what is certain is used, and Spark evaluates every condition again. A time has a lower bound
only: records before the first one of that time or later are all older, but those after it need not
be younger.
"""

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
    """None: no condition."""

    topics: frozenset[str] | None = None
    partitions: frozenset[int] | None = None
    offset_min: int | None = None
    #: Exclusive.
    offset_end: int | None = None
    timestamp_min_ms: int | None = None

    def allows(self, where: TopicPartition) -> bool:
        return (self.topics is None or where.topic in self.topics) and (
            self.partitions is None or where.partition in self.partitions
        )

    def cut(self, start: int, end: int) -> tuple[int, int]:
        """The offsets of [start, end) that can fulfil the conditions."""
        if self.offset_min is not None:
            start = max(start, self.offset_min)
        if self.offset_end is not None:
            end = min(end, self.offset_end)
        return start, max(start, end)


def restriction_of(filters: Sequence[Filter]) -> Restriction:
    """Conditions that say nothing about where records are, are passed over."""
    topics: frozenset[str] | None = None
    partitions: frozenset[int] | None = None
    offset_min: int | None = None
    offset_end: int | None = None
    timestamp_min_ms: int | None = None
    for one in filters:
        match one:
            case EqualTo(("topic",), str(name)):
                topics = _both(topics, (name,))
            case In(("topic",), names):
                topics = _both(topics, names)
            case EqualTo(("partition",), int(index)):
                partitions = _both(partitions, (index,))
            case In(("partition",), indexes):
                partitions = _both(partitions, indexes)
            case EqualTo(("offset",), int(offset)):
                offset_min, offset_end = _later(offset_min, offset), _first(offset_end, offset + 1)
            case GreaterThanOrEqual(("offset",), int(offset)):
                offset_min = _later(offset_min, offset)
            case GreaterThan(("offset",), int(offset)):
                offset_min = _later(offset_min, offset + 1)
            case LessThan(("offset",), int(offset)):
                offset_end = _first(offset_end, offset)
            case LessThanOrEqual(("offset",), int(offset)):
                offset_end = _first(offset_end, offset + 1)
            case (
                GreaterThan(("timestamp",), datetime() as moment)
                | GreaterThanOrEqual(("timestamp",), datetime() as moment)
                | EqualTo(("timestamp",), datetime() as moment)
            ):
                timestamp_min_ms = _later(timestamp_min_ms, _ms(moment))
            case _:
                pass
    return Restriction(topics, partitions, offset_min, offset_end, timestamp_min_ms)


def _both(known: frozenset[Any] | None, more: Sequence[Any]) -> frozenset[Any]:
    return frozenset(more) if known is None else known & frozenset(more)


def _later(known: int | None, more: int) -> int:
    return more if known is None else max(known, more)


def _first(known: int | None, more: int) -> int:
    return more if known is None else min(known, more)


def _ms(moment: datetime) -> int:
    """Rounded down: a record's time has whole milliseconds."""
    aware = moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)
    return int(aware.timestamp() * 1000 // 1)
