"""The cluster metadata of a client, for partitioners, and for listeners that need the cluster
id."""

import logging
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, NamedTuple, Protocol

from lograft.client.metadata import MetadataCache
from lograft.client.types import BrokerInfo, PartitionInfo

LOGGER: Final = logging.getLogger(__name__)


class ClusterView:
    """The client's current metadata. Contains only topics that the client uses; see
    `Partitioner`.

        class NearestLeader:
            def partition(self, topic, key, key_bytes, value, value_bytes, cluster):
                print(cluster.cluster_id, sorted(cluster.brokers))
                return cluster.available_partitions(topic)[0].partition

        Producer(bootstrap_servers="localhost:9092", partitioner_class=NearestLeader())
    """

    __slots__ = ("_cache",)

    def __init__(self, cache: MetadataCache) -> None:
        self._cache = cache

    @property
    def cluster_id(self) -> str | None:
        return self._cache.cluster_id

    @property
    def brokers(self) -> Mapping[int, BrokerInfo]:
        return {
            broker.id: BrokerInfo(broker.id, broker.address.host, broker.address.port, broker.rack)
            for broker in self._cache.brokers.values()
        }

    def partition_count(self, topic: str) -> int:
        """Returns the number of partitions; 0 if the topic is not in the metadata."""
        known = self._cache.topic(topic)
        return 0 if known is None else len(known.partitions)

    def partitions(self, topic: str) -> tuple[PartitionInfo, ...]:
        known = self._cache.topic(topic)
        return () if known is None else tuple(partition.info() for partition in known.partitions)

    def available_partitions(self, topic: str) -> tuple[PartitionInfo, ...]:
        """Returns the partitions that have a leader."""
        return tuple(partition for partition in self.partitions(topic) if partition.leader >= 0)


class ClusterResource(NamedTuple):
    """The cluster to which a client belongs; see `ClusterResourceListener`.

    assert ClusterResource("4L6g3nShT-eMCtK--X86sw").cluster_id == "4L6g3nShT-eMCtK--X86sw"
    """

    #: None if the brokers are too old to return it.
    cluster_id: str | None


class ClusterResourceListener(Protocol):
    """If an interceptor, serializer, deserializer or partitioner has an `on_update` method, it is
    called after every metadata response. Exceptions are logged and otherwise ignored.

        class Tagging:
            cluster_id = None

            def on_update(self, cluster: ClusterResource) -> None:
                self.cluster_id = cluster.cluster_id

            def __call__(self, topic, value):
                return f"{self.cluster_id}: {value}".encode()

        Producer(bootstrap_servers="localhost:9092", value_serializer=Tagging())
    """

    def on_update(self, cluster: ClusterResource) -> None: ...


def cluster_notifier(candidates: Iterable[Any], cache: MetadataCache) -> Callable[[], None] | None:
    """Returns a function that calls `on_update` of each candidate that has it, once per object;
    None if no candidate has it."""
    listeners: list[ClusterResourceListener] = []
    for candidate in candidates:
        if callable(getattr(candidate, "on_update", None)) and candidate not in listeners:
            listeners.append(candidate)
    if not listeners:
        return None

    def notify() -> None:
        for listener in listeners:
            try:
                listener.on_update(ClusterResource(cache.cluster_id))
            except Exception:
                LOGGER.exception("%r failed in on_update", listener)

    return notify
