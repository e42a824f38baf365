from collections import Counter

import pytest

from lograft.metadata.placement import Candidate, broker_ring, place_partitions
from lograft.model.errors import ErrorCode, Rejected


def brokers(*ids: int, rack_count: int = 0) -> list[Candidate]:
    return [Candidate(b, f"rack-{b % rack_count}" if rack_count else None) for b in ids]


def test_the_same_question_has_the_same_answer() -> None:
    first = place_partitions("t", range(50), replication_factor=3, candidates=brokers(*range(7)))
    again = place_partitions(
        "t", range(50), replication_factor=3, candidates=brokers(*reversed(range(7)))
    )
    assert first == again


@pytest.mark.parametrize("count", [2, 3, 5, 12])
def test_leaders_and_replicas_of_a_topic_are_spread_evenly(count: int) -> None:
    placed = place_partitions(
        "orders", range(1000), replication_factor=2, candidates=brokers(*range(count))
    )
    leaders = Counter(replicas[0] for replicas in placed)
    held = Counter(replica for replicas in placed for replica in replicas)
    assert max(leaders.values()) - min(leaders.values()) <= 0.12 * 1000 / count + 1
    assert max(held.values()) - min(held.values()) <= 0.08 * 2000 / count + 1
    assert all(len(set(replicas)) == 2 for replicas in placed)


def test_topics_of_one_partition_are_spread_too() -> None:
    leaders: Counter[int] = Counter()
    held: Counter[int] = Counter()
    for number in range(300):
        candidates = [Candidate(b, leaders=leaders[b], replicas=held[b]) for b in range(5)]
        (replicas,) = place_partitions(
            f"topic-{number}", range(1), replication_factor=3, candidates=candidates
        )
        leaders[replicas[0]] += 1
        held.update(replicas)
    assert max(leaders.values()) <= 300 / 5 * 1.1 + 1
    assert max(held.values()) <= 900 / 5 * 1.1 + 1


def test_replicas_go_to_different_racks_while_there_are_any() -> None:
    placed = place_partitions(
        "t", range(200), replication_factor=3, candidates=brokers(*range(9), rack_count=3)
    )
    for replicas in placed:
        assert len({replica % 3 for replica in replicas}) == 3
    placed = place_partitions(
        "t", range(200), replication_factor=4, candidates=brokers(*range(8), rack_count=2)
    )
    for replicas in placed:
        assert Counter(replica % 2 for replica in replicas) == {0: 2, 1: 2}


def test_a_new_broker_takes_its_share_and_little_else_moves() -> None:
    before = place_partitions("t", range(1000), replication_factor=1, candidates=brokers(*range(9)))
    after = place_partitions("t", range(1000), replication_factor=1, candidates=brokers(*range(10)))
    moved = sum(a != b for a, b in zip(before, after, strict=True))
    taken = sum(replicas == (9,) for replicas in after)
    assert 80 <= taken <= 120
    # Skipping full brokers moves some more; a modulo would move nine tenths.
    assert moved <= 400


def test_the_ring_alone_moves_only_the_share() -> None:
    keys = [f"t {n}" for n in range(2000)]
    old, new = broker_ring(tuple(range(9))), broker_ring(tuple(range(10)))
    moved = [key for key in keys if old.walk(key)[0] != new.walk(key)[0]]
    assert all(new.walk(key)[0] == 9 for key in moved)
    assert 120 <= len(moved) <= 300


def test_fenced_brokers_hold_replicas_only_without_a_choice() -> None:
    candidates = [Candidate(1), Candidate(2, active=False), Candidate(3)]
    placed = place_partitions("t", range(30), replication_factor=2, candidates=candidates)
    assert all(set(replicas) == {1, 3} for replicas in placed)
    placed = place_partitions("t", range(30), replication_factor=3, candidates=candidates)
    assert all(replicas[2] == 2 for replicas in placed)


@pytest.mark.parametrize(
    ("factor", "candidates", "words"),
    [
        (0, [Candidate(1)], "at least 1"),
        (2, [Candidate(1)], r"only 1 registered broker\(s\)"),
        (1, [], "all registered brokers"),
        (1, [Candidate(1, active=False)], "all registered brokers are fenced"),
    ],
)
def test_what_cannot_be_placed_is_refused(
    factor: int, candidates: list[Candidate], words: str
) -> None:
    with pytest.raises(Rejected, match=words) as refusal:
        place_partitions("t", range(1), replication_factor=factor, candidates=candidates)
    assert refusal.value.code == ErrorCode.INVALID_REPLICATION_FACTOR


def test_partitions_added_later_go_where_the_topic_leads_least() -> None:
    placed = place_partitions(
        "t",
        range(6, 9),
        replication_factor=1,
        candidates=brokers(1, 2, 3),
        topic_leaders={1: 3, 2: 3, 3: 0},
    )
    assert placed == [(3,)] * 3
