"""Raw clients of a cluster: they send requests to partition leaders and never retry.

After an error or a broken connection, the next call looks up the leader again; the caller, who
records the history, decides whether to retry."""

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
from tests.chaos.recording import TRANSIENT, PartitionClient, Run

#: Error codes that a cluster may return for a while after a node has failed or started.
TRANSIENT_IN_A_CLUSTER: Final = TRANSIENT | {
    ErrorCode.FENCED_LEADER_EPOCH,
    ErrorCode.UNKNOWN_LEADER_EPOCH,
    ErrorCode.NOT_ENOUGH_REPLICAS,
    ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
    ErrorCode.OFFSET_NOT_AVAILABLE,
    ErrorCode.REPLICA_NOT_AVAILABLE,
    ErrorCode.BROKER_NOT_AVAILABLE,
    ErrorCode.NOT_CONTROLLER,
    # A broker that has just started may not have the topic's metadata yet.
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.KAFKA_STORAGE_ERROR,
}


class NoLeader(OSError):
    """No reachable node knows a reachable leader."""


class ClusterClient:
    def __init__(self, addresses: Sequence[tuple[str, int]], *, name: str) -> None:
        self._clients = {
            address: RawClient(address[1], name=name, host=address[0]) for address in addresses
        }
        self._leaders: dict[TopicPartition, tuple[str, int]] = {}
        #: Addresses, the one that responded last first.
        self._order = list(addresses)

    def close(self) -> None:
        for client in self._clients.values():
            client.close()

    def producer_id(self) -> tuple[int, int]:
        return self._any_client().producer_id()

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
        response = self._metadata(tp.topic)
        leaders = {
            partition.partition_index: partition.leader_id
            for topic in response.topics
            for partition in topic.partitions
        }
        leader_id = leaders.get(tp.partition, -1)
        for broker in response.brokers:
            if broker.node_id == leader_id:
                return broker.host, broker.port
        raise NoLeader(f"{tp} has no leader")

    def in_sync(self, tp: TopicPartition) -> int:
        response = self._metadata(tp.topic)
        return max(
            len(partition.isr_nodes)
            for topic in response.topics
            for partition in topic.partitions
            if partition.partition_index == tp.partition
        )

    @contextmanager
    def _leader(self, tp: TopicPartition) -> Iterator[RawClient]:
        """Yields the client of the leader; after an error, the leader is looked up again."""
        known = self._leaders.get(tp)
        if known is None:
            known = self._leaders[tp] = self.leader_of(tp)
        try:
            yield self._clients[known]
        except (OSError, ErrorResponse):
            self._leaders.pop(tp, None)
            raise

    def _any_client(self) -> RawClient:
        self._metadata("")
        return self._clients[self._order[0]]

    def _metadata(self, topic: str) -> MetadataResponse:
        topics = [MetadataRequestTopic(name=topic)] if topic else []
        request = MetadataRequest(topics=topics, allow_auto_topic_creation=False)
        for address in list(self._order):
            with suppress(OSError):
                response = self._clients[address].request(request, 12, MetadataResponse)
                self._order.remove(address)
                self._order.insert(0, address)
                return response
            # It may be paused: the next request starts with another node.
            self._order.remove(address)
            self._order.append(address)
        raise NoLeader("no node of the cluster responds")


@dataclass
class ClusterRun(Run):
    addresses: Sequence[tuple[str, int]] = ()
    transient: frozenset[ErrorCode] = TRANSIENT_IN_A_CLUSTER

    @property
    def bootstrap(self) -> str:
        return ",".join(f"{host}:{port}" for host, port in self.addresses)

    def client(self, name: str) -> PartitionClient:
        return ClusterClient(self.addresses, name=name)
