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

from lograft.metadata.conditions import Conditions
from lograft.metadata.elections import PartitionChange
from lograft.metadata.image import MetadataImage
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
        conditions = Conditions(image, config)
        for move in islice(plan(image, image.brokers), MOVES_AT_ONCE):
            topic = image.topic(move.topic)
            assert topic is not None, move
            change = PartitionChange(conditions, topic, move.partition)
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
    sharing = _Sharing(list(holdings), racks)
    sharing.replace_strangers()
    sharing.even_out_replicas()
    sharing.even_out_leaders()
    return sharing.moves()


class _Sharing:
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
        self._walks = [ring.walk(f"{one.topic} {one.partition}") for one in holdings]
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

    def replace_strangers(self) -> None:
        for walk, replicas in zip(self._walks, self._now, strict=True):
            for place, stranger in enumerate(replicas):
                if stranger not in self._loads:
                    others = [b for b in replicas if b in self._loads]
                    taken = min(
                        (b for b in walk if b not in others),
                        key=lambda b: (-self._spread([*others, b]), self._loads[b]),
                    )
                    replicas[place] = taken
                    self._loads[taken] += 1

    def even_out_replicas(self) -> None:
        """Moves single replicas to brokers that have at least two fewer. First only brokers with
        more than the share give replicas away; then all brokers do, in case racks or existing
        replicas prevented the first moves."""
        share = sum(self._loads.values()) // max(1, len(self._brokers))
        for above in (share, 0):
            for _ in range(PASSES_MAX):
                moved = False
                for taker in sorted(self._brokers, key=self._loads.__getitem__):
                    if max(self._loads.values()) - self._loads[taker] >= 2:
                        moved |= self._give_to(taker, above=above)
                if not moved:
                    break

    def _give_to(self, taker: int, *, above: int) -> bool:
        """Partitions that are closest to the taker on the ring come first."""
        moved = False
        near = sorted(
            (walk.index(taker), number)
            for number, walk in enumerate(self._walks)
            if taker not in self._now[number]
        )
        for _, number in near:
            if max(self._loads.values()) - self._loads[taker] < 2:
                break
            replicas = self._now[number]
            giver = self._giver(replicas, taker, above=above)
            if giver is not None:
                replicas[replicas.index(giver)] = taker
                self._loads[giver] -= 1
                self._loads[taker] += 1
                moved = True
        return moved

    def _giver(self, replicas: list[int], taker: int, *, above: int) -> int | None:
        """The most loaded broker, a follower rather than the leader. The move must not reduce the
        number of racks."""
        best: tuple[int, int] | None = None
        giver = None
        before = self._spread(replicas)
        for place, broker_id in enumerate(replicas):
            load = self._loads[broker_id]
            if load <= above or load - self._loads[taker] < 2:
                continue
            rank = (load, place)
            if best is None or rank > best:
                after = [taker if one == broker_id else one for one in replicas]
                if self._spread(after) >= before:
                    best, giver = rank, broker_id
        return giver

    def _spread(self, replicas: list[int]) -> int:
        """The number of distinct racks; each broker without a rack counts as one."""
        named = {self._racks[b] for b in replicas if self._racks[b] is not None}
        return len(named) + sum(self._racks[b] is None for b in replicas)

    def even_out_leaders(self) -> None:
        """Moves leadership along chains of brokers with common partitions, from a broker that leads
        at least two partitions more than the last one of the chain."""
        led: dict[int, dict[int, None]] = {broker_id: {} for broker_id in self._brokers}
        for number, replicas in enumerate(self._now):
            if replicas:
                led[replicas[0]][number] = None
        done = False
        while not done:
            done = True
            for start in sorted(self._brokers, key=lambda b: -len(led[b])):
                chain = self._chain(start, led)
                if chain:
                    done = False
                    self._hand_over(chain, led)
                    break

    def _chain(self, start: int, led: dict[int, dict[int, None]]) -> list[tuple[int, int, int]]:
        """Steps (partition, from, to) to the nearest broker that leads two fewer; [] if none."""
        reached: dict[int, tuple[int, int]] = {start: (-1, -1)}
        queue = deque([start])
        while queue:
            here = queue.popleft()
            if len(led[start]) - len(led[here]) >= 2:
                steps: list[tuple[int, int, int]] = []
                while here != start:
                    number, source = reached[here]
                    steps.append((number, source, here))
                    here = source
                return steps
            for number in led[here]:
                for follower in self._now[number][1:]:
                    if follower not in reached:
                        reached[follower] = (number, here)
                        queue.append(follower)
                if len(reached) == len(self._brokers):
                    break
        return []

    def _hand_over(
        self, chain: list[tuple[int, int, int]], led: dict[int, dict[int, None]]
    ) -> None:
        for number, source, target in chain:
            replicas = self._now[number]
            place = replicas.index(target)
            replicas[0], replicas[place] = target, source
            del led[source][number]
            led[target][number] = None
