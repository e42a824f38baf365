"""Measures how evenly 1,000 partitions with 3 replicas are placed, and how many replicas move when
brokers are added or removed: python -m bench.micro.placement"""

from collections import Counter
from collections.abc import Iterable

from lograft.metadata.placement import Candidate, place_partitions
from lograft.metadata.rebalancing import Holding, plan_moves

PARTITIONS = 1000
REPLICAS = 3


def place_replicas(brokers: int) -> list[Holding]:
    chosen = place_partitions(
        "orders",
        range(PARTITIONS),
        replication_factor=REPLICAS,
        candidates=[Candidate(broker_id) for broker_id in range(brokers)],
    )
    return [Holding("orders", number, replicas) for number, replicas in enumerate(chosen)]


def spread(assignments: Iterable[tuple[int, ...]]) -> str:
    assignments = list(assignments)
    leaders = Counter(replicas[0] for replicas in assignments).values()
    held = Counter(broker_id for replicas in assignments for broker_id in replicas).values()
    return f"leaders {min(leaders)}-{max(leaders)}, replicas {min(held)}-{max(held)}"


def main() -> None:
    for brokers in (3, 4, 5, 10):
        counts = spread(holding.replicas for holding in place_replicas(brokers))
        print(f"new topic on {brokers:2} brokers: {counts}")
    for before, after in ((3, 4), (4, 5), (9, 10), (5, 4)):
        holdings = place_replicas(before)
        moves = plan_moves(holdings, dict.fromkeys(range(after)))
        now = {holding.partition: holding.replicas for holding in holdings}
        now.update({move.partition: move.after for move in moves})
        copies = sum(move.copies for move in moves)
        print(
            f"{before} brokers become {after}: {copies} of {PARTITIONS * REPLICAS} replicas are"
            f" copied; then {spread(now.values())}"
        )


if __name__ == "__main__":
    main()
