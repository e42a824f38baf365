"""Ranges near the replicas: what Java's RangeAssignor gives for the same groups, since members of
both may lead one group; and that racks never cost evenness."""

from collections import Counter
from collections.abc import Sequence
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as some

from lograft.client.consuming.assignors import ASSIGNORS, Assignment, Member
from lograft.client.consuming.range_assignor import Racks, Reader, ranged
from lograft.client.types import TopicPartition

NOWHERE = [None, None, None]
ABC = ["a", "b", "c"]
AB = ["a", "b"]
ABBA = ["a", "b", "b", "a"]
EVERYTHING = [["t1", "t2", "t3"]] * 3
ONE_READS_LESS = [["t1", "t2", "t3"]] * 2 + [["t1", "t3"]]
PAIRS = [["t1", "t2"], ["t1", "t2"], ["t3", "t4"], ["t3", "t4"]]
ALL_FOUR = [["t1", "t2", "t3", "t4"]] * 4
ALL_SIX = [["t1", "t2", "t3", "t4", "t5", "t6"]] * 3
UNEVEN = {"t1": 6, "t2": 7, "t3": 2}
ALIKE = {"t1": 5, "t2": 5, "t3": 5}
TWINS = {"t1": 6, "t2": 6, "t3": 2, "t4": 2}
THREE_PAIRS = {"t1": 6, "t2": 6, "t3": 2, "t4": 2, "t5": 4, "t6": 4}


def placed(
    partitions: dict[str, int], replicas: int, brokers: Sequence[str | None]
) -> dict[TopicPartition, frozenset[str]]:
    """Replicas on brokers in turn, one topic after the other."""
    found = {}
    first = 0
    for topic, count in partitions.items():
        for index in range(count):
            nodes = (brokers[(first + index + i) % len(brokers)] for i in range(replicas))
            found[TopicPartition(topic, index)] = frozenset(rack for rack in nodes if rack)
        first += count
    return found


def readers(racks: Sequence[str | None], topics: Sequence[Sequence[str]]) -> list[Reader]:
    return [
        Reader(f"consumer{number}", frozenset(mine), rack)
        for number, (rack, mine) in enumerate(zip(racks, topics, strict=True))
    ]


def shown(assigned: Assignment) -> list[str]:
    """t1-0, t1-1 and t2-3 as `t1:01 t2:3`."""
    lines = []
    for mine in assigned.values():
        topics: dict[str, str] = {}
        for topic, index in mine:
            topics[topic] = topics.get(topic, "") + str(index)
        lines.append(" ".join(f"{topic}:{indexes}" for topic, indexes in sorted(topics.items())))
    return lines


def far(assigned: Assignment, group: Sequence[Reader], racks: Racks) -> int:
    """How many partitions have no replica near their reader."""
    return sum(
        reader.rack is not None and reader.rack not in racks[one]
        for reader in group
        for one in assigned[reader.id]
    )


PLAIN_UNEVEN = ["t1:01 t2:012 t3:0", "t1:23 t2:34 t3:1", "t1:45 t2:56"]
PLAIN_LESS = ["t1:01 t2:0123 t3:0", "t1:23 t2:456 t3:1", "t1:45"]
PLAIN_ALIKE = ["t1:01 t2:01 t3:01", "t1:23 t2:23 t3:23", "t1:4 t2:4 t3:4"]
PLAIN_ALIKE_LESS = ["t1:01 t2:012 t3:01", "t1:23 t2:34 t3:23", "t1:4 t3:4"]
PLAIN_PAIRS = ["t1:012 t2:012", "t1:345 t2:345", "t3:0 t4:0", "t3:1 t4:1"]
PLAIN_FOUR = ["t1:01 t2:01 t3:0 t4:0", "t1:23 t2:23 t3:1 t4:1", "t1:4 t2:4", "t1:5 t2:5"]


@pytest.mark.parametrize(
    ("partitions", "replicas", "brokers", "members", "topics", "expected", "misses"),
    [
        # Nobody knows where it is, or nothing is gained by knowing.
        (UNEVEN, 3, NOWHERE, ABC, EVERYTHING, PLAIN_UNEVEN, None),
        (UNEVEN, 3, ABC, NOWHERE, EVERYTHING, PLAIN_UNEVEN, 0),
        (UNEVEN, 3, ABC, ABC, EVERYTHING, PLAIN_UNEVEN, 0),
        (UNEVEN, 4, [*ABC, "d"], ABC, EVERYTHING, PLAIN_UNEVEN, 0),
        (UNEVEN, 3, ABC, ["d", "e", "f"], EVERYTHING, PLAIN_UNEVEN, None),
        (UNEVEN, 3, ABC, [None, "e", "f"], EVERYTHING, PLAIN_UNEVEN, None),
        # Racks have a part of the partitions each.
        (
            *(UNEVEN, 1, ABC, ABC, EVERYTHING),
            *(["t1:03 t2:036", "t1:14 t2:14 t3:0", "t1:25 t2:25 t3:1"], 0),
        ),
        (
            *(UNEVEN, 2, ABC, ABC, EVERYTHING),
            *(["t1:02 t2:023 t3:1", "t1:13 t2:14 t3:0", "t1:45 t2:56"], 1),
        ),
        (UNEVEN, 3, AB, ABC, EVERYTHING, PLAIN_UNEVEN, 4),
        # Not everybody reads everything.
        (UNEVEN, 3, ABC, ABC, ONE_READS_LESS, PLAIN_LESS, 0),
        (
            *(UNEVEN, 1, ABC, ABC, ONE_READS_LESS),
            *(["t1:03 t2:0236", "t1:14 t2:145 t3:0", "t1:25 t3:1"], 2),
        ),
        (
            *(UNEVEN, 2, ABC, ABC, ONE_READS_LESS),
            *(["t1:02 t2:0235 t3:1", "t1:13 t2:146 t3:0", "t1:45"], 0),
        ),
        (UNEVEN, 3, AB, ABC, ONE_READS_LESS, PLAIN_LESS, 2),
        # Topics side by side stay so, near or not.
        (ALIKE, 1, ABC, ABC, EVERYTHING, PLAIN_ALIKE, 10),
        (ALIKE, 2, ABC, ABC, EVERYTHING, PLAIN_ALIKE, 5),
        (ALIKE, 3, AB, ABC, EVERYTHING, PLAIN_ALIKE, 3),
        (
            *(ALIKE, 1, ABC, ABC, ONE_READS_LESS),
            *(["t1:01 t2:014 t3:01", "t1:23 t2:23 t3:23", "t1:4 t3:4"], 9),
        ),
        (
            *(ALIKE, 2, ABC, ABC, ONE_READS_LESS),
            *(["t1:2 t2:013 t3:2", "t1:03 t2:24 t3:03", "t1:14 t3:14"], 0),
        ),
        (ALIKE, 3, AB, ABC, ONE_READS_LESS, PLAIN_ALIKE_LESS, 2),
        # Two pairs of topics side by side.
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
def test_as_java_does_it(
    partitions: dict[str, int],
    replicas: int,
    brokers: list[str | None],
    members: list[str | None],
    topics: list[list[str]],
    expected: list[str],
    misses: int | None,
) -> None:
    racks = placed(partitions, replicas, brokers)
    group = readers(members, topics)
    assigned = ranged(partitions, group, racks)
    assert shown(assigned) == expected
    if misses is not None:
        assert far(assigned, group, racks) == misses


def test_static_members_keep_their_ranges_under_new_ids() -> None:
    partitions = {"t1": 5, "t2": 5}
    racks = placed({"t1": 5}, 2, ABC) | placed({"t2": 5}, 2, ABC)

    def assigned(ids: Sequence[str]) -> list[str]:
        group = [
            Member(name, frozenset(partitions), f"instance{number}", rack=rack)
            for number, (name, rack) in enumerate(zip(ids, ABC, strict=True))
        ]
        found = ASSIGNORS["range"](partitions, group, racks)
        return shown({name: found[name] for name in ids})

    expected = ["t1:02 t2:02", "t1:13 t2:13", "t1:4 t2:4"]
    assert assigned(["m1", "m2", "m3"]) == expected
    assert assigned(["m1", "m5", "m4"]) == expected


@given(some.data())
@settings(deadline=None)
def test_racks_cost_no_evenness_and_leave_topics_side_by_side(data: some.DataObject) -> None:
    partitions = data.draw(
        some.dictionaries(some.sampled_from(["t1", "t2", "t3"]), some.integers(1, 9), min_size=1)
    )
    members = data.draw(
        some.lists(some.sampled_from([*ABC, "elsewhere", None]), min_size=1, max_size=5)
    )
    brokers = data.draw(some.lists(some.sampled_from([*ABC, None]), min_size=1, max_size=4))
    racks = placed(partitions, data.draw(some.integers(1, len(brokers))), brokers)
    group = readers(members, [list(partitions)] * len(members))
    assigned = ranged(partitions, group, racks)
    given_out = Counter(one for mine in assigned.values() for one in mine)
    assert given_out == Counter(racks.keys())
    for topic in partitions:
        sizes = [sum(one.topic == topic for one in mine) for mine in assigned.values()]
        assert max(sizes) - min(sizes) <= 1
    owners = {one: name for name, mine in assigned.items() for one in mine}
    for one, other in pairwise(sorted(partitions)):
        if partitions[one] == partitions[other]:
            for index in range(partitions[one]):
                assert owners[TopicPartition(one, index)] == owners[TopicPartition(other, index)]
