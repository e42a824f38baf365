"""Clients push their metrics (KIP-714) to a simulated cluster, and no more often than it asks."""

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from lograft.broker.broker import Broker
from lograft.broker.client_telemetry import PUSHES, Push
from lograft.client.consumer import Consumer
from lograft.client.metering.declarations import CLIENT, Level, meter
from lograft.client.metering.registry import MetricRegistry
from lograft.client.producer import Producer
from lograft.client.telemetry import TelemetryPusher
from lograft.client.types import TopicPartition
from lograft.metadata.types import ConfigResource, ResourceType
from lograft.model.errors import ErrorCode
from lograft.model.metrics import gather_all, value_of
from lograft.model.types import ZERO_UUID
from lograft.runtime.clock import SystemClock
from lograft.testing import VirtualCluster
from lograft.wire.compression import Codec
from lograft.wire.messages.get_telemetry_subscriptions import GetTelemetrySubscriptionsResponse
from lograft.wire.otlp import Temporality
from tests.support.scenarios import run_in_virtual_cluster, scenario
from tests.support.waiting import wait_until_async

INTERVAL_S = 10
ALL = ConfigResource(ResourceType.CLIENT_METRICS, "all")


def broker_of(cluster: VirtualCluster) -> Broker:
    return cluster.node(1).broker


def subscribe(cluster: VirtualCluster, metrics: str = "*") -> None:
    configs = {ALL: {"metrics": metrics, "interval.ms": str(INTERVAL_S * 1_000)}}
    broker_of(cluster).telemetry.on_configs(configs, [ALL])


def pushes(cluster: VirtualCluster) -> list[Push]:
    broker = broker_of(cluster)
    return list(broker.telemetry.pushes(broker.clock.mono_ms()))


def settings_of(cluster: VirtualCluster, **more: Any) -> dict[str, Any]:
    return {"bootstrap_servers": ",".join(map(str, cluster.bootstrap())), **more}


def value_in(push: Push, name: str) -> float:
    (value,) = [point.value for point in push.points if point.name == name]
    return value


@scenario(run_in_virtual_cluster, nodes=1)
async def test_a_producer_pushes_every_interval_and_when_it_closes(
    cluster: VirtualCluster, /
) -> None:
    subscribe(cluster)
    telemetry = broker_of(cluster).telemetry
    settings = settings_of(cluster, client_id="mine", transactional_id="x")
    async with Producer(settings, runtime=cluster.client_runtime()) as producer:
        async with producer.transaction():
            await producer.send("t", b"v")
        await wait_until_async(lambda: bool(pushes(cluster)))
        (push,) = pushes(cluster)
        assert push.client["client_id"] == "mine"
        assert not push.is_terminating
        assert value_in(push, "org.apache.kafka.producer.record.send.total") == 1
        topics = [dict(point.attributes) for point in push.points if "topic" in point.name]
        assert topics[0] == {"topic": "t"}
        before = value_of(telemetry, PUSHES)
        await asyncio.sleep(10 * INTERVAL_S)
        assert 9 <= value_of(telemetry, PUSHES) - before <= 10
        async with producer.transaction():
            await producer.send("t", b"v")
    (push,) = pushes(cluster)
    assert push.is_terminating
    assert value_in(push, "org.apache.kafka.producer.record.send.total") == 2
    names = {metric.name for metric in gather_all(cluster.node(1).collect_samples()).by_metric}
    assert {
        "kafka_client_producer_topic_record_send_total",
        "kafka_client_producer_node_request_latency_max",
    } <= names


@scenario(run_in_virtual_cluster, nodes=1)
async def test_only_requested_metrics_are_pushed(cluster: VirtualCluster, /) -> None:
    subscribe(cluster, metrics="org.apache.kafka.consumer.fetch.manager.records.")
    settings = settings_of(cluster, auto_offset_reset="earliest")
    async with Consumer(settings, runtime=cluster.client_runtime()) as consumer:
        await cluster.test_client().create_topic("t")
        consumer.assign([TopicPartition("t", 0)])
        await consumer.poll(timeout_ms=100)
        await wait_until_async(lambda: bool(pushes(cluster)))
    (push,) = pushes(cluster)
    assert {point.name.rpartition(".records.")[0] for point in push.points} == {
        "org.apache.kafka.consumer.fetch.manager"
    }


@scenario(run_in_virtual_cluster, nodes=1)
async def test_a_changed_subscription_is_requested_again(cluster: VirtualCluster, /) -> None:
    subscribe(cluster)
    async with Producer(settings_of(cluster), runtime=cluster.client_runtime()) as producer:
        await producer.send("t", b"v")
        await wait_until_async(lambda: bool(pushes(cluster)))
        subscribe(cluster, metrics="org.apache.kafka.producer.record.")
        # The next push is rejected, and the one after it has the new metrics.
        await asyncio.sleep(3 * INTERVAL_S)
        (push,) = pushes(cluster)
        assert all(".producer.record." in point.name for point in push.points)


@pytest.mark.parametrize(
    ("code", "is_final"),
    [
        (ErrorCode.INVALID_RECORD, True),
        (ErrorCode.TELEMETRY_TOO_LARGE, False),
        (ErrorCode.THROTTLING_QUOTA_EXCEEDED, False),
        (ErrorCode.UNKNOWN_SUBSCRIPTION_ID, False),
    ],
)
@scenario(run_in_virtual_cluster, nodes=1)
async def test_errors_end_or_delay_pushes_and_nothing_else(
    cluster: VirtualCluster, /, code: ErrorCode, is_final: bool
) -> None:
    subscribe(cluster)
    fault = cluster.fail("PushTelemetry", code)
    async with Producer(settings_of(cluster), runtime=cluster.client_runtime()) as producer:
        await producer.send("t", b"v")
        await wait_until_async(lambda: fault.hits == 1)
        assert not pushes(cluster)
        await asyncio.sleep(4 * INTERVAL_S)
        assert bool(pushes(cluster)) != is_final
        await producer.send("t", b"v")
    assert bool(pushes(cluster)) != is_final


@scenario(run_in_virtual_cluster, nodes=1)
async def test_a_lost_response_is_survived(cluster: VirtualCluster, /) -> None:
    subscribe(cluster)
    cluster.lose_response("PushTelemetry")
    cluster.lose_request("GetTelemetrySubscriptions")
    async with Producer(settings_of(cluster), runtime=cluster.client_runtime()) as producer:
        await producer.send("t", b"v")
        # Until a subscription is known, attempts are five minutes apart.
        await asyncio.sleep(310)
        await producer.send("t", b"v")
        await asyncio.sleep(5 * INTERVAL_S)
        assert value_of(broker_of(cluster).telemetry, PUSHES) >= 2


@scenario(run_in_virtual_cluster, nodes=1)
async def test_nothing_is_pushed_if_it_is_disabled(cluster: VirtualCluster, /) -> None:
    subscribe(cluster)
    settings = settings_of(cluster, enable_metrics_push=False)
    async with Producer(settings, runtime=cluster.client_runtime()) as producer:
        await producer.send("t", b"v")
        await asyncio.sleep(3 * INTERVAL_S)
    assert not pushes(cluster)


def test_deltas_are_the_increase_since_the_last_accepted_push() -> None:
    sent = meter("record-send", CLIENT, "Records sent.")
    total = 5.0
    registry = MetricRegistry(
        SystemClock(),
        kind="producer",
        client_id="",
        samples=2,
        window_ms=30_000,
        level=Level.INFO,
        reporters=(),
    )
    registry.add_source(lambda: iter([sent.read(total)]))
    subscription = GetTelemetrySubscriptionsResponse(
        client_instance_id=ZERO_UUID,
        requested_metrics=["org.apache.kafka.producer.record.send.total"],
        accepted_compression_types=[Codec.ZSTD],
        delta_temporality=True,
    )
    pusher = pusher_of(registry)
    totals: dict[Any, float] = {}
    (point,) = pusher._points(subscription, totals)
    assert (point.value, point.temporality) == (5, Temporality.DELTA)
    pusher._pushed_totals = totals
    total = 12.0
    (point,) = pusher._points(subscription, {})
    assert point.value == 7
    subscription.delta_temporality = False
    (point,) = pusher._points(subscription, {})
    assert (point.value, point.temporality) == (12, Temporality.CUMULATIVE)


def pusher_of(registry: MetricRegistry) -> TelemetryPusher:
    runtime: Any = SimpleNamespace(clock=SystemClock())
    network: Any = None
    return TelemetryPusher(runtime, network, registry, resource=(), request_timeout_ms=1_000)
