"""Plans: balanced, complete, and minimal."""

from collections import Counter
from collections.abc import Callable
from random import Random
from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lograft.metadata import rebalancing
from lograft.metadata.brokers import fence_broker
from lograft.metadata.elections import PartitionChange
from lograft.metadata.image import MetadataImage
from lograft.metadata.leadership_rules import LeadershipRules
from lograft.metadata.placement import Candidate, place_partitions
from lograft.metadata.rebalancing import (
    Holding,
    Move,
    is_uneven,
    plan,
    plan_moves,
    rebalance,
)
from lograft.metadata.topics import create_topics
from lograft.model.errors import ErrorCode, Rejected
from lograft.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest
from tests.unit.metadata.conftest import append, make_config

Placed = dict[tuple[str, int], tuple[int, ...]]


def place_replicas(brokers: int, *, partitions: int = 1000, factor: int = 3) -> list[Holding]:
    replicas = place_partitions(
        "t",
        range(partitions),
        replication_factor=factor,
        candidates=[Candidate(broker_id) for broker_id in range(brokers)],
    )
    return [Holding("t", index, replica) for index, replica in enumerate(replicas)]


def after(holdings: list[Holding], moves: list[Move]) -> Placed:
    now: Placed = {(holding.topic, holding.partition): holding.replicas for holding in holdings}
    for move in moves:
        assert now[move.topic, move.partition] == move.before
        now[move.topic, move.partition] = move.after
    return now


def loads(now: Placed) -> Counter[int]:
    return Counter(broker_id for replicas in now.values() for broker_id in replicas)


def leaders(now: Placed) -> Counter[int]:
    return Counter(replicas[0] for replicas in now.values())


def width(counts: Counter[int], brokers: int) -> int:
    values = [counts[broker_id] for broker_id in range(brokers)]
    return max(values) - min(values)


@pytest.mark.parametrize("brokers", [3, 4, 5, 9])
def test_a_broker_that_joins_takes_its_share_and_nothing_else_moves(brokers: int) -> None:
    holdings = place_replicas(brokers)
    moves = plan_moves(holdings, dict.fromkeys(range(brokers + 1)))
    now = after(holdings, moves)
    share = loads(now)[brokers]
    assert abs(share - 3000 / (brokers + 1)) < 1
    # (The ring had placed nearly the same number of replicas on the others.)
    assert share <= sum(move.copies for move in moves) <= share + 5
    assert width(loads(now), brokers + 1) <= 1
    assert width(leaders(now), brokers + 1) <= 1


def test_what_a_broker_holds_that_goes_is_spread() -> None:
    holdings = place_replicas(5)
    held = sum(4 in holding.replicas for holding in holdings)
    moves = plan_moves(holdings, dict.fromkeys(range(4)))
    now = after(holdings, moves)
    assert 4 not in loads(now)
    assert width(loads(now), 4) <= 1
    assert held <= sum(move.copies for move in moves) <= held * 1.05


def test_racks_stay_apart() -> None:
    holdings = place_replicas(3)
    racks: dict[int, str | None] = {broker_id: "abc"[broker_id % 3] for broker_id in range(6)}
    now = after(holdings, plan_moves(holdings, racks))
    assert all(len({racks[b] for b in replicas}) == 3 for replicas in now.values())
    assert width(loads(now), 6) <= 1


def test_a_lone_rack_takes_more_rather_than_both_replicas() -> None:
    """Broker 2 is alone in its rack: each partition keeps one replica there."""
    holdings = [Holding("t", index, (index % 2, 2)) for index in range(100)]
    racks: dict[int, str | None] = {0: "a", 1: "a", 2: "b"}
    now = after(holdings, plan_moves(holdings, racks))
    assert loads(now) == {0: 50, 1: 50, 2: 100}


def test_too_few_brokers() -> None:
    with pytest.raises(Rejected) as refusal:
        plan_moves([Holding("t", 0, (1, 2))], {1: None})
    assert refusal.value.code == ErrorCode.INVALID_REPLICATION_FACTOR


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 2**32))
def test_any_start_ends_even(seed: int) -> None:
    chance = Random(seed)
    before = chance.randrange(1, 8)
    brokers = chance.randrange(3, 9)
    holdings = [
        Holding("t", index, tuple(chance.sample(range(before), min(before, factor))))
        for index, factor in enumerate(chance.choices([1, 2, 3], k=chance.randrange(0, 80)))
    ]
    moves = plan_moves(holdings, dict.fromkeys(range(brokers)))
    now = after(holdings, moves)
    for holding in holdings:
        replicas = now[holding.topic, holding.partition]
        assert len(replicas) == len(set(replicas)) == len(holding.replicas)
        assert set(replicas) <= set(range(brokers))
    assert width(loads(now), brokers) <= 1
    # No plan copies fewer replicas: those on removed brokers, and those above the share of their
    # broker. In rare cases the existing replicas require a detour (of 60,000 seeds, three by more
    # than one per broker).
    old = loads({(each.topic, each.partition): each.replicas for each in holdings})
    share = -(-sum(old.values()) // brokers)
    least = sum(n if b >= brokers else max(0, n - share) for b, n in old.items())
    copies = sum(move.copies for move in moves)
    assert least <= copies <= least + 2 * brokers
    # A balanced placement remains unchanged.
    again = [Holding(*key, replicas) for key, replicas in now.items()]
    assert sum(move.copies for move in plan_moves(again, dict.fromkeys(range(brokers)))) == 0


def test_the_plan_of_a_cluster(
    cluster: Callable[..., MetadataImage], new_id: Callable[[], UUID]
) -> None:
    image = cluster(1, 2, 3)
    topics = [
        CreatableTopic(name=name, num_partitions=40, replication_factor=2) for name in ("a", "b")
    ]
    request = CreateTopicsRequest(topics=topics)
    outcome = create_topics(image, request, config=make_config(), new_id=new_id)
    append(image, outcome.records)
    moves = plan(image, [1, 2], topics=["a"])
    assert {move.topic for move in moves} == {"a"}
    assert all(set(move.after) == {1, 2} for move in moves)
    with pytest.raises(Rejected, match="Broker 9"):
        plan(image, [1, 9])


def catch_up(image: MetadataImage) -> None:
    """Every leader reports all its replicas as in sync."""
    for topic_id, index in list(image.reassigning):
        topic = image.topics[topic_id]
        change = PartitionChange(LeadershipRules(image, make_config()), topic, index)
        change.isr = tuple(sorted(topic.partitions[index].replicas))
        record = change.build()
        assert record is not None
        append(image, [record])
    assert not image.reassigning


def test_a_broker_that_joins_gets_its_share_by_itself(
    cluster: Callable[..., MetadataImage],
    new_id: Callable[[], UUID],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(rebalancing, "MOVES_AT_ONCE", 25)
    image = cluster(1, 2, 3)
    topic = CreatableTopic(name="t", num_partitions=120, replication_factor=3)
    request = CreateTopicsRequest(topics=[topic])
    outcome = create_topics(image, request, config=make_config(), new_id=new_id)
    append(image, outcome.records)
    assert rebalance(image, config=make_config()).records == ()

    image.brokers[4] = cluster(fenced=[4]).brokers[4]
    assert rebalance(image, config=make_config()).records == ()
    image.brokers[4] = cluster(4).brokers[4]
    sizes = []
    while (outcome_of := rebalance(image, config=make_config())).records:
        append(image, outcome_of.records)
        sizes.append(len(outcome_of.records))
        # Reassignments in progress come first.
        assert rebalance(image, config=make_config()).records == () or not image.reassigning
        catch_up(image)
    assert sizes[:3] == [25, 25, 25]
    held = {broker_id: len(keys) for broker_id, keys in image.held_by.items()}
    assert sum(held.values()) == 360
    assert held[4] >= 90 * 0.94
    # An offline broker may return with all its replicas.
    image.brokers[5] = cluster(5).brokers[5]
    assert is_uneven(image)
    append(image, fence_broker(image, 2, config=make_config()).records)
    assert rebalance(image, config=make_config()).records == ()
