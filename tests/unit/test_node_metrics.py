"""Nodes yield every declared metric, also if they change during the collection."""

import asyncio

from lograft.api.router import REQUESTS
from lograft.broker.partitions.exporter_series import CURRENT_OFFSET
from lograft.broker.partitions.partition_table import PARTITIONS
from lograft.broker.partitions.topic_traffic import BYTES_IN, TOPICS_HERE
from lograft.client.admin import Admin
from lograft.client.administering.group_offsets import GroupOffset
from lograft.client.consumer import Consumer
from lograft.client.producer import Producer
from lograft.http.exposition import write_families
from lograft.model.metrics import OTHER, SLICE_SAMPLES, Families, gather_all, value_of
from lograft.model.progress_groups import PROGRESS
from lograft.model.types import TopicPartition
from lograft.net.tls_rotation import HANDSHAKES, HANDSHAKES_FAILED
from lograft.runtime.clock import SystemClock
from lograft.runtime.process_metrics import ProcessMetrics
from lograft.testing import VirtualCluster
from tests.support.scenarios import run_in_virtual_cluster, scenario
from tools.generate_metrics import declared_metrics

#: With these, nodes have all metrics. The collector does not exist.
MEASURED = {
    "lograft.slow.request.ms": "0",
    "lograft.otlp.endpoint": "http://127.0.0.1:4318",
    "lograft.otlp.traces.enable": "true",
}


def bootstrap_of(cluster: VirtualCluster) -> str:
    return ",".join(map(str, cluster.bootstrap()))


async def use_clients(cluster: VirtualCluster) -> None:
    """Uses a transaction and a group."""
    servers = bootstrap_of(cluster)
    runtime = cluster.client_runtime()
    async with (
        Producer(bootstrap_servers=servers, runtime=runtime, transactional_id="x") as producer,
        producer.transaction(),
    ):
        await producer.send("t", b"v")
    async with Admin(bootstrap_servers=servers, runtime=runtime) as admin:
        position = GroupOffset(0, PROGRESS)
        await admin.alter_group_offsets("query", {TopicPartition("t", 0): position})
    async with Consumer(
        bootstrap_servers=servers, runtime=runtime, group_id="g", auto_offset_reset="earliest"
    ) as consumer:
        consumer.subscribe("t")
        while not await consumer.poll():
            pass


@scenario(run_in_virtual_cluster, nodes=3, properties=MEASURED)
async def test_nodes_yield_each_declared_metric(cluster: VirtualCluster, /) -> None:
    await cluster.test_client().create_topic("t", partitions=2, replication_factor=3)
    await use_clients(cluster)
    # Nodes of the simulator have no process of their own.
    collected = set(gather_all(ProcessMetrics(SystemClock()).collect_samples()).by_metric)
    collected |= {
        metric
        for node in cluster.nodes().values()
        for metric in gather_all(node.collect_samples()).by_metric
    }
    declared = {metric for metrics in declared_metrics().values() for metric in metrics}
    # These nodes have no TLS listeners; tests/unit/net/test_tls_rotation.py reads these metrics.
    collected |= {HANDSHAKES, HANDSHAKES_FAILED}
    assert {metric.name for metric in declared - collected} == set()
    assert {metric.name for metric in collected - declared} == set()


@scenario(run_in_virtual_cluster, nodes=2)
async def test_nodes_in_one_process_have_separate_metrics(cluster: VirtualCluster, /) -> None:
    client = cluster.test_client()
    await client.create_topic("t")
    for _ in range(5):
        await client.produce("t", 0, [b"v"])
    for node in cluster.nodes().values():
        leads = node.broker.partitions.get("t", 0) is not None
        produced = gather_all(node.collect_samples()).by_metric[REQUESTS]
        assert produced["PLAINTEXT", "Produce"] == (5 if leads else 0)


@scenario(
    run_in_virtual_cluster,
    nodes=1,
    properties={
        "lograft.metrics.topics.max": "5",
        "lograft.metrics.partitions.max": "7",
        "file.delete.delay.ms": "1000",
    },
)
async def test_series_are_bounded_while_topics_are_created_and_deleted_by_the_thousand(
    cluster: VirtualCluster, /
) -> None:
    node = cluster.node(1)
    async with Admin(
        bootstrap_servers=bootstrap_of(cluster), runtime=cluster.client_runtime()
    ) as admin:
        for number in range(5):
            names = [f"t{number}-{each}" for each in range(400)]
            await admin.create_topics(names)
            while value_of(node, PARTITIONS, "leader") < len(names):
                await asyncio.sleep(0.1)
            families = gather_all(node.collect_samples())
            assert len(families.by_metric[BYTES_IN]) <= 5 + 1
            assert len(families.by_metric[CURRENT_OFFSET]) <= 7
            # Every format of a scrape can be written.
            assert all(write_families(families, openmetrics=True))
            await admin.delete_topics(names)
        while value_of(node, TOPICS_HERE):
            await asyncio.sleep(1)
        families = gather_all(node.collect_samples())
    assert set(families.by_metric[BYTES_IN]) == {(OTHER,)}
    assert CURRENT_OFFSET not in families.by_metric


@scenario(run_in_virtual_cluster, nodes=1)
async def test_a_node_may_change_during_a_collection(cluster: VirtualCluster, /) -> None:
    partitions = 3 * SLICE_SAMPLES

    client = cluster.test_client()
    node = cluster.node(1)
    await client.create_topic("t", partitions=partitions)
    while value_of(node, PARTITIONS, "leader") < partitions:
        await asyncio.sleep(0.1)
    families = Families()
    for number, _ in enumerate(families.gather(node.collect_samples())):
        if number == 1:
            # The metrics of its partitions have not been collected yet.
            async with Admin(
                bootstrap_servers=bootstrap_of(cluster), runtime=cluster.client_runtime()
            ) as admin:
                await admin.delete_topics(["t"])
            await client.create_topic("u", partitions=partitions)
    while value_of(node, PARTITIONS, "leader") != partitions:
        await asyncio.sleep(0.1)
    assert node.broker.image.topic("t") is None
