"""Conditions of a query that say where records need not be looked for."""

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


def test_partitions_and_topics() -> None:
    found = restriction_of([In(("partition",), (1, 2)), EqualTo(("topic",), "a")])
    assert found.allows(TopicPartition("a", 1))
    assert not found.allows(TopicPartition("a", 0))
    assert not found.allows(TopicPartition("b", 1))
    both = restriction_of([In(("partition",), (1, 2)), EqualTo(("partition",), 2)])
    assert not both.allows(TopicPartition("a", 1))


def test_offsets_from_both_sides() -> None:
    found = restriction_of(
        [
            GreaterThan(("offset",), 9),
            GreaterThanOrEqual(("offset",), 5),
            LessThanOrEqual(("offset",), 29),
            LessThan(("offset",), 40),
        ]
    )
    assert found.cut(0, 100) == (10, 30)
    assert found.cut(20, 25) == (20, 25)
    assert found.cut(50, 60) == (50, 50)


def test_a_time_bounds_from_below_only() -> None:
    moment = datetime(2026, 1, 2, 3, 4, 5, 678_900, tzinfo=UTC)
    found = restriction_of([GreaterThan(("timestamp",), moment)])
    assert found.timestamp_min_ms == int(moment.timestamp()) * 1000 + 678
    assert restriction_of([LessThan(("timestamp",), moment)]) == Restriction()


def test_what_is_not_understood_is_left_to_spark() -> None:
    filters = [Not(EqualTo(("partition",), 1)), EqualTo(("value",), b"x")]
    assert restriction_of(filters) == Restriction()
