"""Which partition a record goes to.

With a key: murmur2 of its bytes, as in Java, so that both kinds of clients agree. Without one a
partition is kept until it has got a batch's worth of bytes (KIP-794), and then another is drawn:
adaptively, those whose queues are shorter come up more often.
"""

from collections.abc import Callable, Sequence
from functools import lru_cache
from operator import index
from typing import Any, Final, NamedTuple, Protocol, TypeAlias, cast

from lograft.client.cluster_view import ClusterView
from lograft.client.errors import WrongUse
from lograft.model.seams import Randomness

MURMUR2_SEED: Final = 0x9747B28C
MURMUR2_M: Final = 0x5BD1E995
_MASK: Final = 0xFFFF_FFFF
#: Keys come again; hashing one in Python costs more than remembering it.
_KEYS_REMEMBERED: Final = 16_384


class Partitioner(Protocol):
    """A program's own way to choose the partition of every record for which it names none.

    A partitioner that has `on_new_batch(topic, cluster, previous_partition)`, too, is told when a
    record would open a batch in the partition that it chose, and is then asked again. A function of
    the topic, the serialized key and the number of partitions will do as well.

        class ByCustomer:
            def partition(self, topic, key, key_bytes, value, value_bytes, cluster):
                return hash(value["customer"]) % cluster.partition_count(topic)

        def by_first_byte(topic, key, partition_count):
            return key[0] % partition_count if key else 0

        Producer(bootstrap_servers="localhost:9092", partitioner_class=ByCustomer())
        Producer(bootstrap_servers="localhost:9092", partitioner_class=by_first_byte)
    """

    def partition(
        self,
        topic: str,
        key: Any,
        key_bytes: bytes | None,
        value: Any,
        value_bytes: bytes | None,
        cluster: ClusterView,
        /,
    ) -> int: ...


#: From the topic, the serialized key and the number of partitions.
PartitionFunction: TypeAlias = Callable[[str, bytes | None, int], int]


class Chooser:
    """Asks the partitioner of the program."""

    def __init__(self, partitioner: Partitioner | PartitionFunction, cluster: ClusterView) -> None:
        method = getattr(partitioner, "partition", None)
        self._method: Callable[..., Any] | None = method if callable(method) else None
        self._function = cast(PartitionFunction, partitioner)
        self._on_new_batch: Callable[[str, ClusterView, int], object] | None = getattr(
            partitioner, "on_new_batch", None
        )
        self._cluster = cluster

    @property
    def minds_batches(self) -> bool:
        return self._on_new_batch is not None

    def choose(self, record: "Unplaced", partition_count: int) -> int:
        """Raises WrongUse for a partition that the topic does not have: such a record could never
        be sent."""
        topic, key, key_bytes, value, value_bytes = record
        chosen: Any
        if self._method is None:
            chosen = self._function(topic, key_bytes, partition_count)
        else:
            chosen = self._method(topic, key, key_bytes, value, value_bytes, self._cluster)
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

    def choose_again(self, record: "Unplaced", partition_count: int, previous: int) -> int:
        """The record would open a batch in `previous`."""
        if self._on_new_batch is None:
            return previous
        self._on_new_batch(record.topic, self._cluster, previous)
        return self.choose(record, partition_count)


class Unplaced(NamedTuple):
    """A record without a partition."""

    topic: str
    key: Any
    key_bytes: bytes | None
    value: Any
    value_bytes: bytes | None


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
