"""Assignors assign every partition to one member, evenly, and the sticky ones with few moves."""

from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as some

from lograft.client.consuming.assignors import ASSIGNORS, Assignment, Member
from lograft.client.types import TopicPartition

TOPICS = ("a", "b", "c")
topic_counts = some.fixed_dictionaries({topic: some.integers(0, 7) for topic in TOPICS})
subscriptions = some.lists(
    some.frozensets(some.sampled_from(TOPICS), min_size=1), min_size=1, max_size=6
)


def members(*topics: frozenset[str]) -> list[Member]:
    return [Member(f"m{index}", subscribed) for index, subscribed in enumerate(topics)]


def all_partitions(partitions: dict[str, int]) -> list[TopicPartition]:
    return [TopicPartition(topic, i) for topic, count in partitions.items() for i in range(count)]


@given(topic_counts, subscriptions, some.sampled_from(sorted(ASSIGNORS)))
@settings(deadline=None)
def test_every_subscribed_partition_is_assigned_to_one_member(
    partitions: dict[str, int], topics: list[frozenset[str]], name: str
) -> None:
    group = members(*topics)
    assigned = ASSIGNORS[name](partitions, group)
    assert assigned.keys() == {member.id for member in group}
    subscribed = set().union(*topics)
    counts = Counter(partition for share in assigned.values() for partition in share)
    assert counts == Counter(
        partition for partition in all_partitions(partitions) if partition.topic in subscribed
    )
    for member in group:
        assert {partition.topic for partition in assigned[member.id]} <= member.topics


def sizes(assigned: Assignment) -> list[int]:
    return sorted(map(len, assigned.values()))


@pytest.mark.parametrize("name", ["roundrobin", "sticky", "cooperative-sticky"])
def test_the_assignment_is_even(name: str) -> None:
    both = frozenset(("a", "b"))
    assert sizes(ASSIGNORS[name]({"a": 5, "b": 6}, members(both, both, both))) == [3, 4, 4]


def test_range_gives_the_first_members_more_and_co_partitions_topics() -> None:
    both = frozenset(("a", "b"))
    assigned = ASSIGNORS["range"]({"a": 3, "b": 3}, members(both, both))
    assert assigned["m0"] == [("a", 0), ("a", 1), ("b", 0), ("b", 1)]
    assert assigned["m1"] == [("a", 2), ("b", 2)]


def test_static_members_come_first_regardless_of_their_ids() -> None:
    topics = frozenset("a")
    group = [Member("m0", topics), Member("z", topics, instance_id="static")]
    assert ASSIGNORS["range"]({"a": 1}, group) == {"z": [("a", 0)], "m0": []}


def rejoin(group: list[Member], assigned: Assignment, generation: int) -> list[Member]:
    """Returns the members with their assignment as owned partitions."""
    return [
        member._replace(owned=frozenset(assigned.get(member.id, ())), generation=generation)
        for member in group
    ]


@given(topic_counts, subscriptions, some.data())
@settings(deadline=None)
def test_sticky_moves_only_what_balance_requires(
    partitions: dict[str, int], topics: list[frozenset[str]], data: some.DataObject
) -> None:
    all_topics = frozenset(TOPICS)
    group = members(*(all_topics for _ in topics))
    before = ASSIGNORS["sticky"](partitions, group)
    group = rejoin(group, before, 1)
    # The same members get the same partitions.
    assert ASSIGNORS["sticky"](partitions, group) == before
    leaving = data.draw(some.integers(0, len(group) - 1))
    remaining = [member for member in group if member.id != f"m{leaving}"] or group
    after = ASSIGNORS["sticky"](partitions, remaining)
    for member in remaining:
        if len(remaining) < len(group):
            assert set(before[member.id]) <= set(after[member.id])
    joined = [*group, Member("new", all_topics)]
    after = ASSIGNORS["sticky"](partitions, joined)
    moved = sum(len(set(before[member.id]) - set(after[member.id])) for member in group)
    assert moved == len(after["new"])
    assert max(sizes(after)) - min(sizes(after)) <= 1


@given(topic_counts, subscriptions)
@settings(deadline=None)
def test_sticky_is_as_even_as_the_subscriptions_allow(
    partitions: dict[str, int], topics: list[frozenset[str]]
) -> None:
    group = members(*topics)
    assigned = ASSIGNORS["sticky"](partitions, group)
    for source in group:
        for target in group:
            if len(assigned[target.id]) < len(assigned[source.id]) - 1:
                # The target has subscribed to none of the topics of the source.
                topics_of_source = {partition.topic for partition in assigned[source.id]}
                assert not topics_of_source & target.topics


def members_in(*racks: str | None) -> list[Member]:
    return [Member(f"m{number}", frozenset("a"), rack=rack) for number, rack in enumerate(racks)]


def replica_racks(*racks: str) -> dict[TopicPartition, frozenset[str]]:
    """The racks of the replicas of each partition of topic a: one letter for each rack."""
    return {TopicPartition("a", index): frozenset(letters) for index, letters in enumerate(racks)}


@pytest.mark.parametrize(
    ("racks", "replicas", "expected"),
    [
        (("x", "y"), ("y", "x", "y", "x"), {"m0": [1, 3], "m1": [0, 2]}),
        # A member without a rack gets the partitions that match no other member.
        (("x", None), ("y", "x", "y", "x"), {"m0": [1, 3], "m1": [0, 2]}),
        # Balance has priority over racks.
        (("x", "y"), ("x", "x", "x", "x"), {"m0": [0, 2], "m1": [1, 3]}),
        # One match requires an exchange between three members.
        (("z", "y", "x"), ("z", "x", "x", ""), {"m0": [0], "m1": [3], "m2": [1, 2]}),
        # Racks without replicas change nothing.
        (("p", "q"), ("x", "y", "x"), {"m0": [0, 2], "m1": [1]}),
    ],
)
def test_sticky_assigns_partitions_to_members_in_their_racks(
    racks: tuple[str | None, ...], replicas: tuple[str, ...], expected: dict[str, list[int]]
) -> None:
    for name in ("sticky", "cooperative-sticky"):
        assigned = ASSIGNORS[name](
            {"a": len(replicas)}, members_in(*racks), replica_racks(*replicas)
        )
        assert {
            member_id: [partition.partition for partition in share]
            for member_id, share in assigned.items()
        } == expected


def test_members_exchange_partitions_to_match_racks() -> None:
    in_y, in_x = TopicPartition("a", 0), TopicPartition("a", 1)
    group = members_in("x", "y")
    group[0] = group[0]._replace(owned=frozenset((in_y,)), generation=1)
    group[1] = group[1]._replace(owned=frozenset((in_x,)), generation=1)
    assert ASSIGNORS["sticky"]({"a": 2}, group, replica_racks("y", "x")) == {
        "m0": [in_x],
        "m1": [in_y],
    }
    assert ASSIGNORS["sticky"]({"a": 2}, group) == {"m0": [in_y], "m1": [in_x]}


@given(
    topic_counts,
    some.lists(
        some.tuples(
            some.frozensets(some.sampled_from(TOPICS), min_size=1),
            some.sampled_from([None, "x", "y", "z"]),
        ),
        min_size=1,
        max_size=6,
    ),
    some.data(),
)
@settings(deadline=None)
def test_racks_keep_the_assignment_even_and_cooperative_groups_converge(
    partitions: dict[str, int],
    group_of: list[tuple[frozenset[str], str | None]],
    data: some.DataObject,
) -> None:
    group = [Member(f"m{n}", topics, rack=rack) for n, (topics, rack) in enumerate(group_of)]
    some_racks = some.frozensets(some.sampled_from("xyz"))
    racks = {partition: data.draw(some_racks) for partition in all_partitions(partitions)}
    assigned = ASSIGNORS["sticky"](partitions, group, racks)
    for source in group:
        for target in group:
            if len(assigned[target.id]) < len(assigned[source.id]) - 1:
                topics_of_source = {partition.topic for partition in assigned[source.id]}
                assert not topics_of_source & target.topics
    group = rejoin(group, assigned, 1)
    assert ASSIGNORS["sticky"](partitions, group, racks) == assigned, (
        "applied to its result it moves nothing"
    )
    # A member joins, and all rejoin until no partition has to be revoked.
    group = [*group, Member("new", frozenset(TOPICS), rack="x")]
    for generation in range(2, 2 + 2 * len(racks) + 2):
        assigned = ASSIGNORS["cooperative-sticky"](partitions, group, racks)
        if all(set(member.owned) <= set(assigned[member.id]) for member in group):
            break
        group = rejoin(group, assigned, generation)
    counts = Counter(partition for share in assigned.values() for partition in share)
    assert counts == Counter(racks.keys())


def test_consistent_moves_few_partitions_and_only_after_their_revocation() -> None:
    topics = {"a": 200, "b": 100}
    group = members(*(frozenset("ab") for _ in range(30)))
    before = ASSIGNORS["consistent"](topics, group)
    assert max(sizes(before)) <= 11
    target = ASSIGNORS["consistent"](topics, group[:-1])
    owner = {partition: member for member, share in before.items() for partition in share}
    moved = [
        partition
        for member, share in target.items()
        for partition in share
        if owner[partition] != member
    ]
    assert len(moved) <= len(before["m29"]) + 30
    # Partitions with another owner are assigned in the second rebalance.
    first = ASSIGNORS["consistent"](topics, rejoin(group[:-1], before, 1))
    assigned = {partition for share in first.values() for partition in share}
    assert set(all_partitions(topics)) - assigned == {
        partition for partition in moved if owner[partition] != "m29"
    }
    second = rejoin(group[:-1], first, 2)
    assert ASSIGNORS["consistent"](topics, second) == target


def test_consistent_reassigns_a_static_member_its_partitions() -> None:
    topics = frozenset("a")
    before = [Member("first", topics, instance_id="i"), Member("other", topics)]
    after = [Member("other", topics), Member("second", topics, instance_id="i")]
    assigned = ASSIGNORS["consistent"]({"a": 20}, before)
    assert ASSIGNORS["consistent"]({"a": 20}, after)["second"] == assigned["first"]


def test_the_member_of_the_later_generation_owns_a_claimed_partition() -> None:
    topics = frozenset("a")
    first, second = TopicPartition("a", 0), TopicPartition("a", 1)
    group = [
        Member("m0", topics, owned=frozenset((first, second)), generation=3),
        Member("m1", topics, owned=frozenset((first,)), generation=4),
    ]
    assert ASSIGNORS["sticky"]({"a": 2}, group) == {"m0": [second], "m1": [first]}


def test_cooperative_members_get_moved_partitions_after_their_revocation() -> None:
    topics = frozenset("a")
    partitions = {"a": 4}
    group = [Member("m0", topics), Member("m1", topics)]
    alone = ASSIGNORS["cooperative-sticky"](partitions, group[:1])
    assert sizes(alone) == [4]
    group = [*rejoin(group[:1], alone, 1), group[1]]
    first = ASSIGNORS["cooperative-sticky"](partitions, group)
    assert sizes(first) == [0, 2]
    second = ASSIGNORS["cooperative-sticky"](partitions, rejoin(group, first, 2))
    assert sizes(second) == [2, 2]
    assert set(first["m0"]) == set(second["m0"])
