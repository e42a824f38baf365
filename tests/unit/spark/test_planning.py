"""Tests of the size of micro-batches and their split into tasks."""

from itertools import pairwise

from hypothesis import given, settings
from hypothesis import strategies as st

from lograft.model.types import TopicPartition
from lograft.spark.planning import Range, backlog_of, limit_offsets, rows_in_bytes, split

A, B, C = (TopicPartition("t", index) for index in range(3))


def test_partitions_contribute_in_proportion_to_their_backlog() -> None:
    assert limit_offsets({A: 0, B: 100}, {A: 300, B: 200}, 40) == {A: 30, B: 110}


def test_partition_with_a_small_backlog_is_not_starved() -> None:
    assert limit_offsets({A: 0, B: 0}, {A: 1_000_000, B: 1}, 10)[B] == 1


def test_backlog_below_the_limit_is_read_completely() -> None:
    assert limit_offsets({A: 0}, {A: 5, B: 5}, 10) == {A: 5, B: 5}


@settings(deadline=None)
@given(
    st.dictionaries(
        st.sampled_from([A, B, C]),
        st.tuples(st.integers(0, 1 << 40), st.integers(0, 1 << 40)),
        min_size=1,
    ),
    st.integers(1, 1 << 41),
)
def test_limited_batch_advances_but_never_past_the_end(
    sizes: dict[TopicPartition, tuple[int, int]], maximum: int
) -> None:
    start = {partition: begin for partition, (begin, _) in sizes.items()}
    end = {partition: begin + size for partition, (begin, size) in sizes.items()}
    limited = limit_offsets(start, end, maximum)
    assert all(start[partition] <= limited[partition] <= end[partition] for partition in end)
    assert backlog_of(start, limited) <= maximum + len(end)
    assert backlog_of(start, end) == 0 or backlog_of(start, limited) > 0


def test_byte_limit_uses_the_record_size_of_each_partition() -> None:
    start, end = {A: 0, B: 0}, {A: 100, B: 100}
    assert rows_in_bytes(1_000, start, end, {A: 10.0, B: 30.0}) == 50
    assert rows_in_bytes(1 << 30, start, end, {A: 10.0, B: 30.0}) == 200
    assert rows_in_bytes(1, start, end, {A: 10.0, B: 30.0}) == 1


def test_each_range_becomes_one_task_by_default() -> None:
    ranges = [Range("t", 0, 0, 10), Range("t", 1, 5, 5)]
    assert split(ranges, partitions_min=None, records_max=None) == ranges
    assert split(ranges, partitions_min=2, records_max=10) == ranges
    assert split(ranges[1:], partitions_min=2, records_max=10) == ranges[1:]


def test_ranges_are_split_for_min_partitions_and_max_records() -> None:
    ranges = [Range("t", 0, 0, 10), Range("t", 1, 0, 30)]
    tasks = split(ranges, partitions_min=8, records_max=None)
    assert len(tasks) == 8
    assert [task for task in tasks if task.partition == 0] == [
        Range("t", 0, 0, 5),
        Range("t", 0, 5, 10),
    ]
    assert [task.size for task in split(ranges, partitions_min=None, records_max=4)].count(4) > 0
    assert all(task.size <= 4 for task in split(ranges, partitions_min=None, records_max=4))


@settings(deadline=None)
@given(st.integers(1, 1000), st.integers(1, 50), st.integers(1, 50))
def test_split_ranges_are_contiguous(size: int, parts: int, records_max: int) -> None:
    tasks = split([Range("t", 0, 7, 7 + size)], partitions_min=parts, records_max=records_max)
    assert tasks[0].start == 7
    assert tasks[-1].end == 7 + size
    assert all(task.end == after.start for task, after in pairwise(tasks))
    assert all(task.size for task in tasks)
