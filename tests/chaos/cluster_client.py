"""Raw clients of a cluster: they ask whoever leads, and never try twice.

After a refusal or a broken connection the leader is looked up again with the next call; whether to
call again is up to the caller, who writes the history.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Final

from lograft.model.errors import ErrorCode
from lograft.model.types import TopicPartition
from lograft.wire.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
)
from tests.chaos.raw_client import ErrorResponse, Fetched, RawClient
from tests.chaos.recording import PASSING, Asking, Run

#: What a cluster may say for a while when a node went or came.
PASSING_IN_A_CLUSTER: Final = PASSING | {
    ErrorCode.FENCED_LEADER_EPOCH,
    ErrorCode.UNKNOWN_LEADER_EPOCH,
    ErrorCode.NOT_ENOUGH_REPLICAS,
    ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
    ErrorCode.OFFSET_NOT_AVAILABLE,
    ErrorCode.REPLICA_NOT_AVAILABLE,
    ErrorCode.BROKER_NOT_AVAILABLE,
    ErrorCode.NOT_CONTROLLER,
    # A broker that has just started may not have heard of the topic yet.
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.KAFKA_STORAGE_ERROR,
}


class NoLeader(OSError):
    """Nobody that answers knows a leader that can be reached."""


class ClusterClient:
    def __init__(self, addresses: Sequence[tuple[str, int]], *, name: str) -> None:
        self._clients = {
            address: RawClient(address[1], name=name, host=address[0]) for address in addresses
        }
        self._leaders: dict[TopicPartition, tuple[str, int]] = {}
        #: The one that answered last is asked first.
        self._order = list(addresses)

    def close(self) -> None:
        for client in self._clients.values():
            client.close()

    def producer_id(self) -> tuple[int, int]:
        return self._anyone().producer_id()

    def produce(self, tp: TopicPartition, batch: bytes) -> int:
        with self._leader(tp) as leader:
            return leader.produce(tp, batch)

    def fetch(
        self, tp: TopicPartition, offset: int, *, wait_ms: int = 500, bytes_max: int = 0
    ) -> Fetched:
        with self._leader(tp) as leader:
            return leader.fetch(tp, offset, wait_ms=wait_ms, bytes_max=bytes_max)

    def offset_at(self, tp: TopicPartition, timestamp: int) -> int:
        with self._leader(tp) as leader:
            return leader.offset_at(tp, timestamp)

    def leader_of(self, tp: TopicPartition) -> tuple[str, int]:
        answer = self._metadata(tp.topic)
        leaders = {
            partition.partition_index: partition.leader_id
            for topic in answer.topics
            for partition in topic.partitions
        }
        found = leaders.get(tp.partition, -1)
        for broker in answer.brokers:
            if broker.node_id == found:
                return broker.host, broker.port
        raise NoLeader(f"{tp} has no leader")

    def in_sync(self, tp: TopicPartition) -> int:
        answer = self._metadata(tp.topic)
        return max(
            len(partition.isr_nodes)
            for topic in answer.topics
            for partition in topic.partitions
            if partition.partition_index == tp.partition
        )

    @contextmanager
    def _leader(self, tp: TopicPartition) -> Iterator[RawClient]:
        """Whoever fails or refuses may lead no more: it is looked up again next time."""
        known = self._leaders.get(tp)
        if known is None:
            known = self._leaders[tp] = self.leader_of(tp)
        try:
            yield self._clients[known]
        except (OSError, ErrorResponse):
            self._leaders.pop(tp, None)
            raise

    def _anyone(self) -> RawClient:
        self._metadata("")
        return self._clients[self._order[0]]

    def _metadata(self, topic: str) -> MetadataResponse:
        wanted = [MetadataRequestTopic(name=topic)] if topic else []
        request = MetadataRequest(topics=wanted, allow_auto_topic_creation=False)
        for address in list(self._order):
            with suppress(OSError):
                answer = self._clients[address].ask(request, 12, MetadataResponse)
                self._order.remove(address)
                self._order.insert(0, address)
                return answer
            # It may be paused: the next question begins with another.
            self._order.remove(address)
            self._order.append(address)
        raise NoLeader("no node of the cluster answers")


@dataclass
class ClusterRun(Run):
    addresses: Sequence[tuple[str, int]] = ()
    passing: frozenset[ErrorCode] = PASSING_IN_A_CLUSTER

    @property
    def bootstrap(self) -> str:
        return ",".join(f"{host}:{port}" for host, port in self.addresses)

    def client(self, name: str) -> Asking:
        return ClusterClient(self.addresses, name=name)
