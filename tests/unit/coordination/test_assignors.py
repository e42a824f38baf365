"""The guarantees of all assignors, and those of each."""

from collections.abc import Collection
from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lograft.coordination.assignors import (
    Assignment,
    GroupSpec,
    MemberSpec,
    assign_range,
    find_assignor,
)

A, B, C = (UUID(int=number) for number in (11, 12, 13))
TOPICS = [UUID(int=number) for number in range(1, 6)]
NAMES = ("uniform", "range", "consistent")


def owners(assigned: dict[str, Assignment]) -> dict[tuple[UUID, int], str]:
    found: dict[tuple[UUID, int], str] = {}
    for member_id, topics in assigned.items():
        for topic_id, partitions in topics.items():
            assert list(partitions) == sorted(partitions)
            assert partitions
            for partition in partitions:
                assert (topic_id, partition) not in found, "a partition has two owners"
                found[topic_id, partition] = member_id
    return found


def loads(assigned: dict[str, Assignment]) -> dict[str, int]:
    return {m: sum(map(len, topics.values())) for m, topics in assigned.items()}


def assign(name: str, group: GroupSpec) -> dict[str, Assignment]:
    function = find_assignor(name)
    assert function is not None
    return function(group)


def group_of(
    members: Collection[str],
    counts: dict[UUID, int],
    previous: dict[str, Assignment] | None = None,
) -> GroupSpec:
    topics = tuple(sorted(counts))
    return GroupSpec({m: MemberSpec(topics, (previous or {}).get(m, {})) for m in members}, counts)


@st.composite
def groups(draw: st.DrawFn) -> GroupSpec:
    counts = draw(st.dictionaries(st.sampled_from(TOPICS), st.integers(1, 7), max_size=5))
    members = draw(
        st.dictionaries(
            st.sampled_from([f"m{n}" for n in range(8)]),
            st.lists(st.sampled_from(sorted(counts) or [A]), unique=True)
            if counts
            else st.just([]),
            min_size=1,
        )
    )
    # Their owned partitions are arbitrary: of deleted topics, beyond the last partition, claimed
    # twice.
    previous = st.dictionaries(
        st.sampled_from(TOPICS),
        st.sets(st.integers(0, 9), min_size=1).map(lambda s: tuple(sorted(s))),
    )
    return GroupSpec(
        {m: MemberSpec(tuple(sorted(topics)), draw(previous)) for m, topics in members.items()},
        counts,
    )


@pytest.mark.parametrize("name", NAMES)
@settings(max_examples=150, deadline=None)
@given(group=groups())
def test_every_subscribed_partition_has_one_subscriber_as_owner(
    name: str, group: GroupSpec
) -> None:
    assigned = assign(name, group)
    assert assigned.keys() == group.members.keys()
    found = owners(assigned)
    subscribed = {topic for member in group.members.values() for topic in member.topics}
    assert found.keys() == {
        (topic, partition)
        for topic in subscribed
        for partition in range(group.partition_counts[topic])
    }
    for (topic, _), member_id in found.items():
        assert topic in group.members[member_id].topics
    assert assign(name, group) == assigned, "the same question has the same answer"


@settings(max_examples=300, deadline=None)
@given(group=groups())
def test_no_single_move_makes_uniform_more_even(group: GroupSpec) -> None:
    assigned = assign("uniform", group)
    load = loads(assigned)
    for (topic, _), owner in owners(assigned).items():
        for member_id, member in group.members.items():
            if topic in member.topics:
                assert load[owner] - load[member_id] < 2


@settings(max_examples=200, deadline=None)
@given(group=groups())
def test_uniform_is_settled_after_one_run(group: GroupSpec) -> None:
    assigned = assign("uniform", group)
    again = GroupSpec(
        {m: spec._replace(previous=assigned[m]) for m, spec in group.members.items()},
        group.partition_counts,
    )
    assert assign("uniform", again) == assigned


@given(
    count=st.integers(1, 40),
    before=st.integers(1, 12),
    after=st.integers(1, 12),
)
@settings(max_examples=200, deadline=None)
def test_uniform_moves_no_partition_that_need_not(count: int, before: int, after: int) -> None:
    counts = {A: count}
    old = assign("uniform", group_of([f"m{n:02}" for n in range(before)], counts))
    members = [f"m{n:02}" for n in range(after)]
    new = assign("uniform", group_of(members, counts, old))
    share, extra = divmod(count, after)
    #: The member with the most partitions may keep one more while there is a remainder.
    previous = sorted((loads(old).get(m, 0) for m in members), reverse=True)
    kept_at_best = sum(
        min(load, share + (position < extra)) for position, load in enumerate(previous)
    )
    before_of, after_of = owners(old), owners(new)
    kept = sum(before_of[each] == after_of[each] for each in before_of)
    assert kept == kept_at_best


def test_uniform_gives_partitions_to_members_in_their_rack() -> None:
    racks = {(A, n): ("east",) if n % 2 else ("west", "north") for n in range(8)}
    members = {
        "m1": MemberSpec((A,), rack="east"),
        "m2": MemberSpec((A,), rack="west"),
    }
    group = GroupSpec(members, {A: 8}, lambda topic, partition: racks[topic, partition])
    assert assign("uniform", group) == {"m1": {A: (1, 3, 5, 7)}, "m2": {A: (0, 2, 4, 6)}}


def test_a_member_gives_up_what_is_far_from_it_and_near_to_the_new_one() -> None:
    racks = {(A, n): ("east",) if n in (1, 2) else ("west",) for n in range(4)}
    members = {
        "m1": MemberSpec((A,), {A: (0, 1, 2, 3)}, rack="west"),
        "m2": MemberSpec((A,), rack="east"),
    }
    group = GroupSpec(members, {A: 4}, lambda topic, partition: racks[topic, partition])
    assert assign("uniform", group) == {"m1": {A: (0, 3)}, "m2": {A: (1, 2)}}


def test_uniform_with_different_subscriptions_uses_who_has_room() -> None:
    members = {
        "m1": MemberSpec((A, B)),
        "m2": MemberSpec((B,)),
        "m3": MemberSpec((A, B, C)),
    }
    assigned = assign("uniform", GroupSpec(members, {A: 2, B: 4, C: 3}))
    assert loads(assigned) == {"m1": 3, "m2": 3, "m3": 3}
    assert assigned["m3"] == {C: (0, 1, 2)}


def test_range_splits_equal_topics_alike() -> None:
    assigned = assign_range(group_of(["m2", "m1"], {A: 3, B: 3}))
    assert assigned == {
        "m1": {A: (0, 1), B: (0, 1)},
        "m2": {A: (2,), B: (2,)},
    }


def test_range_puts_static_members_first_by_their_instance() -> None:
    members = {
        "a": MemberSpec((A,)),
        "b": MemberSpec((A,), instance_id="i2"),
        "c": MemberSpec((A,), instance_id="i1"),
    }
    assert assign_range(GroupSpec(members, {A: 3})) == {
        "c": {A: (0,)},
        "b": {A: (1,)},
        "a": {A: (2,)},
    }


def test_consistent_moves_little_when_a_member_goes() -> None:
    counts = {A: 200, B: 100}
    members = [f"m{n}" for n in range(30)]
    before = assign("consistent", group_of(members, counts))
    after = assign("consistent", group_of(members[:-1], counts))
    old, new = owners(before), owners(after)
    moved = sum(old[each] != new[each] for each in old)
    assert moved <= loads(before)[members[-1]] + 0.1 * len(old)
    assert max(loads(before).values()) <= 11


def test_consistent_knows_a_static_member_again() -> None:
    members = {"first": MemberSpec((A,), instance_id="i"), "other": MemberSpec((A,))}
    again = {"second": MemberSpec((A,), instance_id="i"), "other": MemberSpec((A,))}
    before = assign("consistent", GroupSpec(members, {A: 20}))
    after = assign("consistent", GroupSpec(again, {A: 20}))
    assert before["first"] == after["second"]


def test_there_is_no_assignor_of_another_name() -> None:
    assert find_assignor("sticky") is None
