"""The range assignor gives the same result as Java's, since members of both clients may lead one
group; and racks never make the assignment less even."""

from collections import Counter
from collections.abc import Sequence
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as some

from lograft.client.consuming.assignors import ASSIGNORS, Assignment, Member
from lograft.client.consuming.range_assignor import Racks, RangeMember, assign_ranges
from lograft.client.types import TopicPartition

NO_RACKS = [None, None, None]
ABC = ["a", "b", "c"]
AB = ["a", "b"]
ABBA = ["a", "b", "b", "a"]
ALL_TOPICS = [["t1", "t2", "t3"]] * 3
FEWER_TOPICS = [["t1", "t2", "t3"]] * 2 + [["t1", "t3"]]
PAIRS = [["t1", "t2"], ["t1", "t2"], ["t3", "t4"], ["t3", "t4"]]
ALL_FOUR = [["t1", "t2", "t3", "t4"]] * 4
ALL_SIX = [["t1", "t2", "t3", "t4", "t5", "t6"]] * 3
UNEVEN = {"t1": 6, "t2": 7, "t3": 2}
ALIKE = {"t1": 5, "t2": 5, "t3": 5}
TWINS = {"t1": 6, "t2": 6, "t3": 2, "t4": 2}
THREE_PAIRS = {"t1": 6, "t2": 6, "t3": 2, "t4": 2, "t5": 4, "t6": 4}


def place_replicas(
    partitions: dict[str, int], replicas: int, brokers: Sequence[str | None]
) -> dict[TopicPartition, frozenset[str]]:
    """Places the replicas round robin on the brokers, one topic after the other."""
    placed = {}
    first = 0
    for topic, count in partitions.items():
        for index in range(count):
            nodes = (brokers[(first + index + i) % len(brokers)] for i in range(replicas))
            placed[TopicPartition(topic, index)] = frozenset(rack for rack in nodes if rack)
        first += count
    return placed


def range_members(
    racks: Sequence[str | None], topics: Sequence[Sequence[str]]
) -> list[RangeMember]:
    return [
        RangeMember(f"consumer{number}", frozenset(subscribed), rack)
        for number, (rack, subscribed) in enumerate(zip(racks, topics, strict=True))
    ]


def format_assignment(assigned: Assignment) -> list[str]:
    """Formats the partitions t1-0, t1-1 and t2-3 of a member as `t1:01 t2:3`."""
    lines = []
    for partitions in assigned.values():
        topics: dict[str, str] = {}
        for topic, index in partitions:
            topics[topic] = topics.get(topic, "") + str(index)
        lines.append(" ".join(f"{topic}:{indexes}" for topic, indexes in sorted(topics.items())))
    return lines


def count_mismatches(assigned: Assignment, group: Sequence[RangeMember], racks: Racks) -> int:
    """Counts the partitions without a replica in the rack of their member."""
    return sum(
        member.rack is not None and member.rack not in racks[partition]
        for member in group
        for partition in assigned[member.id]
    )


PLAIN_UNEVEN = ["t1:01 t2:012 t3:0", "t1:23 t2:34 t3:1", "t1:45 t2:56"]
PLAIN_LESS = ["t1:01 t2:0123 t3:0", "t1:23 t2:456 t3:1", "t1:45"]
PLAIN_ALIKE = ["t1:01 t2:01 t3:01", "t1:23 t2:23 t3:23", "t1:4 t2:4 t3:4"]
PLAIN_ALIKE_LESS = ["t1:01 t2:012 t3:01", "t1:23 t2:34 t3:23", "t1:4 t3:4"]
PLAIN_PAIRS = ["t1:012 t2:012", "t1:345 t2:345", "t3:0 t4:0", "t3:1 t4:1"]
PLAIN_FOUR = ["t1:01 t2:01 t3:0 t4:0", "t1:23 t2:23 t3:1 t4:1", "t1:4 t2:4", "t1:5 t2:5"]


@pytest.mark.parametrize(
    ("partitions", "replicas", "brokers", "members", "topics", "expected", "mismatches"),
    [
        # No replica or member has a rack, or the racks make no difference.
        (UNEVEN, 3, NO_RACKS, ABC, ALL_TOPICS, PLAIN_UNEVEN, None),
        (UNEVEN, 3, ABC, NO_RACKS, ALL_TOPICS, PLAIN_UNEVEN, 0),
        (UNEVEN, 3, ABC, ABC, ALL_TOPICS, PLAIN_UNEVEN, 0),
        (UNEVEN, 4, [*ABC, "d"], ABC, ALL_TOPICS, PLAIN_UNEVEN, 0),
        (UNEVEN, 3, ABC, ["d", "e", "f"], ALL_TOPICS, PLAIN_UNEVEN, None),
        (UNEVEN, 3, ABC, [None, "e", "f"], ALL_TOPICS, PLAIN_UNEVEN, None),
        # Each rack has replicas of a part of the partitions.
        (
            *(UNEVEN, 1, ABC, ABC, ALL_TOPICS),
            *(["t1:03 t2:036", "t1:14 t2:14 t3:0", "t1:25 t2:25 t3:1"], 0),
        ),
        (
            *(UNEVEN, 2, ABC, ABC, ALL_TOPICS),
            *(["t1:02 t2:023 t3:1", "t1:13 t2:14 t3:0", "t1:45 t2:56"], 1),
        ),
        (UNEVEN, 3, AB, ABC, ALL_TOPICS, PLAIN_UNEVEN, 4),
        # One member has subscribed to fewer topics.
        (UNEVEN, 3, ABC, ABC, FEWER_TOPICS, PLAIN_LESS, 0),
        (
            *(UNEVEN, 1, ABC, ABC, FEWER_TOPICS),
            *(["t1:03 t2:0236", "t1:14 t2:145 t3:0", "t1:25 t3:1"], 2),
        ),
        (
            *(UNEVEN, 2, ABC, ABC, FEWER_TOPICS),
            *(["t1:02 t2:0235 t3:1", "t1:13 t2:146 t3:0", "t1:45"], 0),
        ),
        (UNEVEN, 3, AB, ABC, FEWER_TOPICS, PLAIN_LESS, 2),
        # Co-partitioned topics stay so, with or without rack matches.
        (ALIKE, 1, ABC, ABC, ALL_TOPICS, PLAIN_ALIKE, 10),
        (ALIKE, 2, ABC, ABC, ALL_TOPICS, PLAIN_ALIKE, 5),
        (ALIKE, 3, AB, ABC, ALL_TOPICS, PLAIN_ALIKE, 3),
        (
            *(ALIKE, 1, ABC, ABC, FEWER_TOPICS),
            *(["t1:01 t2:014 t3:01", "t1:23 t2:23 t3:23", "t1:4 t3:4"], 9),
        ),
        (
            *(ALIKE, 2, ABC, ABC, FEWER_TOPICS),
            *(["t1:2 t2:013 t3:2", "t1:03 t2:24 t3:03", "t1:14 t3:14"], 0),
        ),
        (ALIKE, 3, AB, ABC, FEWER_TOPICS, PLAIN_ALIKE_LESS, 2),
        # Two pairs of co-partitioned topics.
        (TWINS, 2, AB, ABBA, PAIRS, PLAIN_PAIRS, 0),
        (
            *(TWINS, 1, AB, ABBA, PAIRS),
            *(["t1:024 t2:024", "t1:135 t2:135", "t3:1 t4:1", "t3:0 t4:0"], 0),
        ),
        (TWINS, 2, AB, ABBA, ALL_FOUR, PLAIN_FOUR, 0),
        (
            *(TWINS, 1, AB, ABBA, ALL_FOUR),
            *(["t1:02 t2:02 t3:0 t4:0", "t1:13 t2:13 t3:1 t4:1", "t1:5 t2:5", "t1:4 t2:4"], 0),
        ),
        (
            *(TWINS, 1, ABC, ABBA, ALL_FOUR),
            *(["t1:03 t2:03 t3:0 t4:0", "t1:14 t2:14 t3:1 t4:1", "t1:2 t2:2", "t1:5 t2:5"], 6),
        ),
        (
            *(THREE_PAIRS, 2, ABC, ABC, ALL_SIX),
            [
                "t1:02 t2:02 t3:0 t4:0 t5:1 t6:1",
                "t1:13 t2:13 t3:1 t4:1 t5:2 t6:2",
                "t1:45 t2:45 t5:03 t6:03",
            ],
            0,
        ),
    ],
)
def test_the_result_equals_that_of_java(
    partitions: dict[str, int],
    replicas: int,
    brokers: list[str | None],
    members: list[str | None],
    topics: list[list[str]],
    expected: list[str],
    mismatches: int | None,
) -> None:
    racks = place_replicas(partitions, replicas, brokers)
    group = range_members(members, topics)
    assigned = assign_ranges(partitions, group, racks)
    assert format_assignment(assigned) == expected
    if mismatches is not None:
        assert count_mismatches(assigned, group, racks) == mismatches


def test_static_members_keep_their_ranges_under_new_ids() -> None:
    partitions = {"t1": 5, "t2": 5}
    racks = place_replicas({"t1": 5}, 2, ABC) | place_replicas({"t2": 5}, 2, ABC)

    def assigned(ids: Sequence[str]) -> list[str]:
        group = [
            Member(name, frozenset(partitions), f"instance{number}", rack=rack)
            for number, (name, rack) in enumerate(zip(ids, ABC, strict=True))
        ]
        assignment = ASSIGNORS["range"](partitions, group, racks)
        return format_assignment({name: assignment[name] for name in ids})

    expected = ["t1:02 t2:02", "t1:13 t2:13", "t1:4 t2:4"]
    assert assigned(["m1", "m2", "m3"]) == expected
    assert assigned(["m1", "m5", "m4"]) == expected


@given(some.data())
@settings(deadline=None)
def test_racks_keep_topics_balanced_and_co_partitioned(data: some.DataObject) -> None:
    partitions = data.draw(
        some.dictionaries(some.sampled_from(["t1", "t2", "t3"]), some.integers(1, 9), min_size=1)
    )
    members = data.draw(
        some.lists(some.sampled_from([*ABC, "elsewhere", None]), min_size=1, max_size=5)
    )
    brokers = data.draw(some.lists(some.sampled_from([*ABC, None]), min_size=1, max_size=4))
    racks = place_replicas(partitions, data.draw(some.integers(1, len(brokers))), brokers)
    group = range_members(members, [list(partitions)] * len(members))
    assigned = assign_ranges(partitions, group, racks)
    counts = Counter(partition for share in assigned.values() for partition in share)
    assert counts == Counter(racks.keys())
    for topic in partitions:
        sizes = [sum(entry.topic == topic for entry in share) for share in assigned.values()]
        assert max(sizes) - min(sizes) <= 1
    owners = {partition: name for name, share in assigned.items() for partition in share}
    for first, second in pairwise(sorted(partitions)):
        if partitions[first] == partitions[second]:
            for index in range(partitions[first]):
                assert owners[TopicPartition(first, index)] == owners[TopicPartition(second, index)]
