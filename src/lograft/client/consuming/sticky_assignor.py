"""An even assignment that moves as little as possible.

Members keep what they had; what nobody has goes to who has least; then partitions go one by one
from those who have most to those who could have them and have at least two less. Each of these
moves makes the assignment more even, so it ends, and evenness asks for every one of them.

Where members and replicas say in which racks they are, partitions come near their readers as far as
that costs no evenness: by moves to one who has one less, and by exchanges of two or three. So racks
count more than who had what, as in Java's assignors (KIP-881). Each step brings more partitions
near, or makes the assignment more even: this ends, too, and given the result again it moves
nothing.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from lograft.client.consuming.range_assignor import Racks
from lograft.client.types import TopicPartition


class Claim(NamedTuple):
    """What a member wants, and had."""

    member_id: str
    topics: frozenset[str]
    owned: frozenset[TopicPartition]
    generation: int
    #: None: everything is equally near.
    rack: str | None = None


def balanced(
    partitions: Mapping[str, int], claims: Sequence[Claim], racks: Racks
) -> dict[str, list[TopicPartition]]:
    """Of claims in order: who comes first gets what is left over."""
    table = _Table(partitions, claims, racks)
    table.place_the_rest()
    table.even_out()
    while table.draw_near():
        table.even_out()
    return {claim.member_id: sorted(table.has[claim.member_id]) for claim in claims}


class _Table:
    def __init__(
        self, partitions: Mapping[str, int], claims: Sequence[Claim], racks: Racks
    ) -> None:
        self._claims = claims
        self._partitions = partitions
        self._racks = racks
        self._place = {claim.member_id: index for index, claim in enumerate(claims)}
        #: Members that read each topic.
        self._readers = {
            topic: [claim.member_id for claim in claims if topic in claim.topics]
            for topic in partitions
        }
        self.has: dict[str, set[TopicPartition]] = {claim.member_id: set() for claim in claims}
        for one, owner in self._owners().items():
            self.has[owner].add(one)

    def _owners(self) -> dict[TopicPartition, str]:
        """Who may keep what. Of two that claim a partition the one of the later generation is
        right; if neither is, nobody is."""
        best: dict[TopicPartition, tuple[int, str | None]] = {}
        for claim in self._claims:
            for one in claim.owned:
                if one.topic not in claim.topics or not self._exists(one):
                    continue
                generation, _ = best.get(one, (claim.generation - 1, None))
                if claim.generation > generation:
                    best[one] = claim.generation, claim.member_id
                elif claim.generation == generation:
                    best[one] = claim.generation, None
        return {one: owner for one, (_, owner) in best.items() if owner is not None}

    def _exists(self, one: TopicPartition) -> bool:
        return 0 <= one.partition < self._partitions.get(one.topic, 0)

    def place_the_rest(self) -> None:
        """Those that few can read first: the others can go anywhere."""
        taken = set().union(*self.has.values()) if self.has else set()
        rest = [one for one in self._all() if one not in taken]
        rest.sort(key=lambda one: (len(self._readers[one.topic]), one))
        for one in rest:
            readers = self._readers[one.topic]
            if readers:
                least = min(len(self.has[reader]) for reader in readers)
                idle = [reader for reader in readers if len(self.has[reader]) == least]
                near = [reader for reader in idle if self._is_near(reader, one)]
                self.has[(near or idle)[0]].add(one)

    def even_out(self) -> None:
        while True:
            move = self._best_move()
            if move is None:
                return
            self._move(*move)

    def _best_move(self) -> tuple[TopicPartition, str, str] | None:
        """From the one who has most, of what somebody can take who has two less."""
        for giver in sorted(self.has, key=self._burden, reverse=True):
            least = len(self.has[giver]) - 2
            if least < 0:
                return None
            topics = {one.topic for one in self.has[giver]}
            takers = {
                taker
                for topic in topics
                for taker in self._readers[topic]
                if len(self.has[taker]) <= least
            }
            if takers:
                taker = min(takers, key=self._burden)
                readable = self._claim(taker).topics
                movable = [one for one in self.has[giver] if one.topic in readable]
                return (
                    max(movable, key=lambda one: (self._gain(one, giver, taker), one)),
                    giver,
                    taker,
                )
        return None

    def draw_near(self) -> bool:
        """Whether partitions came nearer to their readers; nobody has more than anybody had."""
        has_moved = False
        #: What is in vain for one partition is so for all that are placed like it.
        in_vain: set[tuple[str, str, frozenset[str]]] = set()
        for claim in self._claims:
            giver = claim.member_id
            for one in sorted(self.has[giver]):
                if self._is_near(giver, one):
                    continue
                kind = giver, one.topic, self._racks.get(one, frozenset())
                if kind in in_vain:
                    continue
                if self._bring_near(one, giver):
                    has_moved = True
                else:
                    in_vain.add(kind)
        return has_moved

    def _bring_near(self, one: TopicPartition, giver: str) -> bool:
        takers = [each for each in self._readers[one.topic] if self._is_near(each, one)]
        for taker in sorted(takers, key=self._burden):
            count = len(self.has[taker])
            if count < len(self.has[giver]):
                self._move(one, giver, taker)
                return True
            # Something has to come back: from the taker, or from one who has more than it.
            richer = [each for each in self.has if len(self.has[each]) > count and each != giver]
            for source in (taker, *richer):
                back = self._spared(source, giver)
                if back is not None:
                    self._move(one, giver, taker)
                    self._move(back, source, giver)
                    return True
        return False

    def _spared(self, giver: str, taker: str) -> TopicPartition | None:
        """What can go from the one to the other without getting farther from its reader; rather
        what the giver has not had before."""
        readable, had = self._claim(taker).topics, self._claim(giver).owned
        found = [
            (-gain, one in had, one)
            for one in self.has[giver]
            if one.topic in readable and (gain := self._gain(one, giver, taker)) >= 0
        ]
        return min(found)[-1] if found else None

    def _move(self, one: TopicPartition, giver: str, taker: str) -> None:
        self.has[giver].discard(one)
        self.has[taker].add(one)

    def _is_near(self, member_id: str, one: TopicPartition) -> bool:
        rack = self._claim(member_id).rack
        return rack is None or rack in self._racks.get(one, ())

    def _gain(self, one: TopicPartition, giver: str, taker: str) -> int:
        return self._is_near(taker, one) - self._is_near(giver, one)

    def _claim(self, member_id: str) -> Claim:
        return self._claims[self._place[member_id]]

    def _all(self) -> Iterator[TopicPartition]:
        for topic in sorted(self._partitions):
            for index in range(self._partitions[topic]):
                yield TopicPartition(topic, index)

    def _burden(self, member_id: str) -> tuple[int, int]:
        return len(self.has[member_id]), self._place[member_id]
