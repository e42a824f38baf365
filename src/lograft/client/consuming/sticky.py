"""An even assignment that moves as little as possible.

Members keep what they had; what nobody has goes to who has least; then partitions go one by one
from those who have most to those who could have them and have at least two less. Each of these
moves makes the assignment more even, so it ends, and evenness asks for every one of them.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from lograft.client.types import TopicPartition


class Claim(NamedTuple):
    """What a member wants, and had."""

    member_id: str
    topics: frozenset[str]
    owned: frozenset[TopicPartition]
    generation: int


def balanced(
    partitions: Mapping[str, int], claims: Sequence[Claim]
) -> dict[str, list[TopicPartition]]:
    """Of claims in order: who comes first gets what is left over."""
    table = _Table(partitions, claims)
    table.place_the_rest()
    table.even_out()
    return {claim.member_id: sorted(table.has[claim.member_id]) for claim in claims}


class _Table:
    def __init__(self, partitions: Mapping[str, int], claims: Sequence[Claim]) -> None:
        self._claims = claims
        self._partitions = partitions
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
                self.has[min(readers, key=self._burden)].add(one)

    def even_out(self) -> None:
        while True:
            move = self._best_move()
            if move is None:
                return
            one, giver, taker = move
            self.has[giver].discard(one)
            self.has[taker].add(one)

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
                readable = self._claims[self._place[taker]].topics
                return max(one for one in self.has[giver] if one.topic in readable), giver, taker
        return None

    def _all(self) -> Iterator[TopicPartition]:
        for topic in sorted(self._partitions):
            for index in range(self._partitions[topic]):
                yield TopicPartition(topic, index)

    def _burden(self, member_id: str) -> tuple[int, int]:
        return len(self.has[member_id]), self._place[member_id]
