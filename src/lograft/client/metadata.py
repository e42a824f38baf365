"""What a client knows of the cluster: brokers, topics, leaders. Values only; others do the asking.

Metadata may come from brokers that lag behind, so it only ever goes forward: of two leaders of a
partition the one with the later epoch is right, unless the topic is another one under the same name
(its id changed).
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
    #: NO_NODE while there is none.
    leader: int
    #: NO_EPOCH where the broker is too old to tell.
    leader_epoch: int
    replicas: tuple[int, ...] = ()
    isr: tuple[int, ...] = ()
    offline: tuple[int, ...] = ()

    def info(self) -> PartitionInfo:
        """As programs see it."""
        return PartitionInfo(self.index, self.leader, self.replicas, self.isr, self.offline)


@dataclass(frozen=True, slots=True)
class Topic:
    name: str
    #: ZERO_UUID where the broker is too old to tell.
    id: UUID
    is_internal: bool
    #: By index, complete.
    partitions: tuple[Partition, ...]

    def partition(self, index: int) -> Partition | None:
        return self.partitions[index] if 0 <= index < len(self.partitions) else None


#: Errors of a topic in a metadata answer that another question may not bring.
_PASSING: Final = frozenset(
    (ErrorCode.LEADER_NOT_AVAILABLE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.NONE)
)


class MetadataCache:
    def __init__(self) -> None:
        self.brokers: dict[int, Broker] = {}
        self.cluster_id: str | None = None
        self.controller_id: int = NO_NODE
        self._topics: dict[str, Topic] = {}
        self._names: dict[UUID, str] = {}
        #: Error codes of the topics that the last answer about them did not describe.
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

    def learn(self, answer: MetadataResponse, *, covers_all: bool) -> bool:
        """Takes an answer in; `covers_all`: topics that are not in it do not exist. False: the
        answer is of no use (a broker that knows no brokers yet), and nothing has changed."""
        if not answer.brokers:
            return False
        self.brokers = {
            broker.node_id: Broker(broker.node_id, Address(broker.host, broker.port), broker.rack)
            for broker in answer.brokers
        }
        self.cluster_id = answer.cluster_id or self.cluster_id
        self.controller_id = answer.controller_id
        if covers_all:
            named = {topic.name for topic in answer.topics}
            self.forget([name for name in self._topics if name not in named])
            self._errors.clear()
        for topic in answer.topics:
            if topic.name is not None:
                self._learn_topic(topic.name, topic)
        return True

    def forget(self, names: Iterable[str]) -> None:
        for name in names:
            self._errors.pop(name, None)
            gone = self._topics.pop(name, None)
            if gone is not None and self._names.get(gone.id) == name:
                del self._names[gone.id]

    def learn_leader(self, name: str, index: int, leader: int, epoch: int) -> bool:
        """A leader named in passing (KIP-951). False: no news."""
        topic = self._topics.get(name)
        known = None if topic is None else topic.partition(index)
        if topic is None or known is None or epoch <= known.leader_epoch:
            return False
        partitions = list(topic.partitions)
        partitions[index] = replace(known, leader=leader, leader_epoch=epoch)
        self._topics[name] = Topic(topic.name, topic.id, topic.is_internal, tuple(partitions))
        return True

    def _learn_topic(self, name: str, told: MetadataResponseTopic) -> None:
        if told.error_code:
            self._errors[name] = told.error_code
            # A topic whose leaders are being elected is still there.
            if told.error_code != ErrorCode.LEADER_NOT_AVAILABLE:
                self.forget([name])
                self._errors[name] = told.error_code
            return
        self._errors.pop(name, None)
        old = self._topics.get(name)
        if old is not None and old.id != told.topic_id:
            if self._names.get(old.id) == name:
                del self._names[old.id]
            old = None
        partitions = sorted(told.partitions, key=lambda one: one.partition_index)
        self._topics[name] = Topic(
            name,
            told.topic_id,
            told.is_internal,
            tuple(_newer(old, one) for one in partitions),
        )
        if told.topic_id != ZERO_UUID:
            self._names[told.topic_id] = name


def is_passing(code: int) -> bool:
    """Whether an error of a topic may be over at the next question."""
    return code in _PASSING


def _newer(old: Topic | None, told: MetadataResponsePartition) -> Partition:
    known = None if old is None else old.partition(told.partition_index)
    if known is not None and NO_EPOCH != told.leader_epoch < known.leader_epoch:
        return known
    return Partition(
        told.partition_index,
        told.leader_id,
        told.leader_epoch,
        tuple(told.replica_nodes),
        tuple(told.isr_nodes),
        tuple(told.offline_replicas),
    )
