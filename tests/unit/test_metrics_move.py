"""Each metric of a node moves when the thing that it measures happens.

The tests here run a cluster in virtual time and change something; `moving` names the metrics that
this has to move. Metrics that other tests already follow are listed in `ELSEWHERE`, and a test
checks that no metric is missing.
"""

import ast
import asyncio
import re
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from importlib import import_module
from itertools import count
from typing import Any, Final
from uuid import UUID

import pytest

from lograft.broker.shared_services import METADATA_LAG
from lograft.client.admin import Admin, ConfigChange, NewTopic, topic_resource
from lograft.client.consumer import Consumer
from lograft.client.errors import ClientError
from lograft.client.producer import Producer
from lograft.metadata.image import ACLS, MetadataImage
from lograft.model.metrics import Metric, Value, gather_all, value_of
from lograft.model.types import Epoch, Offset, TopicPartition
from lograft.testing import VirtualCluster
from lograft.wire.records.access_control_entry_record import AccessControlEntryRecord
from tests.support.repository import ROOT
from tests.support.scenarios import run_in_virtual_cluster, scenario
from tools.generate_metrics import declared_metrics

#: Virtual time is free: at most so long for all metrics to move.
SECONDS_MAX: Final = 120
#: Short enough to see figures that exist only for a moment, such as a request in flight.
SAMPLING_SECONDS: Final = 0.005
#: So many samples; those after them are further apart.
CLOSE_SAMPLES: Final = 200
#: For what an action starts, and what does not take long.
LINGERING_SECONDS: Final = 1.0

Figures = dict[tuple[int, str, tuple[str, ...]], Value]


def figures_of(cluster: VirtualCluster) -> Figures:
    return {
        (node_id, metric.name, labels): value
        for node_id, node in cluster.nodes().items()
        for metric, series in gather_all(node.collect_samples()).by_metric.items()
        for labels, value in series.items()
    }


@asynccontextmanager
async def moving(cluster: VirtualCluster, *names: str) -> AsyncIterator[None]:
    """What happens inside moves each of these metrics, on some node."""
    before = figures_of(cluster)
    remaining = set(names)

    def look() -> None:
        for key, value in figures_of(cluster).items():
            name = key[1]
            # A counter starts at 0, and a gauge appears with the thing that it describes.
            start = before.get(key, 0 if name.endswith("_total") else None)
            if name in remaining and start != value:
                remaining.discard(name)

    async def sample() -> None:
        for number in count():
            look()
            await asyncio.sleep(SAMPLING_SECONDS if number < CLOSE_SAMPLES else 0.1)
            if not remaining:
                break

    sampling = asyncio.get_running_loop().create_task(sample())
    try:
        yield
        await asyncio.sleep(LINGERING_SECONDS)
        sampling.cancel()
        deadline = asyncio.get_running_loop().time() + SECONDS_MAX
        while remaining and asyncio.get_running_loop().time() < deadline:
            await asyncio.sleep(0.1)
            look()
    finally:
        sampling.cancel()
    assert not remaining, f"did not move: {sorted(remaining)}"


class Clients:
    def __init__(self, cluster: VirtualCluster) -> None:
        self.cluster = cluster
        self._options: dict[str, Any] = {
            "bootstrap_servers": ",".join(map(str, cluster.bootstrap())),
            "runtime": cluster.client_runtime(),
        }

    def producer(self, **settings: Any) -> Producer:
        return Producer(**self._options, **settings)

    def consumer(self, **settings: Any) -> Consumer:
        return Consumer(**self._options, auto_offset_reset="earliest", **settings)

    def admin(self) -> Admin:
        return Admin(**self._options)

    async def create(
        self, name: str, *, partitions: int = 1, replicas: int = 1, **configs: str
    ) -> None:
        async with self.admin() as admin:
            settings = {key.replace("_", "."): value for key, value in configs.items()}
            await admin.create_topics([NewTopic(name, partitions, replicas, settings)])
        while any(
            self.cluster.image.topic(name) is None or not node.broker.partitions.get(name, 0)
            for node in self.cluster.nodes().values()
            if replicas == len(self.cluster.hosts)
        ):
            await asyncio.sleep(0.1)

    async def send(self, topic: str, *values: bytes, **settings: Any) -> None:
        async with self.producer(**settings) as producer:
            for value in values:
                await producer.send(topic, value, partition=0)


@scenario(run_in_virtual_cluster, nodes=3)
async def test_topics(cluster: VirtualCluster, /) -> None:
    clients = Clients(cluster)
    async with moving(
        cluster,
        "kafka_topic_partition_leader",
        "kafka_topic_partition_replicas",
        "kafka_topic_partition_in_sync_replica",
        "lograft_cluster_partitions",
        "lograft_controller_commit_seconds",
        "lograft_controller_requests_total",
        "lograft_follower_session_partitions",
        "lograft_log_segments",
        "lograft_logs",
        "lograft_metadata_offset",
        "lograft_partitions_by_state",
        "lograft_partitions_followed",
        "lograft_quorum_commit_waits",
        "lograft_quorum_high_watermark",
        "lograft_quorum_log_end_offset",
        "lograft_quorum_requests_in_flight",
        "lograft_quorum_uncommitted_batches",
        "lograft_topics",
    ):
        await clients.create("t", partitions=3, replicas=3)
    async with moving(
        cluster,
        "lograft_log_size_bytes",
        "lograft_log_producers",
        "lograft_producer_ids_available",
        "lograft_replica_fetches_total",
        "lograft_topic_records_in_total",
        "lograft_topic_replication_in_bytes_total",
        "lograft_topic_replication_out_bytes_total",
    ):
        await clients.send("t", b"v")
    async with moving(cluster, "lograft_dynamic_configs"), clients.admin() as admin:
        await admin.alter_configs({topic_resource("t"): [ConfigChange("flush.messages", "1")]})
    async with moving(cluster, "lograft_log_flush_seconds", "lograft_log_flushes_total"):
        await clients.send("t", b"v")
    async with (
        moving(cluster, "kafka_topic_partition_oldest_offset"),
        clients.admin() as admin,
    ):
        await admin.delete_records({TopicPartition("t", 0): 1})
    async with moving(cluster, "lograft_logs_to_delete"), clients.admin() as admin:
        await admin.delete_topics(["t"])


@scenario(
    run_in_virtual_cluster,
    nodes=3,
    properties={"leader.imbalance.check.interval.seconds": "5"},
)
async def test_a_dead_broker_and_its_return(cluster: VirtualCluster, /) -> None:
    clients = Clients(cluster)
    await clients.create("three", partitions=3, replicas=3, min_insync_replicas="3")
    await clients.create("two", partitions=3, replicas=3, min_insync_replicas="2")
    await clients.create("one", partitions=3)
    await clients.send("two", b"v")
    dead = cluster.controller_id
    async with moving(
        cluster,
        "kafka_broker_info",
        "kafka_brokers",
        "kafka_topic_partition_leader_is_preferred",
        "kafka_topic_partition_under_replicated_partition",
        "lograft_broker_sessions",
        "lograft_brokers",
        "lograft_cluster_partitions_leaderless",
        "lograft_cluster_partitions_not_preferred",
        "lograft_controller_active",
        "lograft_controller_brokers_fenced_total",
        "lograft_controller_leader_elections_total",
        "lograft_metadata_epoch",
        "lograft_partitions_at_min_isr",
        "lograft_partitions_under_min_isr",
        "lograft_partitions_under_replicated",
        "lograft_quorum_epoch",
        "lograft_quorum_leader_id",
        "lograft_quorum_role",
    ):
        cluster.kill(dead)
    async with moving(
        cluster,
        "lograft_broker_epoch",
        "lograft_broker_stage",
        "lograft_isr_expansions_total",
        "lograft_leader_balancer_rounds_total",
        "lograft_log_load_seconds",
        "lograft_logs_recovered_total",
        "lograft_log_dirs",
        "lograft_quorum_voters",
    ):
        cluster.boot(dead)
        await cluster.wait_serving(dead)


@scenario(run_in_virtual_cluster, nodes=3, properties={"replica.lag.time.max.ms": "2000"})
async def test_a_replica_that_falls_behind(cluster: VirtualCluster, /) -> None:
    clients = Clients(cluster)
    await clients.create("t", replicas=3)
    leader = cluster.leader_of("t", 0)
    controller = cluster.controller_id
    follower = next(each for each in cluster.hosts if each not in (leader, controller))
    async with moving(cluster, "lograft_isr_shrinks_total"):
        cluster.cut(leader, follower)
        await clients.send("t", b"v", acks=1)
        await asyncio.sleep(5)
    cluster.heal()


@scenario(run_in_virtual_cluster, nodes=3)
async def test_groups(cluster: VirtualCluster, /) -> None:
    clients = Clients(cluster)
    await clients.create("t", partitions=3, replicas=1)
    await clients.send("t", b"v")
    async with (
        moving(
            cluster,
            "lograft_coordinator_load_seconds",
            "lograft_coordinator_requests_total",
            "lograft_end_offset_requests_total",
            "lograft_group_members",
            "lograft_group_offsets",
            "lograft_topic_out_bytes_total",
        ),
        clients.consumer(group_id="g") as consumer,
    ):
        consumer.subscribe("t")
        while not await consumer.poll():
            pass
        await consumer.commit()
    await clients.create("once", replicas=1, subscription_mode="ptp")
    async with (
        moving(
            cluster,
            "lograft_topic_claim_requests_total",
            "lograft_topic_claims_rejected_total",
        ),
        clients.consumer(group_id="first") as first,
        clients.consumer(group_id="second") as second,
    ):
        first.subscribe("once")
        await first.poll(timeout_ms=2_000)
        second.subscribe("once")
        try:
            await second.poll(timeout_ms=2_000)
        except ClientError:
            pass


@scenario(run_in_virtual_cluster, nodes=3)
async def test_transactions(cluster: VirtualCluster, /) -> None:
    clients = Clients(cluster)
    await clients.create("t", partitions=3, replicas=1)
    async with (
        moving(
            cluster,
            "lograft_log_open_transactions",
            "lograft_marker_requests_total",
            "lograft_markers_total",
            "lograft_oldest_transaction_age_seconds",
            "lograft_transaction_verifications_total",
            "lograft_transactional_ids",
        ),
        clients.producer(transactional_id="x") as producer,
    ):
        for partition in range(3):
            async with producer.transaction():
                await producer.send("t", b"v", partition=partition)
                await asyncio.sleep(1)


@scenario(run_in_virtual_cluster, nodes=3)
async def test_a_transaction_begins_before_the_markers_of_the_previous_one_are_written(
    cluster: VirtualCluster, /
) -> None:
    clients = Clients(cluster)
    await clients.create("t", partitions=3, replicas=1)
    async with clients.producer(transactional_id="x") as producer:
        async with producer.transaction():
            await producer.send("t", b"v", partition=0)
        (coordinator,) = {
            key[0]
            for key, value in figures_of(cluster).items()
            if key[1] == "lograft_transactional_ids" and value
        }
        leaders = {index: cluster.leader_of("t", index) for index in range(3)}
        away = next(index for index, leader in leaders.items() if leader != coordinator)
        near = next(index for index, leader in leaders.items() if leader != leaders[away])
        async with moving(
            cluster,
            "lograft_marker_retries_total",
            "lograft_transaction_verification_retries_total",
        ):
            async with producer.transaction():
                await producer.send("t", b"v", partition=away)
                await producer.flush()
                cluster.cut(leaders[away], coordinator)
                asyncio.get_running_loop().call_later(5, cluster.heal)
            async with producer.transaction():
                await producer.send("t", b"v", partition=near)


@scenario(run_in_virtual_cluster, nodes=1)
async def test_rejected_requests(cluster: VirtualCluster, /) -> None:
    clients = Clients(cluster)
    await clients.create("t", max_message_bytes="100")
    async with moving(
        cluster, "lograft_topic_rejected_batches_total", "lograft_topic_rejected_bytes_total"
    ):
        try:
            await clients.send("t", b"v" * 1_000, acks="all")
        except ClientError:
            pass
    async with (
        moving(cluster, "lograft_topic_failed_fetches_total"),
        clients.consumer() as consumer,
    ):
        consumer.assign([TopicPartition("t", 0)])
        consumer.seek(TopicPartition("t", 0), 5)
        await consumer.poll(timeout_ms=2_000)
    async with (
        moving(cluster, "lograft_delayed_requests", "lograft_delayed_requests_expired_total"),
        clients.consumer() as consumer,
    ):
        consumer.assign([TopicPartition("t", 0)])
        await consumer.poll(timeout_ms=2_000)


@scenario(
    run_in_virtual_cluster,
    nodes=1,
    properties={
        "log.retention.check.interval.ms": "1000",
        "log.cleaner.backoff.ms": "1000",
        "log.segment.delete.delay.ms": "1000",
        "log.initial.task.delay.ms": "100",
    },
)
async def test_retention_and_compaction(cluster: VirtualCluster, /) -> None:
    clients = Clients(cluster)
    await clients.create("short", segment_bytes="1048576", retention_bytes="1048576")
    async with moving(
        cluster,
        "lograft_retention_deleted_bytes_total",
        "lograft_retention_deleted_segments_total",
    ):
        for _ in range(10):
            await clients.send("short", b"v" * 700_000)
    await clients.create(
        "compacted",
        cleanup_policy="compact",
        segment_bytes="1048576",
        min_cleanable_dirty_ratio="0.01",
    )
    async with (
        moving(
            cluster,
            "lograft_cleaner_last_check_age_seconds",
            "lograft_cleaner_max_dirty_ratio",
            "lograft_cleaner_pass_seconds",
        ),
        clients.producer() as producer,
    ):
        for _ in range(10):
            await producer.send("compacted", b"v" * 700_000, key=b"k", partition=0)
            await producer.flush()


@scenario(run_in_virtual_cluster, nodes=4)
async def test_reassignments(cluster: VirtualCluster, /) -> None:
    clients = Clients(cluster)
    await clients.create("t", replicas=3)
    await clients.send("t", *[b"v" * 1_000] * 20)
    (missing,) = set(cluster.hosts) - set(cluster.image.topic("t").partitions[0].replicas)  # type: ignore[union-attr]
    async with (
        moving(
            cluster,
            "lograft_cluster_partitions_reassigning",
            "lograft_partitions_reassigning",
            "lograft_replica_fetches_pending",
        ),
        clients.admin() as admin,
    ):
        leader = cluster.leader_of("t", 0)
        await admin.reassign({TopicPartition("t", 0): [leader, missing]})


@scenario(run_in_virtual_cluster, nodes=3)
async def test_a_switch_of_the_replication_mode(cluster: VirtualCluster, /) -> None:
    clients = Clients(cluster)
    await clients.create("t", replicas=3)
    await clients.send("t", b"v")
    async with (
        moving(
            cluster,
            "lograft_cluster_partitions_switching_mode",
            "lograft_partitions_switching_mode",
            "lograft_raft_partitions",
            "lograft_raft_partitions_entering",
            "lograft_raft_report_requests_total",
            "lograft_vote_journal_entries",
            "lograft_vote_journal_partitions",
        ),
        clients.admin() as admin,
    ):
        await admin.alter_replication("t", mode="raft")
    async with moving(cluster, "lograft_raft_vote_requests_total"):
        cluster.kill(cluster.leader_of("t", 0))


@scenario(run_in_virtual_cluster, nodes=1)
async def test_metadata_and_settings_that_are_not_applied(cluster: VirtualCluster, /) -> None:
    clients, shared = Clients(cluster), cluster.node(1).shared
    async with moving(cluster, "lograft_metadata_apply_failures"):
        shared.metadata.apply_failures.append(lambda: iter(["a listener could not be opened"]))
    # Between the commit of a record and its replay.
    await clients.create("t")
    shared.image.offset = Offset(shared.image.offset - 5)
    assert value_of(shared, METADATA_LAG) >= 5


def test_stored_acls() -> None:
    image = MetadataImage()
    record = AccessControlEntryRecord(
        id=UUID(int=1),
        resource_type=2,
        resource_name="t",
        pattern_type=3,
        principal="User:a",
        host="*",
        operation=3,
        permission_type=3,
    )
    image.apply([record], offset=Offset(1), epoch=Epoch(1))
    assert value_of(image, ACLS) == 1


#: The tests that read a metric: by name.
ELSEWHERE: Final[Mapping[str, str]] = {
    "lograft_connections_delayed_total": "unit/net/test_server.py",
    "lograft_quota_clients": "unit/broker/test_client_quotas.py",
    "lograft_quota_clients_evicted_total": "unit/broker/test_client_quotas.py",
    "lograft_quota_throttle_seconds_total": "unit/broker/test_client_quotas.py",
    "lograft_quota_throttled_requests_total": "unit/broker/test_client_quotas.py",
    "lograft_acls": "unit/test_metrics_move.py",
    "lograft_cleaner_uncleanable_partitions": "unit/broker/logs/test_log_cleaner.py",
    "lograft_metadata_lag": "unit/test_metrics_move.py",
    "kafka_consumergroup_current_offset": "unit/broker/coordinators/test_group_lag.py",
    "kafka_consumergroup_current_offset_sum": "unit/broker/coordinators/test_group_lag.py",
    "kafka_consumergroup_lag": "unit/broker/coordinators/test_group_lag.py",
    "kafka_consumergroup_lag_sum": "unit/broker/coordinators/test_group_lag.py",
    "kafka_consumergroup_members": "unit/broker/coordinators/test_group_lag.py",
    "kafka_topic_partition_current_offset": "unit/broker/coordinators/test_group_lag.py",
    "kafka_topic_partitions": "unit/broker/coordinators/test_group_lag.py",
    "lograft_cleaner_io_bytes_total": "unit/broker/logs/test_log_cleaner.py",
    "lograft_cleaner_passes_total": "unit/broker/logs/test_log_cleaner.py",
    "lograft_committed_records_lost_total": "unit/broker/replicas/test_replicas.py",
    "lograft_connections": "unit/net/test_server.py",
    "lograft_connections_accepted_total": "unit/net/test_server.py",
    "lograft_connections_closed_total": "unit/net/test_connection.py",
    "lograft_connections_paused": "unit/net/test_frame_memory.py",
    "lograft_connections_rejected_total": "unit/net/test_server.py",
    "lograft_connections_throttled_total": "unit/net/test_connection.py",
    "lograft_controller_request_retries_total": "simulation/test_control_plane.py",
    "lograft_coordinator_partitions": "unit/broker/coordinators/test_coordinators.py",
    "lograft_event_loop_delay_seconds": "unit/runtime/test_process_metrics.py",
    "lograft_fast_path_requests_total": "unit/api/test_request_times.py",
    "lograft_fetch_session_evictions_total": "unit/broker/partitions/test_fetch_sessions.py",
    "lograft_fetch_session_partitions": "unit/broker/partitions/test_fetch_sessions.py",
    "lograft_fetch_sessions": "unit/broker/partitions/test_fetch_sessions.py",
    "lograft_follower_sessions": "unit/api/test_follower_fetch.py",
    "lograft_followers_failed_total": "unit/broker/replicas/test_random_faults.py",
    "lograft_frame_buffer_bytes": "unit/net/test_frame_memory.py",
    "lograft_group_lag": "unit/broker/coordinators/test_group_lag.py",
    "lograft_group_lag_unknown_partitions": "unit/broker/coordinators/test_group_lag.py",
    "lograft_group_partition_lag": "unit/broker/coordinators/test_group_lag.py",
    "lograft_groups": "unit/coordination/test_unsupported_groups.py",
    "lograft_http_connections": "unit/http/test_listener.py",
    "lograft_http_connections_accepted_total": "unit/http/test_listener.py",
    "lograft_http_connections_rejected_total": "unit/http/test_listener.py",
    "lograft_isr_change_requests_total": "unit/broker/replicas/test_isr_changes.py",
    "lograft_isr_changes_waiting": "unit/broker/replicas/test_isr_changes.py",
    "lograft_log_dir_failures_total": "unit/broker/logs/test_log_manager.py",
    "lograft_otlp_batches_dropped_total": "unit/broker/test_record_traces.py",
    "lograft_otlp_export_failures_total": "unit/telemetry/test_exporter.py",
    "lograft_otlp_exports_total": "unit/telemetry/test_exporter.py",
    "lograft_otlp_rejected_total": "unit/telemetry/test_exporter.py",
    "lograft_otlp_spans_dropped_total": "unit/broker/test_record_traces.py",
    "lograft_otlp_spans_total": "unit/telemetry/test_exporter.py",
    "lograft_partitions": "unit/broker/test_broker.py",
    "lograft_partitions_with_followers": "unit/broker/replicas/test_isr_changes.py",
    "lograft_peer_connections": "unit/broker/links/test_peers.py",
    "lograft_queued_request_bytes": "unit/net/test_frame_memory.py",
    "lograft_quorum_log_start_offset": "unit/broker/quorum/test_quorum.py",
    "lograft_replication_throttled_total": "unit/broker/replicas/test_replicas.py",
    "lograft_request_errors_total": "unit/api/test_response_errors.py",
    "lograft_request_seconds": "unit/api/test_request_times.py",
    "lograft_request_stage_seconds": "unit/api/test_request_times.py",
    "lograft_requests_total": "unit/api/test_router.py",
    "lograft_slow_requests_total": "unit/api/test_slow_requests.py",
    "lograft_spark_progress_age_seconds": "unit/broker/coordinators/test_group_lag.py",
    "lograft_spark_progress_groups": "unit/broker/coordinators/test_group_lag.py",
    "lograft_telemetry_clients": "unit/broker/test_client_telemetry.py",
    "lograft_telemetry_dropped_points_total": "unit/api/test_push_telemetry.py",
    "lograft_telemetry_points": "unit/broker/test_client_telemetry.py",
    "lograft_telemetry_pushed_bytes_total": "unit/api/test_push_telemetry.py",
    "lograft_telemetry_pushes_total": "unit/api/test_push_telemetry.py",
    "lograft_telemetry_subscriptions": "unit/broker/test_client_telemetry.py",
    "lograft_tls_handshakes_failed_total": "unit/net/test_tls_rotation.py",
    "lograft_tls_handshakes_total": "unit/net/test_tls_rotation.py",
    "lograft_topic_in_bytes_total": "unit/broker/partitions/test_topic_traffic.py",
    "lograft_local_topics": "unit/broker/partitions/test_topic_traffic.py",
    "lograft_transactions_completing": "unit/broker/coordinators/test_marker_sender.py",
    "lograft_transactions_ongoing": "unit/coordination/test_transaction_shard.py",
    "process_cpu_seconds_total": "unit/runtime/test_process_metrics.py",
    "process_max_fds": "unit/runtime/test_process_metrics.py",
    "process_open_fds": "unit/runtime/test_process_metrics.py",
    "process_resident_memory_bytes": "unit/runtime/test_process_metrics.py",
    "process_start_time_seconds": "unit/runtime/test_process_metrics.py",
    "process_virtual_memory_bytes": "unit/runtime/test_process_metrics.py",
}


def find_constant(metric: Metric) -> str:
    """Returns the name under which tests import the metric."""
    for module_name, metrics in declared_metrics().items():
        if metric in metrics:
            module = import_module(module_name)
            return next(name for name in module.__annotations__ if vars(module)[name] is metric)
    raise LookupError(metric.name)


def reads(source: str, constant: str) -> bool:
    """Returns whether a function of the source passes the constant to a call that reads its value,
    such as value_of, or looks it up in a collection, to compare the result or to return it."""
    return any(
        isinstance(statement, ast.Assert | ast.Return | ast.Assign | ast.AugAssign | ast.While)
        and any(
            isinstance(node, ast.Name) and node.id == constant
            for part in ast.walk(statement)
            for read in read_parts(part)
            for node in ast.walk(read)
        )
        for function in ast.walk(ast.parse(source))
        if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef)
        for statement in ast.walk(function)
    ) or any(
        isinstance(call, ast.Call)
        and isinstance(call.func, ast.Name)
        and call.func.id in ("wait_until", "wait_until_async")
        and any(isinstance(node, ast.Name) and node.id == constant for node in ast.walk(call))
        for call in ast.walk(ast.parse(source))
    )


def read_parts(node: ast.AST) -> list[ast.expr]:
    """Returns the arguments of a call, or the key of a lookup."""
    match node:
        case ast.Call(args=arguments):
            return arguments
        case ast.Subscript(slice=key, ctx=ast.Load()):
            return [key]
        case _:
            return []


@pytest.mark.parametrize(
    ("statement", "is_read"),
    [
        ("assert value_of(node, LAG) == 3", True),
        ("assert families[LAG] == 3", True),
        ("lag = value_of(node, LAG, 'group')", True),
        ("while not value_of(node, LAG): pass", True),
        ("wait_until(lambda: value_of(node, LAG))", True),
        ("LAG", False),
        ("print(LAG)", False),
        ("value_of(node, LAG)", False),
        ("assert LAG", False),
        ("assert value_of(node, LAGGING) == 3", False),
    ],
)
def test_what_counts_as_reading_a_metric(statement: str, is_read: bool) -> None:
    source = f"from lograft import LAG\ndef test_x():\n  {statement}\n"
    assert reads(source, "LAG") is is_read


def test_every_metric_is_followed_by_a_test() -> None:
    text = (ROOT / "tests" / "unit" / "test_metrics_move.py").read_text()
    here = set(re.findall(r'"((?:lograft|kafka)_\w+)"', text.partition("ELSEWHERE: Final")[0]))
    declared = {each.name: each for metrics in declared_metrics().values() for each in metrics}
    assert here <= declared.keys(), here - declared.keys()
    assert declared.keys() - here == ELSEWHERE.keys()
    for name, file in ELSEWHERE.items():
        source = (ROOT / "tests" / file).read_text()
        assert reads(source, find_constant(declared[name])), f"{file} does not read {name}"
