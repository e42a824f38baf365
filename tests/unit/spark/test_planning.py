"""How much a micro-batch takes and into which tasks it is cut."""

from itertools import pairwise

from hypothesis import given, settings
from hypothesis import strategies as st

from lograft.model.types import TopicPartition
from lograft.spark.planning import Range, backlog, limited, rows_in_bytes, split

A, B, C = (TopicPartition("t", index) for index in range(3))


def test_each_partition_gives_its_share() -> None:
    assert limited({A: 0, B: 100}, {A: 300, B: 200}, 40) == {A: 30, B: 110}


def test_a_partition_with_little_is_not_starved() -> None:
    assert limited({A: 0, B: 0}, {A: 1_000_000, B: 1}, 10)[B] == 1


def test_what_is_below_the_limit_is_taken_whole() -> None:
    assert limited({A: 0}, {A: 5, B: 5}, 10) == {A: 5, B: 5}


@settings(deadline=None)
@given(
    st.dictionaries(
        st.sampled_from([A, B, C]),
        st.tuples(st.integers(0, 1 << 40), st.integers(0, 1 << 40)),
        min_size=1,
    ),
    st.integers(1, 1 << 41),
)
def test_a_limited_batch_moves_on_and_never_past_the_end(
    sizes: dict[TopicPartition, tuple[int, int]], maximum: int
) -> None:
    start = {one: begin for one, (begin, _) in sizes.items()}
    end = {one: begin + size for one, (begin, size) in sizes.items()}
    taken = limited(start, end, maximum)
    assert all(start[one] <= taken[one] <= end[one] for one in end)
    assert backlog(start, taken) <= maximum + len(end)
    assert backlog(start, end) == 0 or backlog(start, taken) > 0


def test_bytes_are_counted_by_the_size_of_records() -> None:
    start, end = {A: 0, B: 0}, {A: 100, B: 100}
    assert rows_in_bytes(1_000, start, end, {A: 10.0, B: 30.0}) == 50
    assert rows_in_bytes(1 << 30, start, end, {A: 10.0, B: 30.0}) == 200
    assert rows_in_bytes(1, start, end, {A: 10.0, B: 30.0}) == 1


def test_one_task_for_each_range() -> None:
    ranges = [Range("t", 0, 0, 10), Range("t", 1, 5, 5)]
    assert split(ranges, partitions_min=None, records_max=None) == ranges
    assert split(ranges, partitions_min=2, records_max=10) == ranges
    assert split(ranges[1:], partitions_min=2, records_max=10) == ranges[1:]


def test_tasks_are_cut_smaller_when_asked() -> None:
    ranges = [Range("t", 0, 0, 10), Range("t", 1, 0, 30)]
    cut = split(ranges, partitions_min=8, records_max=None)
    assert len(cut) == 8
    assert [one for one in cut if one.partition == 0] == [Range("t", 0, 0, 5), Range("t", 0, 5, 10)]
    assert [one.size for one in split(ranges, partitions_min=None, records_max=4)].count(4) > 0
    assert all(one.size <= 4 for one in split(ranges, partitions_min=None, records_max=4))


@settings(deadline=None)
@given(st.integers(1, 1000), st.integers(1, 50), st.integers(1, 50))
def test_cut_ranges_join_again(size: int, parts: int, records_max: int) -> None:
    cut = split([Range("t", 0, 7, 7 + size)], partitions_min=parts, records_max=records_max)
    assert cut[0].start == 7
    assert cut[-1].end == 7 + size
    assert all(one.end == after.start for one, after in pairwise(cut))
    assert all(one.size for one in cut)
