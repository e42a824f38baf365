"""Interceptors, partitioners and cluster listeners of the application."""

import asyncio
from collections.abc import Awaitable, Callable
from itertools import pairwise
from typing import Any

import pytest

from lograft.client.cluster_view import ClusterResource, ClusterView
from lograft.client.consumer import Consumer
from lograft.client.errors import (
    BufferFull,
    Closed,
    RecordTooLargeToSend,
    SerializationFailed,
    TimedOut,
    WrongUse,
)
from lograft.client.producer import Producer
from lograft.client.producing.interceptors import Outgoing
from lograft.client.types import Acknowledged, TopicPartition
from lograft.model.errors import InvalidConfig
from lograft.testing import VirtualCluster

Scenario = Callable[[VirtualCluster, Producer], Awaitable[None]]


def play(scenario: Scenario, settings: dict[str, Any]) -> None:
    async def main(cluster: VirtualCluster) -> None:
        await cluster.test_client("admin").create_topic("t", partitions=3)
        servers = ",".join(map(str, cluster.bootstrap()))
        async with Producer(
            {"bootstrap.servers": servers, **settings}, runtime=cluster.client_runtime()
        ) as producer:
            await scenario(cluster, producer)

    properties = {"auto.create.topics.enable": "false"}
    VirtualCluster(nodes=1, seed=3, properties=properties).play(main)


class RecordingInterceptor:
    """Records the calls of on_acknowledgement: an offset, or the type of the error."""

    def __init__(self) -> None:
        self.sent = 0
        self.outcomes: list[int | type[Exception]] = []

    def on_send(self, record: Outgoing) -> Outgoing:
        self.sent += 1
        return record

    def on_acknowledgement(
        self, acknowledged: Acknowledged | None, error: Exception | None
    ) -> None:
        self.outcomes.append(acknowledged.offset if acknowledged else type(error))  # type: ignore[arg-type]


def test_interceptors_get_failures_of_records_that_are_not_buffered() -> None:
    interceptor = RecordingInterceptor()

    async def scenario(cluster: VirtualCluster, producer: Producer) -> None:
        with pytest.raises(WrongUse, match="no metadata of topic"):
            producer.send_nowait("t", b"early")
        await producer.send("t", b"good", partition=0)
        with pytest.raises(SerializationFailed):
            await producer.send("t", {1, 2, 3})
        with pytest.raises(RecordTooLargeToSend):
            await producer.enqueue("t", b"x" * 10_000)
        with pytest.raises(TimedOut):
            await producer.send("missing", b"v")
        for _ in range(4):
            producer.send_nowait("t", b"x" * 1_000, partition=1)
        with pytest.raises(BufferFull):
            producer.send_nowait("t", b"x" * 1_000, partition=1)
        assert interceptor.outcomes[:6] == [
            WrongUse,
            0,
            SerializationFailed,
            RecordTooLargeToSend,
            TimedOut,
            BufferFull,
        ]
        sent_before = interceptor.sent
        waiting = asyncio.ensure_future(producer.send("missing", b"v"))
        await cluster.wait_for(lambda: interceptor.sent > sent_before)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        await producer.flush()
        # Every record passed to on_send has exactly one outcome.
        assert len(interceptor.outcomes) == interceptor.sent
        assert interceptor.outcomes.count(Closed) == 1

    settings = {"interceptor.classes": [interceptor], "max.block.ms": 500, "linger.ms": 60_000}
    limits = {"max.request.size": 5_000, "buffer.memory": 5_000, "delivery.timeout.ms": 120_000}

    play(scenario, {**settings, **limits})


class RecordingPartitioner:
    """Stays on a partition until its batch is full; records its calls."""

    def __init__(self) -> None:
        self.chosen = 0
        self.seen: list[tuple[Any, ...]] = []
        self.batches: list[tuple[str, int]] = []

    def partition(
        self,
        topic: str,
        key: Any,
        key_bytes: bytes | None,
        value: Any,
        value_bytes: bytes | None,
        cluster: ClusterView,
    ) -> int:
        available = [partition.partition for partition in cluster.available_partitions(topic)]
        brokers = sorted(cluster.brokers)
        self.seen.append((topic, key, key_bytes, value, value_bytes, available, brokers))
        assert cluster.partition_count(topic) == len(cluster.partitions(topic)) == 3
        assert cluster.partition_count("unknown") == 0
        assert cluster.cluster_id
        return self.chosen

    def on_new_batch(self, topic: str, cluster: ClusterView, previous_partition: int) -> None:
        assert cluster.partition_count(topic) == 3
        self.batches.append((topic, previous_partition))
        self.chosen = (previous_partition + 1) % 3


def test_partitioner_gets_record_cluster_and_new_batches() -> None:
    partitioner = RecordingPartitioner()

    async def scenario(cluster: VirtualCluster, producer: Producer) -> None:
        acknowledged = await producer.send("t", 7, key="k")
        assert partitioner.seen[0] == ("t", "k", b"k", 7, b"7", [0, 1, 2], [1])
        # The record would open a batch in partition 0: called again, it chose the next one.
        assert partitioner.batches == [("t", 0)]
        assert acknowledged.partition == 1
        deliveries = await producer.send_many("t", range(100, 130))
        partitions = [delivery.partition for delivery in await deliveries]
        changes = [partitions[0], *(b for a, b in pairwise(partitions) if a != b)]
        # Batches of several records, in the partitions in turn.
        assert 1 < len(changes) < len(partitions)
        assert all(b == (a + 1) % 3 for a, b in pairwise(changes))
        explicit = await producer.send("t", 8, partition=2)
        assert explicit.partition == 2
        assert not any(seen[3] == 8 for seen in partitioner.seen)

    settings = {
        "partitioner.class": partitioner,
        "value.serializer": lambda topic, value: str(value).encode(),
        "batch.size": 200,
        "linger.ms": 5,
    }
    play(scenario, settings)


class ClusterListener:
    """A serializer, deserializer, interceptor and partitioner with on_update."""

    def __init__(self) -> None:
        self.clusters: list[str | None] = []

    def on_update(self, cluster: ClusterResource) -> None:
        self.clusters.append(cluster.cluster_id)

    def __call__(self, topic: str, value: Any) -> Any:
        return value

    def partition(self, *record: Any) -> int:
        return 0

    def on_send(self, record: Outgoing) -> Outgoing:
        return record

    def on_acknowledgement(self, *outcome: Any) -> None:
        pass

    def on_consume(self, records: Any) -> Any:
        return records

    def on_commit(self, offsets: Any) -> None:
        pass


class FailingListener(ClusterListener):
    def on_update(self, cluster: ClusterResource) -> None:
        raise RuntimeError("no")


def test_listeners_get_the_cluster_id_with_every_update() -> None:
    names = ("key.serializer", "value.serializer", "partitioner.class")
    listeners = {name: ClusterListener() for name in names}
    intercepting = ClusterListener()
    settings = {
        **listeners,
        "interceptor.classes": [FailingListener(), intercepting, intercepting],
        "max.block.ms": 500,
    }

    async def scenario(cluster: VirtualCluster, producer: Producer) -> None:
        await producer.send("t", b"v", key=b"k")
        updates = [listener.clusters for listener in (*listeners.values(), intercepting)]
        (cluster_id,) = set(updates[0])
        assert cluster_id
        assert all(clusters == updates[0] for clusters in updates)
        before = len(intercepting.clusters)
        with pytest.raises(TimedOut):
            await producer.prepare("missing")
        assert len(intercepting.clusters) > before
        reading = {name: ClusterListener() for name in ("key.deserializer", "value.deserializer")}
        interceptor = ClusterListener()
        async with Consumer(
            {
                "bootstrap.servers": ",".join(map(str, cluster.bootstrap())),
                "interceptor.classes": [interceptor],
                **reading,
            },
            runtime=cluster.client_runtime(),
        ) as consumer:
            consumer.assign([TopicPartition("t", 0)])
            consumer.seek_to_beginning()
            assert await consumer.poll(timeout_ms=10_000)
        for listener in (*reading.values(), interceptor):
            assert set(listener.clusters) == {cluster_id}

    play(scenario, settings)


def test_interceptors_of_closed_producer_get_record_and_failure() -> None:
    interceptor = RecordingInterceptor()

    async def scenario(_cluster: VirtualCluster, producer: Producer) -> None:
        await producer.prepare("t")
        await producer.close()
        with pytest.raises(Closed):
            await producer.send("t", b"v")
        with pytest.raises(Closed):
            producer.send_nowait("t", b"v")

    play(scenario, {"interceptor.classes": [interceptor]})
    assert interceptor.sent == 2
    assert interceptor.outcomes == [Closed, Closed]


class AlwaysTwo:
    def partition(
        self, topic: str, key: Any, key_bytes: Any, value: Any, value_bytes: Any, cluster: Any
    ) -> int:
        return 2


class NeedsNumber(AlwaysTwo):
    def __init__(self, number: int) -> None:
        self.number = number


def test_partitioner_class_is_instantiated() -> None:
    async def scenario(_cluster: VirtualCluster, producer: Producer) -> None:
        assert (await producer.send("t", b"v")).partition == 2

    play(scenario, {"partitioner.class": AlwaysTwo})
    Producer(bootstrap_servers="localhost:1", partitioner_class=AlwaysTwo)
    with pytest.raises(InvalidConfig, match=r"class NeedsNumber, which .* pass an instance"):
        Producer(bootstrap_servers="localhost:1", partitioner_class=NeedsNumber)
