"""Measures how long a test waits for its cluster: `python -m bench.micro.testing_cluster`. The
first cluster of a process also pays for imports and compiled readers; the median of the others is
reported."""

import statistics
import time

from lograft.testing import Cluster

ROUNDS = 15


def start_ms(nodes: int) -> float:
    before = time.perf_counter()
    with Cluster(nodes=nodes):
        return (time.perf_counter() - before) * 1000


def main() -> None:
    for nodes in (1, 3):
        first, *rest = [start_ms(nodes) for _ in range(ROUNDS + 1)]
        print(
            f"{nodes} nodes: first {first:.0f} ms, then median {statistics.median(rest):.0f} ms,"
            f" {min(rest):.0f} to {max(rest):.0f} ms"
        )


if __name__ == "__main__":
    main()
