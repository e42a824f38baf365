"""Each metric of the clients moves when the thing happens that it measures."""

import asyncio
from collections.abc import Iterator
from math import isnan
from random import Random
from typing import Any

import pytest

from lograft.client.admin import Admin
from lograft.client.blocking import Producer as BlockingProducer
from lograft.client.consumer import Consumer
from lograft.client.consuming.fetch_metrics import PREFERRED_REPLICA, FetchMetrics
from lograft.client.consuming.rebalance_listener import RebalanceListener
from lograft.client.consuming.subscription import Subscription
from lograft.client.errors import BufferFull, RecordTooLarge
from lograft.client.metering.names import ClientMetrics, MetricName
from lograft.client.metering.registry import START_TIME, VERSION
from lograft.client.network_metrics import (
    AUTHENTICATION_FAILURES,
    AUTHENTICATIONS,
    REAUTHENTICATION_FAILURES,
    REAUTHENTICATION_LATENCIES,
    REAUTHENTICATIONS,
    NetworkMetrics,
    Traffic,
)
from lograft.client.producer import Producer
from lograft.client.producing.producer_metrics import BUFFER_SIZE
from lograft.client.types import TopicPartition
from lograft.model.errors import ErrorCode, InvalidConfig
from lograft.testing import Cluster, VirtualCluster
from tests.support.scenarios import run_in_virtual_cluster, scenario
from tools.generate_client_metrics import declared_metrics

#: They do not move.
CONSTANT = {VERSION, START_TIME, BUFFER_SIZE}
#: The simulated broker neither authenticates nor prefers replicas; tested below, and renewals in
#: test_authentication.
ELSEWHERE = {
    AUTHENTICATIONS,
    AUTHENTICATION_FAILURES,
    REAUTHENTICATIONS,
    REAUTHENTICATION_FAILURES,
    REAUTHENTICATION_LATENCIES,
    PREFERRED_REPLICA,
}


class Watch:
    """The values that each metric of one kind of client has had."""

    def __init__(self) -> None:
        self._seen: dict[tuple[str, str, tuple[str, ...]], set[str]] = {}

    def see(self, metrics: ClientMetrics) -> None:
        for name, value in metrics.items():
            tags = tuple(sorted(tag for tag, _ in name.tags if tag != "client-id"))
            self._seen.setdefault((name.group, name.name, tags), set()).add(str(value))

    def unmoved(self, kind: str) -> Iterator[str]:
        for metric, kinds in declared_metrics():
            if kind not in kinds or metric in CONSTANT | ELSEWHERE:
                continue
            for name in metric.names:
                key = metric.group.format(kind=kind), name, tuple(sorted(metric.tags))
                if len(self._seen.get(key, ())) < 2:
                    yield f"{key} {self._seen.get(key)}"


async def settle(*deliveries: Any) -> None:
    await asyncio.gather(*deliveries, return_exceptions=True)


def settings_of(cluster: VirtualCluster, **more: Any) -> dict[str, Any]:
    return {"bootstrap_servers": ",".join(map(str, cluster.bootstrap())), **more}


@scenario(run_in_virtual_cluster, nodes=1, seed=3)
async def test_each_metric_of_a_producer_moves(cluster: VirtualCluster, /) -> None:
    runtime = cluster.client_runtime()
    watch = Watch()
    random = Random(1)
    client = cluster.test_client()
    await client.create_topic("t")
    await client.create_topic("small", configs={"max.message.bytes": "600"})
    settings = settings_of(cluster, compression_type="gzip", buffer_memory=4_000, linger_ms=20)
    async with Producer(settings, max_block_ms=2_000, runtime=runtime) as producer:
        watch.see(producer.metrics())
        await producer.send("t", b"v")
        watch.see(producer.metrics())
        cluster.fail("Produce", ErrorCode.NOT_ENOUGH_REPLICAS, topic="t")
        await producer.send("t", b"v" * 500)
        await producer.prepare("small")
        with pytest.raises(RecordTooLarge):
            await producer.send("small", random.randbytes(1_000))
        values = [random.randbytes(90) for _ in range(20)]
        await settle(*[await producer.enqueue("small", value) for value in values])
        cluster.delay("Produce", 1.0)
        deliveries = [producer.send_nowait("t", b"x" * 900) for _ in range(4)]
        with pytest.raises(BufferFull):
            producer.send_nowait("t", b"x" * 900)
        blocked = asyncio.ensure_future(producer.send("t", b"x" * 900))
        await asyncio.sleep(0.5)
        watch.see(producer.metrics())
        flushed = asyncio.ensure_future(producer.flush())
        await settle(*deliveries, blocked, flushed)
        watch.see(producer.metrics())
        await cluster.stop(1)
        await cluster.start(1)
        await producer.send("t", b"v")
        watch.see(producer.metrics())
    transactional = settings_of(cluster, transactional_id="x")
    async with Producer(transactional, runtime=runtime) as producer:
        watch.see(producer.metrics())
        async with producer.transaction():
            await producer.send("t", b"v")
            await producer.send_offsets({TopicPartition("t", 0): 1}, "g")
        await producer.begin_transaction()
        await producer.send("t", b"v")
        await producer.abort_transaction()
        await producer.begin_transaction()
        await producer.enqueue("t", b"v")
        await producer.prepare_transaction()
        watch.see(producer.metrics())
    async with Producer(transactional, runtime=runtime) as producer:
        await producer.init_transactions()
        watch.see(producer.metrics())
    assert list(watch.unmoved("producer")) == []


class Slow(RebalanceListener):
    async def on_assigned(self, partitions: Any) -> None:
        await asyncio.sleep(0.01)

    async def on_revoked(self, partitions: Any) -> None:
        await asyncio.sleep(0.02)

    async def on_lost(self, partitions: Any) -> None:
        await asyncio.sleep(0.03)


@scenario(
    run_in_virtual_cluster,
    nodes=1,
    seed=3,
    properties={
        "offsets.topic.num.partitions": "2",
        "group.initial.rebalance.delay.ms": "0",
        "group.consumer.heartbeat.interval.ms": "1000",
        "group.consumer.min.heartbeat.interval.ms": "500",
        "group.consumer.assignment.interval.ms": "0",
    },
)
async def test_each_metric_of_a_consumer_moves(cluster: VirtualCluster, /) -> None:
    client = cluster.test_client()
    # The records have timestamps near 1970.
    await client.create_topic("t", configs={"retention.ms": "-1"})
    for number in range(10):
        await client.produce("t", 0, [b"v" * (number + 1)])
    watch = Watch()
    for protocol in ("classic", "consumer"):
        settings = settings_of(
            cluster,
            group_id=protocol,
            group_protocol=protocol,
            auto_offset_reset="earliest",
            max_poll_records=3,
            max_poll_interval_ms=10_000,
            enable_auto_commit=False,
        )
        async with Consumer(settings, runtime=cluster.client_runtime()) as consumer:
            watch.see(consumer.metrics())
            consumer.subscribe(["t"], listener=Slow())
            while not await consumer.poll(timeout_ms=100):
                pass
            watch.see(consumer.metrics())
            await consumer.poll()
            watch.see(consumer.metrics())
            await client.produce("t", 0, [b"v" * 1_000])
            await consumer.commit()
            await consumer.committed([TopicPartition("t", 0)])
            cluster.fail("Fetch", ErrorCode.UNKNOWN_SERVER_ERROR)
            cluster.lose_request("Fetch")
            async for record in consumer:
                if record.offset == 8:
                    break
            watch.see(consumer.metrics())
            # It exceeds max.poll.interval.ms, and loses its partition.
            await asyncio.sleep(25)
            while not await consumer.poll(timeout_ms=100):
                pass
            watch.see(consumer.metrics())
            await consumer.unsubscribe()
            watch.see(consumer.metrics())
    assert list(watch.unmoved("consumer")) == []


@scenario(run_in_virtual_cluster, nodes=1, seed=3)
async def test_each_metric_of_an_admin_client_moves(cluster: VirtualCluster, /) -> None:
    watch = Watch()
    async with Admin(settings_of(cluster), runtime=cluster.client_runtime()) as admin:
        watch.see(admin.metrics())
        await admin.create_topics(["t"])
        watch.see(admin.metrics())
        await cluster.stop(1)
        await cluster.start(1)
        await admin.create_topics(["a-topic-with-a-longer-name"])
        watch.see(admin.metrics())
        assert admin.metrics().value("connection-close-total") >= 1
        assert admin.metrics().value("request-total") > admin.metrics().value(
            "request-total", node_id="node-1"
        )
    assert list(watch.unmoved("admin-client")) == []


@scenario(run_in_virtual_cluster, nodes=1)
async def test_rows_and_columns_are_counted(cluster: VirtualCluster, /) -> None:
    client = cluster.test_client()
    await client.create_topic("t")
    await client.produce("t", 0, [b"v"] * 7)
    settings = settings_of(cluster, auto_offset_reset="earliest")
    async with Consumer(settings, runtime=cluster.client_runtime()) as consumer:
        consumer.assign([TopicPartition("t", 0)])
        assert (await consumer.fetch_arrow()).num_rows == 7
        metrics = consumer.metrics()
        assert metrics.value("records-consumed-total") == 7
        assert metrics.value("bytes-consumed-total", topic="t") > 7
        assert metrics.value("records-lag", topic="t", partition="0") == 0
        assert metrics.value("records-lead", topic="t", partition="0") == 7
        await client.produce("t", 0, [b"v"] * 3)
        await anext(consumer)
        metrics = consumer.metrics()
        assert metrics.value("records-consumed-total", topic="t") == 8
        assert metrics.value("records-lag", topic="t", partition="0") == 2


@scenario(run_in_virtual_cluster, nodes=1)
async def test_rates_cover_the_last_windows(cluster: VirtualCluster, /) -> None:
    settings = settings_of(cluster, metrics_num_samples=3, metrics_sample_window_ms=10_000)
    async with Producer(settings, runtime=cluster.client_runtime()) as producer:
        await producer.send("t", b"v" * 1_000)
        metrics = producer.metrics()
        assert metrics.value("record-send-rate") == pytest.approx(1 / 20, rel=0.05)
        assert metrics.value("record-size-max") > 1_000
        await asyncio.sleep(40)
        metrics = producer.metrics()
        assert metrics.value("record-send-rate") == 0
        assert metrics.value("record-send-total") == 1
        assert isnan(metrics.value("record-size-max"))
        assert isnan(metrics.value("record-size-avg"))
        await producer.send("t", b"v" * 10)
        assert 10 < producer.metrics().value("record-size-max") < 100


@scenario(run_in_virtual_cluster, nodes=1)
async def test_reporters_get_the_metrics_of_each_window_and_of_the_end(
    cluster: VirtualCluster, /, caplog: pytest.LogCaptureFixture
) -> None:
    sent: list[float] = []

    def report(metrics: ClientMetrics) -> None:
        sent.append(metrics.value("record-send-total"))

    def fail(metrics: ClientMetrics) -> None:
        raise ValueError("disk full")

    settings = settings_of(
        cluster, metric_reporters=[fail, report], metrics_sample_window_ms=1_000, client_id="c"
    )
    async with Producer(settings, runtime=cluster.client_runtime()) as producer:
        await producer.send("t", b"v")
        await asyncio.sleep(2.5)
        assert sent == [1, 1]
        await producer.send("t", b"v")
    assert sent[2:] == [2]
    assert "disk full" in caplog.text


def test_a_reporter_must_be_a_function() -> None:
    servers = {"bootstrap.servers": "h:1"}
    with pytest.raises(InvalidConfig, match=r"metric\.reporters is .*list of functions"):
        Producer({**servers, "metric.reporters": "com.example.Reporter"})
    jmx = "org.apache.kafka.common.metrics.JmxReporter"
    assert Producer({**servers, "metric.reporters": jmx}).settings.metric_reporters == ()


def test_authentications_are_counted() -> None:
    metrics = NetworkMetrics()

    class Connection:
        def __init__(self) -> None:
            self.traffic = Traffic()
            self.is_closed = False
            self.operations = self.in_flight = 0

    metrics.on_connection(Connection(), 1, is_authenticated=True)  # type: ignore[arg-type]
    metrics.authentication_failures += 1
    found = {reading.metric: reading.value for reading in metrics.collect_readings()}
    assert found[AUTHENTICATIONS] == 1
    assert found[AUTHENTICATION_FAILURES] == 1


def test_the_preferred_replica_is_shown() -> None:
    subscription = Subscription()
    subscription.assign([TopicPartition("t", 0)])
    metrics = FetchMetrics(subscription, is_read_committed=False)

    def shown() -> list[Any]:
        return [
            each.value for each in metrics.collect_readings() if each.metric is PREFERRED_REPLICA
        ]

    assert shown() == [-1]
    subscription.state(TopicPartition("t", 0)).preferred_replica = 2
    assert shown() == [2]


def test_the_blocking_clients_have_metrics() -> None:
    with (
        Cluster() as cluster,
        BlockingProducer(bootstrap_servers=cluster.bootstrap_servers) as producer,
    ):
        producer.send("t", b"v")
        assert producer.metrics().value("record-send-total", topic="t") == 1


def test_values_are_found_by_name_group_and_tags() -> None:
    tags = (("client-id", "c"),)
    metrics = ClientMetrics(
        {
            MetricName("a-total", "x-metrics", tags): 1.0,
            MetricName("a-total", "x-topic-metrics", (*tags, ("topic", "t"))): 2.0,
            MetricName("b", "x-metrics", tags): 3.0,
            MetricName("b", "y-metrics", tags): 4.0,
            MetricName("version", "x-metrics", tags): "1.2",
        }
    )
    assert metrics.value("a-total") == 1
    assert metrics.value("a-total", topic="t") == 2
    assert metrics.value("b", "y-metrics") == 4
    for name, group in (("b", None), ("c", None), ("a-total", "y-metrics"), ("version", None)):
        with pytest.raises(LookupError, match=name):
            metrics.value(name, group)
