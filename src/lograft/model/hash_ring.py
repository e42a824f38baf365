"""Consistent hashing: a ring on which every node has many points, with bounded loads.

Brokers are nodes in `metadata/placement`; members of a consumer group are nodes for the assignor
`consistent`, on the server (`coordination/assignors_consistent`) and in the client. The position of
a key depends on the nodes alone: a node that joins or leaves moves about its own share of the keys.
"""

from bisect import bisect_right
from collections.abc import Collection, Iterable, Iterator, Mapping
from functools import lru_cache
from hashlib import blake2b
from itertools import chain, islice
from math import ceil
from typing import Final, Generic, TypeVar

N = TypeVar("N", int, str)
T = TypeVar("T")

#: Points of a group member on the ring; brokers have more, because there are fewer of them.
MEMBER_POINTS: Final = 32
#: Maximum load of a member relative to the group's average. A lower value would balance the loads
#: better and move more partitions.
MEMBER_SLACK: Final = 1.1


class Ring(Generic[N]):
    """A hash ring with many points per node."""

    __slots__ = ("_nodes", "_points")

    def __init__(self, places: Iterable[tuple[int, N]]) -> None:
        ordered = sorted(places)
        self._points = [point for point, _ in ordered]
        self._nodes: list[N] = [node for _, node in ordered]

    def clockwise(self, key: str) -> Iterator[N]:
        """Yields the points of the ring clockwise from the key; a node appears once per point."""
        start = bisect_right(self._points, _hash(key))
        return chain(islice(self._nodes, start, None), islice(self._nodes, start))

    def walk(self, key: str) -> list[N]:
        """Yields each node once, clockwise from the key."""
        return list(dict.fromkeys(self.clockwise(key)))


def ring_points(kind: str, node: N, count: int) -> tuple[tuple[int, N], ...]:
    return tuple((_hash(f"{kind} {node} {n}"), node) for n in range(count))


def share_partitions(
    members: Collection[str],
    partition_counts: Mapping[T, int],
    subscribers: Mapping[T, Collection[str]],
) -> dict[str, list[tuple[T, int]]]:
    """Assigns each partition to the next member clockwise that subscribes to its topic and is below
    its maximum load. Topics are assigned in the order of `subscribers`."""
    ring = _member_ring(tuple(sorted(members)))
    load_max = ceil(sum(partition_counts.values()) / max(1, len(members)) * MEMBER_SLACK)
    placed: dict[str, list[tuple[T, int]]] = {name: [] for name in members}
    for topic, names in subscribers.items():
        if not names:
            continue
        subscribed = frozenset(names)
        for partition in range(partition_counts[topic]):
            clockwise = ring.clockwise(f"{topic} {partition}")
            candidates = (n for n in clockwise if n in subscribed and len(placed[n]) < load_max)
            # The few subscribers of a large topic may all exceed their maximum load.
            name = next(candidates, None) or min(names, key=lambda n: len(placed[n]))
            placed[name].append((topic, partition))
    return placed


def member_name(member_id: str, instance_id: str | None) -> str:
    """Returns the node of a member: a static member keeps its position when it restarts."""
    return f"{instance_id is None} {instance_id or member_id}"


@lru_cache(maxsize=16)
def _member_ring(names: tuple[str, ...]) -> Ring[str]:
    return Ring(place for name in names for place in ring_points("member", name, MEMBER_POINTS))


def _hash(key: str) -> int:
    return int.from_bytes(blake2b(key.encode(), digest_size=8).digest())
