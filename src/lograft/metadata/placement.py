"""Selects the brokers of a new partition with a consistent hash ring that has virtual nodes.

Every broker is at many positions of the ring, and a partition at one. Its replicas are the next
distinct brokers clockwise, and the first one leads. A broker that joins or leaves therefore changes
only the placement of its own share. Two rules adjust this: replicas are spread over different racks
as long as there are any, and brokers with more than their share of leaders or replicas are skipped.
"""

from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Final, NamedTuple

from lograft.model.errors import ErrorCode, Rejected
from lograft.model.hash_ring import Ring, ring_points

VIRTUAL_NODES: Final = 128
#: How far above the cluster's average a broker's leader count may be before it is skipped.
LEADER_SLACK: Final = 1.1
#: The same for replicas, and for followers within one topic.
REPLICA_SLACK: Final = 1.1
FOLLOWER_SLACK: Final = 1.02


class Candidate(NamedTuple):
    broker_id: int
    rack: str | None = None
    #: Not fenced or shutting down. Other brokers get replicas only if there is no choice.
    active: bool = True
    #: Its current leaders and replicas in all topics.
    leaders: int = 0
    replicas: int = 0


@lru_cache(maxsize=4096)
def _places(broker_id: int) -> tuple[tuple[int, int], ...]:
    return ring_points("broker", broker_id, VIRTUAL_NODES)


@lru_cache(maxsize=16)
def broker_ring(broker_ids: tuple[int, ...]) -> Ring[int]:
    return Ring(place for broker_id in broker_ids for place in _places(broker_id))


def place_partitions(
    topic: str,
    indexes: range,
    *,
    replication_factor: int,
    candidates: Iterable[Candidate],
    topic_leaders: Mapping[int, int] | None = None,
) -> list[tuple[int, ...]]:
    """The replicas of each partition in `indexes`, the leader first.

    `topic_leaders` has the number of the topic's existing partitions that each broker leads.
    """
    brokers = {candidate.broker_id: candidate for candidate in candidates}
    active = tuple(sorted(b for b, candidate in brokers.items() if candidate.active))
    _check_factor(replication_factor, len(brokers), len(active))
    if len(brokers) == 1:
        return [active] * len(indexes)
    tracker = _LoadTracker(brokers, active, len(indexes), replication_factor, topic_leaders or {})
    ring = broker_ring(tuple(sorted(brokers)))
    return [tracker.place(ring.walk(f"{topic} {index}")) for index in indexes]


def _check_factor(replication_factor: int, known: int, active: int) -> None:
    if replication_factor < 1:
        problem = "it must be at least 1"
    elif active == 0:
        problem = (
            "all registered brokers are fenced, shutting down or have only cordoned log directories"
        )
    elif replication_factor > known:
        problem = (
            f"only {known} registered broker(s) can host new replicas; start more, uncordon log"
            " directories, or lower the replication factor"
        )
    else:
        return
    raise Rejected(
        ErrorCode.INVALID_REPLICATION_FACTOR,
        f"A replication factor of {replication_factor} is not possible: {problem}.",
    )


class _LoadTracker:
    """The load of each broker while partitions are placed one after another."""

    def __init__(
        self,
        brokers: dict[int, Candidate],
        active: tuple[int, ...],
        count: int,
        replication_factor: int,
        topic_leaders: Mapping[int, int],
    ) -> None:
        self._brokers = brokers
        self._replication_factor = replication_factor
        self._topic_leaders = dict(topic_leaders)
        self._leaders = {b: candidate.leaders for b, candidate in brokers.items()}
        self._topic_followers = dict.fromkeys(brokers, 0)
        total = count + sum(topic_leaders.values())
        self._topic_leaders_max = -(-total // len(active))
        self._leaders_max = (count + sum(self._leaders.values())) / len(active) * LEADER_SLACK
        self._replicas = {b: candidate.replicas for b, candidate in brokers.items()}
        held = count * replication_factor + sum(self._replicas.values())
        self._replicas_max = held / len(brokers) * REPLICA_SLACK
        #: Per broker and placed partition.
        self._followers_share = (replication_factor - 1) / len(brokers) * FOLLOWER_SLACK
        self._placed = 0

    def place(self, walk: list[int]) -> tuple[int, ...]:
        leader = min(
            (b for b in walk if self._brokers[b].active),
            key=lambda b: (
                self._topic_leaders.get(b, 0) >= self._topic_leaders_max,
                self._leaders[b] + 1 > self._leaders_max,
            ),
        )
        self._topic_leaders[leader] = self._topic_leaders.get(leader, 0) + 1
        self._leaders[leader] += 1
        self._placed += 1
        followers_max = self._placed * self._followers_share + 1
        # The search for followers starts at the leader, so that its neighbors share its load.
        start = walk.index(leader)
        walk = walk[start:] + walk[:start]
        replicas = [leader]
        racks: dict[str | None, int] = {self._brokers[leader].rack: 1}
        while len(replicas) < self._replication_factor:
            follower = min(
                (b for b in walk if b not in replicas),
                key=lambda b: (
                    not self._brokers[b].active,
                    racks.get(self._brokers[b].rack, 0) if self._has_rack(b) else 0,
                    self._topic_followers[b] >= followers_max,
                    self._replicas[b] + 1 > self._replicas_max,
                ),
            )
            replicas.append(follower)
            self._topic_followers[follower] += 1
            rack = self._brokers[follower].rack
            racks[rack] = racks.get(rack, 0) + 1
        for broker_id in replicas:
            self._replicas[broker_id] += 1
        return tuple(replicas)

    def _has_rack(self, broker_id: int) -> bool:
        return self._brokers[broker_id].rack is not None
