"""Prometheus scrapes a cluster under load: the queries of dashboards return series, and promtool
accepts metrics and alerts."""

import asyncio
import re
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Event, Thread
from typing import Final

import pytest

from lograft.client.admin import NewTopic
from lograft.client.blocking import Admin
from lograft.client.consumer import Consumer
from lograft.client.producer import Producer
from tests.compatibility.clusters import Cluster
from tests.compatibility.monitoring import Prometheus, prometheus_of, promtool
from tests.compatibility.servers import free_port
from tools.generate_dashboard import queries

pytestmark = [pytest.mark.interop, pytest.mark.timeout(600)]

#: Series of a rate need two scrapes under load.
SECONDS_MAX: Final = 120
RATE_INTERVAL: Final = "30s"

#: The queries of kafka_exporter's dashboard, and of others that use its series.
EXPORTER_QUERIES: Final = (
    'sum(rate(kafka_topic_partition_current_offset{topic!="__consumer_offsets"}[1m])) by (topic)',
    "sum(kafka_consumergroup_lag) by (consumergroup, topic)",
    'sum by(topic) (kafka_topic_partitions{topic!="__consumer_offsets"})',
    'sum(delta(kafka_topic_partition_current_offset{topic=~".*"}[5m])/5) by (topic)',
    'sum(delta(kafka_consumergroup_current_offset{consumergroup=~".*"}[5m])/5)'
    " by (consumergroup, topic, partition)",
    "sum(kafka_consumergroup_current_offset) by (consumergroup, topic, partition)",
    "sum(kafka_consumergroup_members) by (consumergroup)",
    "sum(kafka_consumergroup_lag_sum) by (consumergroup)",
    "sum(kafka_consumergroup_current_offset_sum) by (consumergroup)",
    "kafka_brokers",
    "kafka_broker_info",
    "sum(kafka_topic_partition_in_sync_replica) by (topic)",
    "sum(kafka_topic_partition_under_replicated_partition)",
    "kafka_topic_partition_leader_is_preferred",
    "kafka_topic_partition_oldest_offset",
    "kafka_topic_partition_leader",
    "kafka_topic_partition_replicas",
)


def test_promtool_accepts_the_alerts_and_their_examples() -> None:
    for arguments in (
        ("check", "config", "prometheus.yaml"),
        ("check", "rules", "alerts.yaml"),
        ("test", "rules", "alerts-test.yaml"),
    ):
        code, lines = promtool(*arguments)
        assert code == 0, lines


async def use(bootstrap: str, stopping: Event) -> None:
    """Produces, in transactions, and consumes in a group, which falls a little behind."""
    async with (
        Producer(bootstrap_servers=bootstrap, transactional_id="x", acks="all") as producer,
        Consumer(
            bootstrap_servers=bootstrap, group_id="readers", auto_offset_reset="earliest"
        ) as consumer,
    ):
        consumer.subscribe("orders")
        while not stopping.is_set():
            async with producer.transaction():
                for number in range(20):
                    await producer.send("orders", b"%d" % number)
            await consumer.poll(timeout_ms=200)
            await consumer.commit()


@contextmanager
def load(bootstrap: str) -> Iterator[None]:
    with Admin(bootstrap_servers=bootstrap) as admin:
        admin.create_topics([NewTopic("orders", partitions=3, replicas=3)])
    stopping = Event()
    failures: list[BaseException] = []

    def work() -> None:
        try:
            asyncio.run(use(bootstrap, stopping))
        except BaseException as error:
            failures.append(error)

    thread = Thread(target=work)
    thread.start()
    try:
        yield
    finally:
        stopping.set()
        thread.join()
    assert not failures, failures


def find_empty(prometheus: Prometheus, expressions: list[str]) -> list[str]:
    """Returns the expressions that have no series within some time."""
    deadline = time.monotonic() + SECONDS_MAX
    empty = expressions
    while empty and time.monotonic() < deadline:
        time.sleep(0.5)
        empty = [expression for expression in empty if not prometheus.query(expression)]
    return empty


def test_every_query_of_a_dashboard_returns_series(tmp_path: Path) -> None:
    cluster = Cluster.of("lograft", tmp_path / "cluster")
    ports = [free_port() for _ in cluster.servers]
    for server, port in zip(cluster.servers, ports, strict=True):
        server.settings["lograft.http.listeners"] = f"http://127.0.0.1:{port}"
        server.settings["offsets.topic.num.partitions"] = "3"
        # For the time of an fsync.
        server.settings["log.flush.interval.messages"] = "50"
    targets = [f"127.0.0.1:{port}" for port in ports]
    ours = [
        re.sub(
            r"\$\w+",
            lambda found: {"$job": "lograft", "$instance": ".*"}.get(found[0], RATE_INTERVAL),
            query.expression,
        )
        for query in queries()
    ]
    with (
        cluster.started(),
        load(cluster.bootstrap),
        prometheus_of(targets, tmp_path / "prometheus") as prometheus,
    ):
        assert find_empty(prometheus, [*ours, *EXPORTER_QUERIES]) == []
        assert len(prometheus.query('up{job="lograft"} == 1')) == 3
        firing = prometheus.query('ALERTS{alertstate="firing"}')
        assert [each["metric"]["alertname"] for each in firing] == []
        for target in targets:
            with urllib.request.urlopen(f"http://{target}/metrics", timeout=30) as response:
                _, lines = promtool("check", "metrics", text=response.read().decode())
            # The names of kafka_exporter.
            assert [line for line in lines if not re.match(r"kafka_\w+_sum ", line)] == []
