"""Assignors: every partition to one reader, evenly, and with few moves where that is promised."""

from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as some

from lograft.client.consuming.assignors import ASSIGNORS, Assignment, Member
from lograft.client.types import TopicPartition

TOPICS = ("a", "b", "c")
counts = some.fixed_dictionaries({topic: some.integers(0, 7) for topic in TOPICS})
interests = some.lists(
    some.frozensets(some.sampled_from(TOPICS), min_size=1), min_size=1, max_size=6
)


def members(*topics: frozenset[str]) -> list[Member]:
    return [Member(f"m{index}", one) for index, one in enumerate(topics)]


def all_of(partitions: dict[str, int]) -> list[TopicPartition]:
    return [TopicPartition(topic, i) for topic, count in partitions.items() for i in range(count)]


@given(counts, interests, some.sampled_from(sorted(ASSIGNORS)))
@settings(deadline=None)
def test_every_partition_that_somebody_reads_has_one_reader(
    partitions: dict[str, int], topics: list[frozenset[str]], name: str
) -> None:
    group = members(*topics)
    assigned = ASSIGNORS[name](partitions, group)
    assert assigned.keys() == {member.id for member in group}
    read = set().union(*topics)
    given_out = Counter(one for mine in assigned.values() for one in mine)
    assert given_out == Counter(one for one in all_of(partitions) if one.topic in read)
    for member in group:
        assert {one.topic for one in assigned[member.id]} <= member.topics


def sizes(assigned: Assignment) -> list[int]:
    return sorted(map(len, assigned.values()))


@pytest.mark.parametrize("name", ["roundrobin", "sticky", "cooperative-sticky"])
def test_shares_are_even(name: str) -> None:
    both = frozenset(("a", "b"))
    assert sizes(ASSIGNORS[name]({"a": 5, "b": 6}, members(both, both, both))) == [3, 4, 4]


def test_range_gives_the_first_members_more_and_keeps_topics_side_by_side() -> None:
    both = frozenset(("a", "b"))
    assigned = ASSIGNORS["range"]({"a": 3, "b": 3}, members(both, both))
    assert assigned["m0"] == [("a", 0), ("a", 1), ("b", 0), ("b", 1)]
    assert assigned["m1"] == [("a", 2), ("b", 2)]


def test_static_members_come_first_whatever_their_ids_are() -> None:
    topics = frozenset("a")
    group = [Member("m0", topics), Member("z", topics, instance_id="static")]
    assert ASSIGNORS["range"]({"a": 1}, group) == {"z": [("a", 0)], "m0": []}


def again(group: list[Member], assigned: Assignment, generation: int) -> list[Member]:
    """The members with what they have been given."""
    return [
        one._replace(owned=frozenset(assigned.get(one.id, ())), generation=generation)
        for one in group
    ]


@given(counts, interests, some.data())
@settings(deadline=None)
def test_sticky_moves_only_what_evenness_asks_for(
    partitions: dict[str, int], topics: list[frozenset[str]], data: some.DataObject
) -> None:
    everything = frozenset(TOPICS)
    group = members(*(everything for _ in topics))
    before = ASSIGNORS["sticky"](partitions, group)
    group = again(group, before, 1)
    # The same again moves nothing.
    assert ASSIGNORS["sticky"](partitions, group) == before
    left = data.draw(some.integers(0, len(group) - 1))
    stay = [member for member in group if member.id != f"m{left}"] or group
    after = ASSIGNORS["sticky"](partitions, stay)
    for member in stay:
        if len(stay) < len(group):
            assert set(before[member.id]) <= set(after[member.id])
    joined = [*group, Member("new", everything)]
    after = ASSIGNORS["sticky"](partitions, joined)
    moved = sum(len(set(before[one.id]) - set(after[one.id])) for one in group)
    assert moved == len(after["new"])
    assert max(sizes(after)) - min(sizes(after)) <= 1


@given(counts, interests)
@settings(deadline=None)
def test_sticky_is_as_even_as_interests_allow(
    partitions: dict[str, int], topics: list[frozenset[str]]
) -> None:
    group = members(*topics)
    assigned = ASSIGNORS["sticky"](partitions, group)
    for giver in group:
        for taker in group:
            if len(assigned[taker.id]) < len(assigned[giver.id]) - 1:
                # Nobody has two more than one who could take something of it.
                assert not {one.topic for one in assigned[giver.id]} & taker.topics


def racked(*racks: str | None) -> list[Member]:
    return [Member(f"m{number}", frozenset("a"), rack=rack) for number, rack in enumerate(racks)]


def of_a(*racks: str) -> dict[TopicPartition, frozenset[str]]:
    """A replica in each of the racks that a word names by its letters, partition by partition."""
    return {TopicPartition("a", index): frozenset(each) for index, each in enumerate(racks)}


@pytest.mark.parametrize(
    ("racks", "replicas", "expected"),
    [
        (("x", "y"), ("y", "x", "y", "x"), {"m0": [1, 3], "m1": [0, 2]}),
        # Who says no rack takes what is far from the others.
        (("x", None), ("y", "x", "y", "x"), {"m0": [1, 3], "m1": [0, 2]}),
        # Evenness counts more than racks.
        (("x", "y"), ("x", "x", "x", "x"), {"m0": [0, 2], "m1": [1, 3]}),
        # One gets nearer only if a third gives something to the one who lets go.
        (("z", "y", "x"), ("z", "x", "x", ""), {"m0": [0], "m1": [3], "m2": [1, 2]}),
        # Racks that nobody's replicas are in change nothing.
        (("p", "q"), ("x", "y", "x"), {"m0": [0, 2], "m1": [1]}),
    ],
)
def test_sticky_brings_partitions_near_their_readers(
    racks: tuple[str | None, ...], replicas: tuple[str, ...], expected: dict[str, list[int]]
) -> None:
    for name in ("sticky", "cooperative-sticky"):
        assigned = ASSIGNORS[name]({"a": len(replicas)}, racked(*racks), of_a(*replicas))
        assert {
            one: [each.partition for each in mine] for one, mine in assigned.items()
        } == expected


def test_a_reader_in_the_rack_takes_over_what_was_far() -> None:
    far, near = TopicPartition("a", 0), TopicPartition("a", 1)
    group = racked("x", "y")
    group[0] = group[0]._replace(owned=frozenset((far,)), generation=1)
    group[1] = group[1]._replace(owned=frozenset((near,)), generation=1)
    assert ASSIGNORS["sticky"]({"a": 2}, group, of_a("y", "x")) == {"m0": [near], "m1": [far]}
    assert ASSIGNORS["sticky"]({"a": 2}, group) == {"m0": [far], "m1": [near]}


@given(
    counts,
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
def test_racks_cost_no_evenness_and_cooperative_groups_come_to_rest(
    partitions: dict[str, int],
    group_of: list[tuple[frozenset[str], str | None]],
    data: some.DataObject,
) -> None:
    group = [Member(f"m{n}", topics, rack=rack) for n, (topics, rack) in enumerate(group_of)]
    places = some.frozensets(some.sampled_from("xyz"))
    racks = {one: data.draw(places) for one in all_of(partitions)}
    assigned = ASSIGNORS["sticky"](partitions, group, racks)
    for giver in group:
        for taker in group:
            if len(assigned[taker.id]) < len(assigned[giver.id]) - 1:
                assert not {one.topic for one in assigned[giver.id]} & taker.topics
    group = again(group, assigned, 1)
    assert ASSIGNORS["sticky"](partitions, group, racks) == assigned, "given again, nothing moves"
    # Somebody comes, and all join again until nothing is to be let go of.
    group = [*group, Member("new", frozenset(TOPICS), rack="x")]
    for generation in range(2, 2 + 2 * len(racks) + 2):
        assigned = ASSIGNORS["cooperative-sticky"](partitions, group, racks)
        if all(set(member.owned) <= set(assigned[member.id]) for member in group):
            break
        group = again(group, assigned, generation)
    given_out = Counter(one for mine in assigned.values() for one in mine)
    assert given_out == Counter(racks.keys())


def test_consistent_moves_little_and_not_before_the_owner_has_let_go() -> None:
    topics = {"a": 200, "b": 100}
    group = members(*(frozenset("ab") for _ in range(30)))
    before = ASSIGNORS["consistent"](topics, group)
    assert max(sizes(before)) <= 11
    target = ASSIGNORS["consistent"](topics, group[:-1])
    owner = {one: member for member, mine in before.items() for one in mine}
    moved = [one for member, mine in target.items() for one in mine if owner[one] != member]
    assert len(moved) <= len(before["m29"]) + 30
    # Those that others still own come in a second step.
    first = ASSIGNORS["consistent"](topics, again(group[:-1], before, 1))
    given_out = {one for mine in first.values() for one in mine}
    assert set(all_of(topics)) - given_out == {one for one in moved if owner[one] != "m29"}
    second = again(group[:-1], first, 2)
    assert ASSIGNORS["consistent"](topics, second) == target


def test_consistent_knows_a_static_member_again() -> None:
    topics = frozenset("a")
    before = [Member("first", topics, instance_id="i"), Member("other", topics)]
    after = [Member("other", topics), Member("second", topics, instance_id="i")]
    assigned = ASSIGNORS["consistent"]({"a": 20}, before)
    assert ASSIGNORS["consistent"]({"a": 20}, after)["second"] == assigned["first"]


def test_of_two_that_claim_a_partition_the_later_is_right() -> None:
    topics = frozenset("a")
    one, two = TopicPartition("a", 0), TopicPartition("a", 1)
    group = [
        Member("m0", topics, owned=frozenset((one, two)), generation=3),
        Member("m1", topics, owned=frozenset((one,)), generation=4),
    ]
    assert ASSIGNORS["sticky"]({"a": 2}, group) == {"m0": [two], "m1": [one]}


def test_cooperative_members_get_what_moves_when_its_owner_has_let_go() -> None:
    topics = frozenset("a")
    partitions = {"a": 4}
    group = [Member("m0", topics), Member("m1", topics)]
    alone = ASSIGNORS["cooperative-sticky"](partitions, group[:1])
    assert sizes(alone) == [4]
    group = [*again(group[:1], alone, 1), group[1]]
    first = ASSIGNORS["cooperative-sticky"](partitions, group)
    assert sizes(first) == [0, 2]
    second = ASSIGNORS["cooperative-sticky"](partitions, again(group, first, 2))
    assert sizes(second) == [2, 2]
    assert set(first["m0"]) == set(second["m0"])
