"""Plans which replicas to move so that the brokers share the load evenly, with close to the fewest
moves possible. A broker that joins takes its share and nothing else moves; the replicas of a broker
that is removed are spread over the others.

The plan has three steps. First, replicas on brokers that do not belong to the target set are
replaced. Then overloaded brokers give replicas to underloaded ones; the ring (`placement`) decides
which partitions move. Finally the order of replicas changes, without moving records, until the
leaders are even.
"""

from collections import deque
from collections.abc import Collection, Iterable
from itertools import islice
from typing import Final, NamedTuple

from lograft.metadata.elections import PartitionChange
from lograft.metadata.image import MetadataImage
from lograft.metadata.leadership_rules import LeadershipRules
from lograft.metadata.placement import broker_ring
from lograft.metadata.reassignment import start_reassignment, target_of
from lograft.metadata.types import ControllerResult
from lograft.model.errors import ErrorCode, Rejected
from lograft.model.settings.broker import BrokerConfig
from lograft.model.types import ReplicationMode
from lograft.wire.records.partition_change_record import PartitionChangeRecord

#: Fraction below the average load at which a broker triggers automatic rebalancing.
UNEVEN: Final = 0.05
#: Maximum number of partitions that automatic rebalancing moves at the same time.
MOVES_AT_ONCE: Final = 100
#: The plan is improved in passes until nothing changes, normally long before this limit.
PASSES_MAX: Final = 50


class Holding(NamedTuple):
    topic: str
    partition: int
    #: The first one is the preferred leader.
    replicas: tuple[int, ...]


class Move(NamedTuple):
    topic: str
    partition: int
    before: tuple[int, ...]
    after: tuple[int, ...]

    @property
    def copies(self) -> int:
        """The number of replicas that have to be copied."""
        return len([replica for replica in self.after if replica not in self.before])


def plan(
    image: MetadataImage, broker_ids: Collection[int], *, topics: Collection[str] | None = None
) -> list[Move]:
    """Plans for the whole cluster or some topics. Partitions that switch their replication mode are
    omitted."""
    holdings = [
        Holding(topic.name, index, target_of(state))
        for topic in image.topics.values()
        if topics is None or topic.name in topics
        for index, state in topic.partitions.items()
        if state.mode in (ReplicationMode.ISR, ReplicationMode.RAFT)
    ]
    racks = {
        broker_id: broker.rack
        for broker_id in broker_ids
        if (broker := image.brokers.get(broker_id)) is not None
    }
    if unknown := sorted(set(broker_ids) - set(racks)):
        raise Rejected(
            ErrorCode.BROKER_ID_NOT_REGISTERED, f"Broker {unknown[0]} is not registered."
        )
    return plan_moves(holdings, racks)


def rebalance(image: MetadataImage, *, config: BrokerConfig) -> ControllerResult[bool]:
    """Starts the next moves if the load is uneven enough to be worth copying. Does nothing while a
    broker is offline, because it may return with all its replicas, or while earlier moves are in
    progress. The reply is always False: no immediate continuation is needed."""
    records: list[PartitionChangeRecord] = []
    if not image.reassigning and is_uneven(image):
        leadership_rules = LeadershipRules(image, config)
        for move in islice(plan(image, image.brokers), MOVES_AT_ONCE):
            topic = image.topic(move.topic)
            assert topic is not None, move
            change = PartitionChange(leadership_rules, topic, move.partition)
            record = start_reassignment(change, move.after)
            if record is not None:
                records.append(record)
    return ControllerResult(tuple(records), False)


def is_uneven(image: MetadataImage) -> bool:
    """Whether a broker has far less than its share of replicas; False while one is offline."""
    if not image.brokers or not all(
        broker.is_active and broker.takes_replicas for broker in image.brokers.values()
    ):
        return False
    held = [len(image.held_by.get(broker_id, ())) for broker_id in image.brokers]
    return min(held) + 1 < (1 - UNEVEN) * sum(held) / len(held)


def plan_moves(holdings: Iterable[Holding], racks: dict[int, str | None]) -> list[Move]:
    """`racks` has the brokers that should host all replicas, with their racks."""
    balancer = _Balancer(list(holdings), racks)
    balancer.replace_outside_brokers()
    balancer.balance_replicas()
    balancer.balance_leader_counts()
    return balancer.moves()


class _Balancer:
    def __init__(self, holdings: list[Holding], racks: dict[int, str | None]) -> None:
        self._holdings = holdings
        self._racks = racks
        self._brokers = sorted(racks)
        most = max((len(holding.replicas) for holding in holdings), default=0)
        if most > len(racks):
            raise Rejected(
                ErrorCode.INVALID_REPLICATION_FACTOR,
                f"Partitions with {most} replicas require {most} brokers, but there are only"
                f" {len(racks)}.",
            )
        ring = broker_ring(tuple(self._brokers))
        self._walks = [ring.walk(f"{holding.topic} {holding.partition}") for holding in holdings]
        self._now = [list(holding.replicas) for holding in holdings]
        self._loads = dict.fromkeys(self._brokers, 0)
        for replicas in self._now:
            for broker_id in replicas:
                if broker_id in self._loads:
                    self._loads[broker_id] += 1

    def moves(self) -> list[Move]:
        return [
            Move(holding.topic, holding.partition, holding.replicas, tuple(now))
            for holding, now in zip(self._holdings, self._now, strict=True)
            if tuple(now) != holding.replicas
        ]

    def replace_outside_brokers(self) -> None:
        for walk, replicas in zip(self._walks, self._now, strict=True):
            for position, outsider in enumerate(replicas):
                if outsider not in self._loads:
                    others = [b for b in replicas if b in self._loads]
                    replacement = min(
                        (b for b in walk if b not in others),
                        key=lambda b: (-self._spread([*others, b]), self._loads[b]),
                    )
                    replicas[position] = replacement
                    self._loads[replacement] += 1

    def balance_replicas(self) -> None:
        """Moves single replicas to brokers that have at least two fewer. First only brokers with
        more than the share give replicas away; then all brokers do, in case racks or existing
        replicas prevented the first moves."""
        share = sum(self._loads.values()) // max(1, len(self._brokers))
        for above in (share, 0):
            for _ in range(PASSES_MAX):
                moved = False
                for receiver in sorted(self._brokers, key=self._loads.__getitem__):
                    if max(self._loads.values()) - self._loads[receiver] >= 2:
                        moved |= self._move_to(receiver, above=above)
                if not moved:
                    break

    def _move_to(self, receiver: int, *, above: int) -> bool:
        """Partitions that are closest to the taker on the ring come first."""
        moved = False
        nearest = sorted(
            (walk.index(receiver), number)
            for number, walk in enumerate(self._walks)
            if receiver not in self._now[number]
        )
        for _, number in nearest:
            if max(self._loads.values()) - self._loads[receiver] < 2:
                break
            replicas = self._now[number]
            donor = self._find_donor(replicas, receiver, above=above)
            if donor is not None:
                replicas[replicas.index(donor)] = receiver
                self._loads[donor] -= 1
                self._loads[receiver] += 1
                moved = True
        return moved

    def _find_donor(self, replicas: list[int], receiver: int, *, above: int) -> int | None:
        """The most loaded broker, a follower rather than the leader. The move must not reduce the
        number of racks."""
        best: tuple[int, int] | None = None
        donor = None
        before = self._spread(replicas)
        for position, broker_id in enumerate(replicas):
            load = self._loads[broker_id]
            if load <= above or load - self._loads[receiver] < 2:
                continue
            rank = (load, position)
            if best is None or rank > best:
                after = [receiver if replica == broker_id else replica for replica in replicas]
                if self._spread(after) >= before:
                    best, donor = rank, broker_id
        return donor

    def _spread(self, replicas: list[int]) -> int:
        """The number of distinct racks; each broker without a rack counts as one."""
        named = {self._racks[b] for b in replicas if self._racks[b] is not None}
        return len(named) + sum(self._racks[b] is None for b in replicas)

    def balance_leader_counts(self) -> None:
        """Moves leadership along chains of brokers with common partitions, from a broker that leads
        at least two partitions more than the last one of the chain."""
        led_partitions: dict[int, dict[int, None]] = {broker_id: {} for broker_id in self._brokers}
        for number, replicas in enumerate(self._now):
            if replicas:
                led_partitions[replicas[0]][number] = None
        done = False
        while not done:
            done = True
            for start in sorted(self._brokers, key=lambda b: -len(led_partitions[b])):
                chain = self._chain(start, led_partitions)
                if chain:
                    done = False
                    self._transfer_leadership(chain, led_partitions)
                    break

    def _chain(
        self, start: int, led_partitions: dict[int, dict[int, None]]
    ) -> list[tuple[int, int, int]]:
        """Steps (partition, from, to) to the nearest broker that leads two fewer; [] if none."""
        reached: dict[int, tuple[int, int]] = {start: (-1, -1)}
        queue = deque([start])
        while queue:
            here = queue.popleft()
            if len(led_partitions[start]) - len(led_partitions[here]) >= 2:
                steps: list[tuple[int, int, int]] = []
                while here != start:
                    number, source = reached[here]
                    steps.append((number, source, here))
                    here = source
                return steps
            for number in led_partitions[here]:
                for follower in self._now[number][1:]:
                    if follower not in reached:
                        reached[follower] = (number, here)
                        queue.append(follower)
                if len(reached) == len(self._brokers):
                    break
        return []

    def _transfer_leadership(
        self, chain: list[tuple[int, int, int]], led_partitions: dict[int, dict[int, None]]
    ) -> None:
        for number, source, target in chain:
            replicas = self._now[number]
            position = replicas.index(target)
            replicas[0], replicas[position] = target, source
            del led_partitions[source][number]
            led_partitions[target][number] = None
