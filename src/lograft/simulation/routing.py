"""A client of a whole cluster: gets metadata from any node and sends requests to partition leaders.

Like Kafka's clients, it keeps metadata until an error shows that it is stale, and never goes back
to an older leader epoch. It does not retry: that is the workload's decision and must be recorded in
the history."""

from collections.abc import Sequence
from random import Random
from typing import Final, Protocol, TypeVar

from lograft.model.seams import Address, Transport
from lograft.simulation.client import NotSent, OutcomeUnknown, SimulatedClient
from lograft.wire.message import Message
from lograft.wire.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
)

R = TypeVar("R", bound=Message)

METADATA_VERSION: Final = 12
METADATA_TIMEOUT_MS: Final = 2_000


class Requests(Protocol):
    """Destination of a workload's requests: one node, any node, or the leader of a partition."""

    async def request(
        self, message: Message, version: int, response_type: type[R], *, timeout_ms: int
    ) -> R:
        """Raises NotSent or OutcomeUnknown."""

    def mark_stale(self) -> None:
        """Called when the last response, or its absence, shows that the metadata may be stale."""

    @property
    def leader_epoch(self) -> int:
        """Last known epoch of the partition's leader; -1 if unknown."""


class ClusterClient:
    """Connections to all nodes. As `Requests`, it sends to any node."""

    leader_epoch: Final = -1

    def __init__(
        self, transport: Transport, bootstrap: Sequence[Address], *, client_id: str, random: Random
    ) -> None:
        self._transport = transport
        self._bootstrap = tuple(bootstrap)
        self._client_id = client_id
        self.random = random
        self._connections: dict[Address, SimulatedClient] = {}
        self.brokers: dict[int, Address] = {}
        #: (topic, partition) -> (leader, leader epoch)
        self.leaders: dict[tuple[str, int], tuple[int, int]] = {}
        self._preferred: Address | None = None

    def partition(self, topic: str, index: int) -> "PartitionRoute":
        return PartitionRoute(self, topic, index)

    async def request(
        self, message: Message, version: int, response_type: type[R], *, timeout_ms: int
    ) -> R:
        if self._preferred is None:
            self._preferred = self.random.choice(self._known_addresses())
        return await self.request_to(
            self._preferred, message, version, response_type, timeout_ms=timeout_ms
        )

    def mark_stale(self) -> None:
        self._preferred = None

    async def request_to(
        self,
        address: Address,
        message: Message,
        version: int,
        response_type: type[R],
        *,
        timeout_ms: int,
    ) -> R:
        connection = self._connections.get(address)
        if connection is None:
            connection = SimulatedClient(self._transport, address, client_id=self._client_id)
            self._connections[address] = connection
        return await connection.request(message, version, response_type, timeout_ms=timeout_ms)

    async def refresh(self, topic: str | None = None) -> MetadataResponse:
        """Requests metadata of a topic, or of all topics, from one node after another until one
        responds."""
        topics = None if topic is None else [MetadataRequestTopic(name=topic)]
        request = MetadataRequest(topics=topics, allow_auto_topic_creation=False)
        addresses = self._known_addresses()
        self.random.shuffle(addresses)
        reason = "no node is known"
        for address in addresses:
            try:
                response = await self.request_to(
                    address,
                    request,
                    METADATA_VERSION,
                    MetadataResponse,
                    timeout_ms=METADATA_TIMEOUT_MS,
                )
            except (NotSent, OutcomeUnknown) as error:
                reason = str(error)
                continue
            self._update(response)
            return response
        raise NotSent(f"no node returned metadata: {reason}")

    def _known_addresses(self) -> list[Address]:
        return list(dict.fromkeys([*self.brokers.values(), *self._bootstrap]))

    def _update(self, response: MetadataResponse) -> None:
        if response.brokers:
            self.brokers = {
                broker.node_id: Address(broker.host, broker.port) for broker in response.brokers
            }
        for topic in response.topics:
            for partition in topic.partitions:
                key = (topic.name or "", partition.partition_index)
                known = self.leaders.get(key, (-1, -1))
                if partition.leader_epoch >= known[1]:
                    self.leaders[key] = (partition.leader_id, partition.leader_epoch)


class PartitionRoute:
    """Sends requests to the leader of a partition."""

    def __init__(self, cluster: ClusterClient, topic: str, index: int) -> None:
        self.cluster = cluster
        self._topic = topic
        self._index = index
        self._is_stale = True

    async def request(
        self, message: Message, version: int, response_type: type[R], *, timeout_ms: int
    ) -> R:
        cluster = self.cluster
        if self._is_stale:
            await cluster.refresh(self._topic)
            self._is_stale = False
        leader, _ = cluster.leaders.get((self._topic, self._index), (-1, -1))
        address = cluster.brokers.get(leader)
        if address is None:
            self._is_stale = True
            raise NotSent(f"{self._topic}-{self._index} has no leader")
        try:
            return await cluster.request_to(
                address, message, version, response_type, timeout_ms=timeout_ms
            )
        except (NotSent, OutcomeUnknown):
            self._is_stale = True
            raise

    def mark_stale(self) -> None:
        self._is_stale = True

    @property
    def leader_epoch(self) -> int:
        return self.cluster.leaders.get((self._topic, self._index), (-1, -1))[1]
