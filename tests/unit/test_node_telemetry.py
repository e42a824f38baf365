"""Nodes that send metrics and spans to an OpenTelemetry collector."""

import asyncio
from collections.abc import Mapping
from typing import Any

import pytest

from lograft.api.router import FAST_PATH_REQUESTS, REQUESTS
from lograft.client.admin import Admin, NewTopic
from lograft.client.consumer import Consumer
from lograft.client.producer import Producer
from lograft.model.metrics import value_of
from lograft.model.types import TopicPartition
from lograft.telemetry import exporter
from lograft.telemetry.exporter import EXPORT_FAILURES, SPANS
from lograft.testing import VirtualCluster
from lograft.testing.cluster import Cluster
from tests.support.otlp_collector import Collector, attributes_of
from tests.support.scenarios import run_in_virtual_cluster, scenario
from tests.support.waiting import wait_until

TRACE = "4bf92f3577b34da6a3ce929d0e0e4736"
PARENT = "00f067aa0ba902b7"
HEADERS = [
    ("traceparent", f"00-{TRACE}-{PARENT}-01".encode()),
    ("tracestate", b"vendor=1"),
    ("other", b"x"),
]
UNSAMPLED = [("traceparent", f"00-{TRACE}-{PARENT}-00".encode())]


def spans_by_name(collector: Collector) -> Mapping[str, Any]:
    found = {span.name: span for span in collector.spans}
    assert len(found) == len(collector.spans), collector.spans
    return found


async def use_topic(servers: str) -> list[Any]:
    """Returns the records as a consumer gets them."""
    async with Admin(bootstrap_servers=servers) as admin:
        await admin.create_topics([NewTopic("t", 1, 3)])
    async with Producer(bootstrap_servers=servers, client_id="shop", linger_ms=0) as producer:
        await producer.send("t", b"unsampled", headers=UNSAMPLED)
        await producer.send("t", b"plain")
        await producer.send("t", b"sampled", headers=HEADERS)
    async with Consumer(
        bootstrap_servers=servers, client_id="till", auto_offset_reset="earliest"
    ) as consumer:
        consumer.assign([TopicPartition("t", 0)])
        records: list[Any] = []
        while len(records) < 3:
            for polled in (await consumer.poll()).values():
                records += polled
    return records


def test_spans_of_produce_replicate_and_deliver(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exporter, "SPANS_DELAY_MS", 10)
    with Collector() as collector:
        properties = {
            "lograft.otlp.endpoint": collector.url,
            "lograft.otlp.traces.enable": "true",
            "lograft.otlp.metrics.interval.ms": "0",
        }
        with Cluster(3, properties=properties) as cluster:
            records = asyncio.run(use_topic(cluster.bootstrap_servers))
            collector.wait_for(spans=3)
    # The record is unchanged.
    assert records[2].headers == tuple(HEADERS)
    spans = spans_by_name(collector)
    assert spans.keys() == {"produce t", "replicate t", "deliver t"}
    for name, client_id in (("produce t", "shop"), ("deliver t", "till")):
        span = spans[name]
        assert (span.trace_id.hex(), span.parent_span_id.hex()) == (TRACE, PARENT)
        assert span.trace_state == "vendor=1"
        assert attributes_of(span) == {
            "messaging.system": "kafka",
            "messaging.destination.name": "t",
            "messaging.destination.partition.id": "0",
            "messaging.kafka.offset": 2,
            "messaging.client.id": client_id,
        }
    produced, replicated = spans["produce t"], spans["replicate t"]
    assert (replicated.trace_id.hex(), replicated.parent_span_id) == (TRACE, produced.span_id)
    assert produced.end_time_unix_nano == replicated.start_time_unix_nano
    assert replicated.end_time_unix_nano >= replicated.start_time_unix_nano
    assert not replicated.HasField("status")
    assert collector.resources[0]["service.name"] == "lograft"


def test_a_node_sends_its_metrics() -> None:
    with Collector() as collector:
        properties = {
            "lograft.otlp.endpoint": collector.url,
            "lograft.otlp.metrics.interval.ms": "1000",
            "lograft.otlp.headers": "authorization=Bearer s3cr3t",
        }
        with Cluster(properties=properties):
            wait_until(
                lambda: any(metric.name == REQUESTS.name for metric in list(collector.metrics))
            )
    path, headers = collector.requests[0]
    assert path == "/v1/metrics"
    assert headers["authorization"] == "Bearer s3cr3t"
    (resource, *_) = collector.resources
    assert resource["service.instance.id"] == "1"
    assert resource.keys() == {
        "service.name",
        "service.namespace",
        "service.instance.id",
        "service.version",
    }


async def send_records(cluster: VirtualCluster) -> None:
    servers = ",".join(map(str, cluster.bootstrap()))
    await cluster.test_client().create_topic("t")
    async with Producer(
        bootstrap_servers=servers, runtime=cluster.client_runtime(), linger_ms=0
    ) as producer:
        for _ in range(5):
            await producer.send("t", b"v", headers=HEADERS)


@scenario(run_in_virtual_cluster, nodes=1)
async def test_nothing_is_traced_by_default(cluster: VirtualCluster, /) -> None:
    await send_records(cluster)
    assert cluster.node(1).broker.traces is None
    assert value_of(cluster.node(1), FAST_PATH_REQUESTS) > 0


@scenario(
    run_in_virtual_cluster,
    nodes=1,
    properties={
        "lograft.otlp.endpoint": "http://127.0.0.1:4318",
        "lograft.otlp.traces.enable": "true",
    },
)
async def test_requests_take_the_general_path_if_records_are_traced(
    cluster: VirtualCluster, /
) -> None:
    """Also if the collector does not exist, as here."""
    await send_records(cluster)
    node = cluster.node(1)
    assert value_of(node, FAST_PATH_REQUESTS) == 0
    while not value_of(node, EXPORT_FAILURES, "traces"):
        await asyncio.sleep(1)
    assert value_of(node, SPANS) == 0
