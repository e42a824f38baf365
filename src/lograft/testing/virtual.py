"""A cluster inside a test, in virtual time: real nodes in one thread, on simulated links and disks.

    from lograft.testing import VirtualCluster

    def test_a_killed_leader_is_replaced() -> None:
        async def scenario(cluster: VirtualCluster) -> None:
            client = cluster.test_client()
            await client.create_topic("t", partitions=1, replication_factor=3)
            await client.produce("t", 0, [b"one"])
            cluster.kill(cluster.leader_of("t", 0))
            await client.produce("t", 0, [b"two"])
            assert await client.read("t", 0) == [b"one", b"two"]

        VirtualCluster(nodes=3, seed=7).play(scenario)

The same seed gives the same run, another seed another interleaving. Virtual time passes instantly,
so tests may sleep (`asyncio.sleep`) as long as they like. A node that fails by itself fails the
test.
"""

import asyncio
from collections.abc import Callable, Coroutine, Mapping, Sequence
from typing import Any, Final, TypeVar

from lograft.model.seams import Channel
from lograft.simulation.client import ErrorResponse, NotSent, OutcomeUnknown
from lograft.simulation.cluster import SimulatedCluster
from lograft.simulation.history import History
from lograft.simulation.node_workload import EARLIEST, TIMEOUT_MS, Admin, Reader, TopicPlan
from lograft.simulation.routing import ClusterClient
from lograft.testing.faults import FailingRequests
from lograft.testing.settings import internal_topics
from lograft.wire.batches import Record, build_batch
from lograft.wire.messages import produce as producing

T = TypeVar("T")

RETRY_SECONDS: Final = 0.1
TIMEOUT_SECONDS: Final = 60
PRODUCE_VERSION: Final = 12
FETCH_VERSION: Final = 12


class VirtualCluster(SimulatedCluster, FailingRequests):
    """Like `Cluster`, but in virtual time, on simulated links and disks."""

    def __init__(self, nodes: int = 3, **options: Any) -> None:
        FailingRequests.__init__(self)
        properties = {**internal_topics(nodes), **(options.pop("properties", None) or {})}
        super().__init__(nodes, properties=properties, **options)
        for node_id, host in self.hosts.items():
            host.interpose = self.faults.interpose(node_id, self._is_client)

    def _is_client(self, channel: Channel) -> bool:
        return channel.peer.host in self.client_hosts

    def play(self, scenario: Callable[["VirtualCluster"], Coroutine[Any, Any, T]]) -> T:
        """Starts all nodes, then runs the scenario."""

        async def main() -> T:
            await self.start()
            return await scenario(self)

        return self.run(main())

    def test_client(self, host: str = "client") -> "TestClient":
        return TestClient(self.client(host))


class TestClient:
    """A simple client that retries retriable errors for a minute of virtual time."""

    __test__ = False

    def __init__(self, cluster: ClusterClient) -> None:
        self.cluster = cluster
        self._topics: dict[str, TopicPlan] = {}
        self._admin = Admin(cluster, history=History(), random=cluster.random)

    async def create_topic(
        self,
        name: str,
        *,
        partitions: int = 1,
        replication_factor: int = 1,
        configs: Mapping[str, str] | None = None,
    ) -> None:
        plan = TopicPlan(name, partitions, dict(configs or {}), replication_factor)
        await self.retry(lambda: self._admin.create(plan))
        self._topics[name] = plan

    async def produce(
        self, topic: str, partition: int, values: Sequence[bytes], *, acks: int = -1
    ) -> int:
        """Sends one batch and returns its base offset. It is not idempotent: a retry may append it
        twice."""
        route = self.cluster.partition(topic, partition)
        batch = build_batch([Record(i, 0, None, value) for i, value in enumerate(values)])
        request = producing.ProduceRequest(
            acks=acks,
            timeout_ms=TIMEOUT_MS,
            topic_data=[
                producing.TopicProduceData(
                    name=topic,
                    partition_data=[producing.PartitionProduceData(index=partition, records=batch)],
                )
            ],
        )

        async def attempt() -> int:
            response = await route.request(
                request, PRODUCE_VERSION, producing.ProduceResponse, timeout_ms=TIMEOUT_MS
            )
            result = response.responses[0].partition_responses[0]
            if result.error_code:
                route.mark_stale()
                raise ErrorResponse(result.error_code)
            return result.base_offset

        return await self.retry(attempt)

    async def read(self, topic: str, partition: int) -> list[bytes]:
        """Reads all values from the log start offset to the high watermark."""

        async def attempt() -> list[bytes]:
            route = self.cluster.partition(topic, partition)
            plan = self._topics.get(topic) or TopicPlan(topic, 0, {})
            reader = Reader(route, plan, partition, FETCH_VERSION)
            admin = Admin(route, history=History(), random=self.cluster.random)
            position = await admin.list_offset(plan, partition, EARLIEST)
            values: list[bytes] = []
            while True:
                data, records, _ = await reader.fetch(position, bytes_max=1 << 20, wait_ms=0)
                if data.error_code:
                    raise ErrorResponse(data.error_code)
                values += [value.encode() for _, value in records]
                if not records:
                    return values
                position = records[-1][0] + 1

        return await self.retry(attempt)

    async def retry(self, attempt: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """Retries until it succeeds; raises the last error after a minute."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + TIMEOUT_SECONDS
        while True:
            try:
                return await attempt()
            except (NotSent, OutcomeUnknown, ErrorResponse) as error:
                is_final = isinstance(error, ErrorResponse) and not error.is_retriable
                if is_final or loop.time() > deadline:
                    raise
                self.cluster.mark_stale()
                await asyncio.sleep(RETRY_SECONDS)
