"""Tests of the bounds derived from a query's filters."""

from datetime import UTC, datetime

from pyspark.sql.datasource import (
    EqualTo,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    LessThan,
    LessThanOrEqual,
    Not,
)

from lograft.model.types import TopicPartition
from lograft.spark.filters import Restriction, restriction_of


def test_topics_and_partitions_are_restricted() -> None:
    found = restriction_of([In(("partition",), (1, 2)), EqualTo(("topic",), "a")])
    assert found.allows(TopicPartition("a", 1))
    assert not found.allows(TopicPartition("a", 0))
    assert not found.allows(TopicPartition("b", 1))
    both = restriction_of([In(("partition",), (1, 2)), EqualTo(("partition",), 2)])
    assert not both.allows(TopicPartition("a", 1))


def test_offsets_are_bounded_on_both_sides() -> None:
    found = restriction_of(
        [
            GreaterThan(("offset",), 9),
            GreaterThanOrEqual(("offset",), 5),
            LessThanOrEqual(("offset",), 29),
            LessThan(("offset",), 40),
        ]
    )
    assert found.clip(0, 100) == (10, 30)
    assert found.clip(20, 25) == (20, 25)
    assert found.clip(50, 60) == (50, 50)


def test_timestamps_give_a_lower_bound_only() -> None:
    timestamp = datetime(2026, 1, 2, 3, 4, 5, 678_900, tzinfo=UTC)
    found = restriction_of([GreaterThan(("timestamp",), timestamp)])
    assert found.timestamp_min_ms == int(timestamp.timestamp()) * 1000 + 678
    assert restriction_of([LessThan(("timestamp",), timestamp)]) == Restriction()


def test_unsupported_filters_are_left_to_spark() -> None:
    filters = [Not(EqualTo(("partition",), 1)), EqualTo(("value",), b"x")]
    assert restriction_of(filters) == Restriction()
