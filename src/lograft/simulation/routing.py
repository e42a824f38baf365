"""A client of a whole cluster: learns from any node who leads what, and asks the right one.

As Kafka's clients it keeps metadata until something shows that it is old, and never goes back to
an older leader epoch. It retries nothing: that is the workload's decision, and the history has to
know of it.
"""

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
    """Where a workload sends its requests: one node, any node, or the leader of a partition."""

    async def request(
        self, message: Message, version: int, answer: type[R], *, timeout_ms: int
    ) -> R:
        """Raises NotSent or OutcomeUnknown."""

    def look_again(self) -> None:
        """The last answer, or its absence, says that somebody else may be the right one."""

    @property
    def leader_epoch(self) -> int:
        """That of the partition's leader, as far as it is known; -1: not."""


class ClusterClient:
    """As `Requests` it goes to any node."""

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
        self._favourite: Address | None = None

    def partition(self, topic: str, index: int) -> "PartitionRoute":
        return PartitionRoute(self, topic, index)

    async def request(
        self, message: Message, version: int, answer: type[R], *, timeout_ms: int
    ) -> R:
        if self._favourite is None:
            self._favourite = self.random.choice(self._known())
        return await self.request_to(
            self._favourite, message, version, answer, timeout_ms=timeout_ms
        )

    def look_again(self) -> None:
        self._favourite = None

    async def request_to(
        self, address: Address, message: Message, version: int, answer: type[R], *, timeout_ms: int
    ) -> R:
        connection = self._connections.get(address)
        if connection is None:
            connection = SimulatedClient(self._transport, address, client_id=self._client_id)
            self._connections[address] = connection
        return await connection.request(message, version, answer, timeout_ms=timeout_ms)

    async def refresh(self, topic: str | None = None) -> MetadataResponse:
        """Asks one node after another until one answers. None: all topics."""
        topics = None if topic is None else [MetadataRequestTopic(name=topic)]
        request = MetadataRequest(topics=topics, allow_auto_topic_creation=False)
        addresses = self._known()
        self.random.shuffle(addresses)
        reason = "no node is known"
        for address in addresses:
            try:
                answer = await self.request_to(
                    address,
                    request,
                    METADATA_VERSION,
                    MetadataResponse,
                    timeout_ms=METADATA_TIMEOUT_MS,
                )
            except (NotSent, OutcomeUnknown) as error:
                reason = str(error)
                continue
            self._learn(answer)
            return answer
        raise NotSent(f"nobody tells about the cluster: {reason}")

    def _known(self) -> list[Address]:
        return list(dict.fromkeys([*self.brokers.values(), *self._bootstrap]))

    def _learn(self, answer: MetadataResponse) -> None:
        if answer.brokers:
            self.brokers = {
                broker.node_id: Address(broker.host, broker.port) for broker in answer.brokers
            }
        for topic in answer.topics:
            for partition in topic.partitions:
                key = (topic.name or "", partition.partition_index)
                known = self.leaders.get(key, (-1, -1))
                if partition.leader_epoch >= known[1]:
                    self.leaders[key] = (partition.leader_id, partition.leader_epoch)


class PartitionRoute:
    """Goes to the leader of one partition."""

    def __init__(self, cluster: ClusterClient, topic: str, index: int) -> None:
        self.cluster = cluster
        self._topic = topic
        self._index = index
        self._is_old = True

    async def request(
        self, message: Message, version: int, answer: type[R], *, timeout_ms: int
    ) -> R:
        cluster = self.cluster
        if self._is_old:
            await cluster.refresh(self._topic)
            self._is_old = False
        leader, _ = cluster.leaders.get((self._topic, self._index), (-1, -1))
        address = cluster.brokers.get(leader)
        if address is None:
            self._is_old = True
            raise NotSent(f"nobody leads {self._topic}-{self._index}")
        try:
            return await cluster.request_to(
                address, message, version, answer, timeout_ms=timeout_ms
            )
        except (NotSent, OutcomeUnknown):
            self._is_old = True
            raise

    def look_again(self) -> None:
        self._is_old = True

    @property
    def leader_epoch(self) -> int:
        return self.cluster.leaders.get((self._topic, self._index), (-1, -1))[1]
