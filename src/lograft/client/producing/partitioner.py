"""Chooses the partition of a record.

With a key: by murmur2 of its bytes, like the Java client, so that both choose the same. Without a
key, the producer stays on a partition until it has sent batch.size bytes to it (KIP-794), then
draws another one; with adaptive partitioning, partitions with shorter queues are drawn more often.
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
#: Keys recur, and hashing one in Python costs more than a cache lookup.
_KEYS_CACHED: Final = 16_384


class Partitioner(Protocol):
    """Chooses the partition of records that are sent without one.

    If a partitioner also has `on_new_batch(topic, cluster, previous_partition)`, it is called when
    a record would open a batch in the chosen partition, and then `partition` is called again. A
    partitioner may also be a function of the topic, the serialized key and the number of
    partitions.

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


#: Called with the topic, the serialized key and the number of partitions.
PartitionFunction: TypeAlias = Callable[[str, bytes | None, int], int]


class Chooser:
    """Calls the application's partitioner."""

    def __init__(self, partitioner: Partitioner | PartitionFunction, cluster: ClusterView) -> None:
        method = getattr(partitioner, "partition", None)
        self._method: Callable[..., Any] | None = method if callable(method) else None
        self._function = cast(PartitionFunction, partitioner)
        self._on_new_batch: Callable[[str, ClusterView, int], object] | None = getattr(
            partitioner, "on_new_batch", None
        )
        self._cluster = cluster

    @property
    def handles_new_batches(self) -> bool:
        return self._on_new_batch is not None

    def choose(self, record: "UnassignedRecord", partition_count: int) -> int:
        """Returns the chosen partition. Raises WrongUse if the topic does not have it: the record
        could never be sent."""
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
                f" {partition_count} partitions, numbered from 0"
            )
        return number

    def choose_again(self, record: "UnassignedRecord", partition_count: int, previous: int) -> int:
        """Returns the partition of a record that would open a batch in `previous`."""
        if self._on_new_batch is None:
            return previous
        self._on_new_batch(record.topic, self._cluster, previous)
        return self.choose(record, partition_count)


class UnassignedRecord(NamedTuple):
    """A record whose partition is not chosen yet."""

    topic: str
    key: Any
    key_bytes: bytes | None
    value: Any
    value_bytes: bytes | None


@lru_cache(_KEYS_CACHED)
def murmur2(data: bytes) -> int:
    """Returns murmur2 with Kafka's seed, as an unsigned number of 31 bits."""
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


class StickyPartition:
    """The sticky partition for records of one topic without a key."""

    __slots__ = ("_bytes", "_randomness", "partition")

    def __init__(self, randomness: Randomness) -> None:
        self._randomness = randomness
        self._bytes = 0
        #: -1: not chosen yet.
        self.partition = -1

    def add(self, size: int, batch_size: int) -> None:
        """Counts bytes that were added to the partition."""
        self._bytes += size
        if self._bytes >= batch_size:
            self.reset()

    def reset(self) -> None:
        self._bytes = 0
        self.partition = -1

    def draw(self, available: Sequence[int], queue_sizes: Sequence[int] | None) -> int:
        """Draws one of the available partitions. `queue_sizes`: the number of batches in the queue
        of each; None: all are equally likely."""
        if queue_sizes is None or len(available) == 1:
            self.partition = available[self._randomness.below(len(available))]
            return self.partition
        longest = max(queue_sizes)
        weights = [longest + 1 - size for size in queue_sizes]
        at = self._randomness.below(sum(weights))
        for partition, weight in zip(available, weights, strict=True):
            at -= weight
            if at < 0:
                self.partition = partition
                break
        return self.partition
