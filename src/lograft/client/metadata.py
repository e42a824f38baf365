"""A client's copy of the cluster metadata: brokers, topics, partition leaders. Sends no requests.

Brokers may return stale metadata, so a partition's leader epoch never goes back, unless the topic
was deleted and created again (its id changed).
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Final
from uuid import UUID

from lograft.client.network import Broker
from lograft.client.types import PartitionInfo
from lograft.model.errors import ErrorCode
from lograft.model.seams import Address
from lograft.model.types import NO_EPOCH, NO_NODE, ZERO_UUID
from lograft.wire.messages.metadata import (
    MetadataResponse,
    MetadataResponsePartition,
    MetadataResponseTopic,
)


@dataclass(frozen=True, slots=True)
class Partition:
    index: int
    #: NO_NODE while it has no leader.
    leader: int
    #: NO_EPOCH if the broker is too old to return it.
    leader_epoch: int
    replicas: tuple[int, ...] = ()
    isr: tuple[int, ...] = ()
    offline: tuple[int, ...] = ()

    def info(self) -> PartitionInfo:
        """Returns the partition as the public API shows it."""
        return PartitionInfo(self.index, self.leader, self.replicas, self.isr, self.offline)


@dataclass(frozen=True, slots=True)
class Topic:
    name: str
    #: ZERO_UUID if the broker is too old to return it.
    id: UUID
    is_internal: bool
    #: All of them, by index.
    partitions: tuple[Partition, ...]

    def partition(self, index: int) -> Partition | None:
        return self.partitions[index] if 0 <= index < len(self.partitions) else None


#: Errors of a topic in a Metadata response that may be over with the next one.
_TRANSIENT: Final = frozenset(
    (ErrorCode.LEADER_NOT_AVAILABLE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.NONE)
)


class MetadataCache:
    def __init__(self) -> None:
        self.brokers: dict[int, Broker] = {}
        self.cluster_id: str | None = None
        self.controller_id: int = NO_NODE
        self._topics: dict[str, Topic] = {}
        self._names: dict[UUID, str] = {}
        #: Error codes of topics, from the last response that contains the topic.
        self._errors: dict[str, int] = {}

    @property
    def topics(self) -> Mapping[str, Topic]:
        return self._topics

    def topic(self, name: str) -> Topic | None:
        return self._topics.get(name)

    def topic_by_id(self, topic_id: UUID) -> Topic | None:
        name = self._names.get(topic_id)
        return None if name is None else self._topics[name]

    def error_of(self, name: str) -> int:
        return self._errors.get(name, 0)

    def partition(self, name: str, index: int) -> Partition | None:
        topic = self._topics.get(name)
        return None if topic is None else topic.partition(index)

    def update(self, response: MetadataResponse, *, covers_all: bool) -> bool:
        """Applies a response; `covers_all`: removes topics that it does not contain. Returns False
        and changes nothing if the broker does not know any brokers yet."""
        if not response.brokers:
            return False
        self.brokers = {
            broker.node_id: Broker(broker.node_id, Address(broker.host, broker.port), broker.rack)
            for broker in response.brokers
        }
        self.cluster_id = response.cluster_id or self.cluster_id
        self.controller_id = response.controller_id
        if covers_all:
            existing = {topic.name for topic in response.topics}
            self.forget([name for name in self._topics if name not in existing])
            self._errors.clear()
        for topic in response.topics:
            if topic.name is not None:
                self._update_topic(topic.name, topic)
        return True

    def forget(self, names: Iterable[str]) -> None:
        for name in names:
            self._errors.pop(name, None)
            topic = self._topics.pop(name, None)
            if topic is not None and self._names.get(topic.id) == name:
                del self._names[topic.id]

    def update_leader(self, name: str, index: int, leader: int, epoch: int) -> bool:
        """Applies the leader from another response than Metadata (KIP-951). Returns False if it is
        not newer."""
        topic = self._topics.get(name)
        known = None if topic is None else topic.partition(index)
        if topic is None or known is None or epoch <= known.leader_epoch:
            return False
        partitions = list(topic.partitions)
        partitions[index] = replace(known, leader=leader, leader_epoch=epoch)
        self._topics[name] = Topic(topic.name, topic.id, topic.is_internal, tuple(partitions))
        return True

    def _update_topic(self, name: str, received: MetadataResponseTopic) -> None:
        if received.error_code:
            self._errors[name] = received.error_code
            # While leaders are being elected the topic still exists.
            if received.error_code != ErrorCode.LEADER_NOT_AVAILABLE:
                self.forget([name])
                self._errors[name] = received.error_code
            return
        self._errors.pop(name, None)
        old = self._topics.get(name)
        if old is not None and old.id != received.topic_id:
            if self._names.get(old.id) == name:
                del self._names[old.id]
            old = None
        partitions = sorted(received.partitions, key=lambda partition: partition.partition_index)
        self._topics[name] = Topic(
            name,
            received.topic_id,
            received.is_internal,
            tuple(_newer_partition(old, partition) for partition in partitions),
        )
        if received.topic_id != ZERO_UUID:
            self._names[received.topic_id] = name


def is_transient(code: int) -> bool:
    """Whether an error of a topic may be over with the next Metadata response."""
    return code in _TRANSIENT


def _newer_partition(old: Topic | None, received: MetadataResponsePartition) -> Partition:
    known = None if old is None else old.partition(received.partition_index)
    if known is not None and NO_EPOCH != received.leader_epoch < known.leader_epoch:
        return known
    return Partition(
        received.partition_index,
        received.leader_id,
        received.leader_epoch,
        tuple(received.replica_nodes),
        tuple(received.isr_nodes),
        tuple(received.offline_replicas),
    )
