"""Which partition a record goes to.

With a key: murmur2 of its bytes, as in Java, so that both kinds of clients agree. Without one a
partition is kept until it has got a batch's worth of bytes (KIP-794), and then another is drawn:
adaptively, those whose queues are shorter come up more often.
"""

from collections.abc import Sequence
from functools import lru_cache
from operator import index
from typing import Final, Protocol

from lograft.client.errors import WrongUse
from lograft.model.seams import Randomness

MURMUR2_SEED: Final = 0x9747B28C
MURMUR2_M: Final = 0x5BD1E995
_MASK: Final = 0xFFFF_FFFF
#: Keys come again; hashing one in Python costs more than remembering it.
_KEYS_REMEMBERED: Final = 16_384


class Partitioner(Protocol):
    """A user's own rule, asked for every record whose partition the program does not name.

    def first_byte(topic: str, key: bytes | None, partition_count: int) -> int:
        return key[0] % partition_count if key else 0

    Producer(bootstrap_servers="localhost:9092", partitioner_class=first_byte)
    """

    def __call__(self, topic: str, key: bytes | None, partition_count: int) -> int: ...


def chosen_by(rule: Partitioner, topic: str, key: bytes | None, partition_count: int) -> int:
    """What the rule says, if the topic has it; nobody would ever take the record elsewhere."""
    chosen = rule(topic, key, partition_count)
    try:
        number = index(chosen)
    except TypeError:
        number = -1
    if not 0 <= number < partition_count:
        raise WrongUse(
            f"partitioner_class chose partition {chosen!r} of topic {topic!r}, which has"
            f" {partition_count}, numbered from 0"
        )
    return number


@lru_cache(_KEYS_REMEMBERED)
def murmur2(data: bytes) -> int:
    """Murmur2 with Kafka's seed, as an unsigned number of 31 bits."""
    length = len(data)
    h = MURMUR2_SEED ^ length
    whole = length & ~3
    for at in range(0, whole, 4):
        k = int.from_bytes(data[at : at + 4], "little") * MURMUR2_M & _MASK
        k = (k ^ k >> 24) * MURMUR2_M & _MASK
        h = (h * MURMUR2_M & _MASK) ^ k
    rest = length - whole
    if rest:
        h = (h ^ int.from_bytes(data[whole:], "little")) * MURMUR2_M & _MASK
    h = (h ^ h >> 13) * MURMUR2_M & _MASK
    return (h ^ h >> 15) & 0x7FFF_FFFF


class StickyChoice:
    """For the records of one topic that have no key."""

    __slots__ = ("_bytes", "_randomness", "partition")

    def __init__(self, randomness: Randomness) -> None:
        self._randomness = randomness
        self._bytes = 0
        #: -1: to be drawn.
        self.partition = -1

    def add(self, size: int, batch_size: int) -> None:
        """So many bytes went to the partition."""
        self._bytes += size
        if self._bytes >= batch_size:
            self.leave()

    def leave(self) -> None:
        self._bytes = 0
        self.partition = -1

    def draw(self, available: Sequence[int], queued: Sequence[int] | None) -> int:
        """One of the available partitions. `queued`: how many batches wait for each; None: all are
        alike."""
        if queued is None or len(available) == 1:
            self.partition = available[self._randomness.below(len(available))]
            return self.partition
        longest = max(queued)
        weights = [longest + 1 - one for one in queued]
        at = self._randomness.below(sum(weights))
        for partition, weight in zip(available, weights, strict=True):
            at -= weight
            if at < 0:
                self.partition = partition
                break
        return self.partition
