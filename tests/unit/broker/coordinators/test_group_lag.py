"""The lag of groups, also in partitions with other leaders, within the limits of the settings."""

import asyncio

from lograft.broker.coordinators.end_offsets import REFRESH_MS_MIN
from lograft.broker.coordinators.end_offsets import REQUESTS as END_REQUESTS
from lograft.broker.coordinators.group_lag import (
    EXPORTER_LAG,
    EXPORTER_LAG_SUM,
    EXPORTER_MEMBERS,
    EXPORTER_OFFSET,
    EXPORTER_OFFSET_SUM,
    LAG,
    LAG_UNKNOWN,
    PARTITION_LAG,
    PROGRESS_AGE,
    PROGRESS_GROUPS,
)
from lograft.broker.partitions.exporter_series import CURRENT_OFFSET, TOPIC_PARTITIONS
from lograft.client.admin import Admin
from lograft.client.administering.group_offsets import GroupOffset
from lograft.model.metrics import OTHER, Metric, gather_all
from lograft.model.progress_groups import PROGRESS
from lograft.model.retention_holds import format_hold
from lograft.model.types import TopicPartition
from lograft.testing import VirtualCluster
from tests.support.scenarios import run_in_virtual_cluster, scenario

#: One partition coordinates all groups, so that a node's collections contain all lags.
ONE_COORDINATOR = {"offsets.topic.num.partitions": "1"}


async def commit(
    cluster: VirtualCluster, group: str, offsets: dict[int, int | GroupOffset]
) -> None:
    async with Admin(
        bootstrap_servers=",".join(map(str, cluster.bootstrap())), runtime=cluster.client_runtime()
    ) as admin:
        await admin.alter_group_offsets(
            group, {TopicPartition("t", index): offset for index, offset in offsets.items()}
        )


def series(cluster: VirtualCluster, metric: Metric) -> dict[tuple[str, ...], float]:
    """Returns the series of all nodes; those with equal labels are added up."""
    found: dict[tuple[str, ...], float] = {}
    for node in cluster.nodes().values():
        for labels, value in gather_all(node.collect_samples()).by_metric.get(metric, {}).items():
            assert isinstance(value, float | int)
            found[labels] = found.get(labels, 0) + value
    return found


async def wait_refresh(cluster: VirtualCluster) -> None:
    """Makes the coordinators request the end offsets of partitions that are led elsewhere."""
    await asyncio.sleep(REFRESH_MS_MIN / 1000)
    series(cluster, LAG)
    await asyncio.sleep(1)


async def create(cluster: VirtualCluster, partitions: int, records: int) -> None:
    client = cluster.test_client()
    await client.create_topic("t", partitions=partitions)
    for index in range(partitions):
        for _ in range(records):
            await client.produce("t", index, [b"v"])


@scenario(run_in_virtual_cluster, nodes=3, properties=ONE_COORDINATOR)
async def test_lag_includes_partitions_of_other_leaders(cluster: VirtualCluster, /) -> None:
    await create(cluster, partitions=3, records=5)
    leaders = {cluster.leader_of("t", index) for index in range(3)}
    assert len(leaders) > 1
    await commit(cluster, "g", {0: 5, 1: 3, 2: 0})
    # The first collection requests the unknown end offsets.
    unknown = series(cluster, LAG_UNKNOWN)[()]
    assert unknown > 0
    await asyncio.sleep(1)
    assert series(cluster, LAG_UNKNOWN)[()] == 0
    assert series(cluster, LAG) == {("g",): 7, (OTHER,): 0}
    lags = {("g", "t", "0"): 0, ("g", "t", "1"): 2, ("g", "t", "2"): 5}
    assert series(cluster, PARTITION_LAG) == series(cluster, EXPORTER_LAG) == lags
    assert series(cluster, EXPORTER_LAG_SUM) == {("g", "t"): 7}
    assert series(cluster, EXPORTER_OFFSET_SUM) == {("g", "t"): 8}
    assert series(cluster, EXPORTER_OFFSET)["g", "t", "1"] == 3
    assert series(cluster, EXPORTER_MEMBERS) == {("g",): 0}

    client = cluster.test_client()
    for index in range(3):
        await client.produce("t", index, [b"v"] * 10)
    await wait_refresh(cluster)
    assert series(cluster, LAG)["g",] == 37


@scenario(run_in_virtual_cluster, nodes=2, properties=ONE_COORDINATOR)
async def test_ends_are_requested_only_while_metrics_are_collected(
    cluster: VirtualCluster, /
) -> None:
    await create(cluster, partitions=2, records=1)
    await commit(cluster, "g", {0: 0, 1: 0})
    series(cluster, LAG)
    await asyncio.sleep(1)
    before = series(cluster, END_REQUESTS)
    assert before[()] > 0
    await asyncio.sleep(10 * REFRESH_MS_MIN / 1000)
    assert series(cluster, END_REQUESTS) == before


@scenario(run_in_virtual_cluster, nodes=2, properties=ONE_COORDINATOR)
async def test_a_group_ahead_of_what_is_known_of_a_partition_has_no_lag(
    cluster: VirtualCluster, /
) -> None:
    await create(cluster, partitions=2, records=2)
    await commit(cluster, "g", {0: 7, 1: 7})
    await wait_refresh(cluster)
    assert series(cluster, LAG)["g",] == 0


@scenario(
    run_in_virtual_cluster,
    nodes=1,
    properties={
        **ONE_COORDINATOR,
        "lograft.metrics.groups.max": "2",
        "lograft.metrics.partitions.max": "3",
    },
)
async def test_groups_beyond_the_limit_are_added_up(cluster: VirtualCluster, /) -> None:
    await create(cluster, partitions=2, records=10)
    await commit(cluster, "small", {0: 9, 1: 10})
    await commit(cluster, "large", {0: 0, 1: 0})
    await commit(cluster, "medium", {0: 5, 1: 10})
    series(cluster, LAG)
    assert series(cluster, LAG) == {("large",): 20, ("medium",): 5, (OTHER,): 1}
    assert len(series(cluster, PARTITION_LAG)) == 3
    assert len(series(cluster, EXPORTER_LAG)) == 3
    assert len(series(cluster, CURRENT_OFFSET)) == 3
    assert series(cluster, EXPORTER_LAG_SUM).keys() <= {("large", "t"), ("medium", "t")}


@scenario(
    run_in_virtual_cluster,
    nodes=1,
    properties={**ONE_COORDINATOR, "lograft.metrics.kafka.exporter.enable": "false"},
)
async def test_the_names_of_kafka_exporter_can_be_switched_off(cluster: VirtualCluster, /) -> None:
    await create(cluster, partitions=1, records=1)
    await commit(cluster, "g", {0: 0})
    families = gather_all(cluster.node(1).collect_samples())
    assert [m.name for m in families.by_metric if m.name.startswith("kafka_")] == []
    assert series(cluster, PARTITION_LAG) == {("g", "t", "0"): 1}


@scenario(run_in_virtual_cluster, nodes=3, properties=ONE_COORDINATOR)
async def test_brokers_together_report_each_partition_once(cluster: VirtualCluster, /) -> None:
    client = cluster.test_client()
    await client.create_topic("t", partitions=4, replication_factor=3)
    await client.produce("t", 1, [b"v", b"w"])
    offsets = series(cluster, CURRENT_OFFSET)
    assert {labels: value for labels, value in offsets.items() if labels[0] == "t"} == {
        ("t", "0"): 0,
        ("t", "1"): 2,
        ("t", "2"): 0,
        ("t", "3"): 0,
    }
    assert series(cluster, TOPIC_PARTITIONS)["t",] == 4


@scenario(run_in_virtual_cluster, nodes=1, properties=ONE_COORDINATOR)
async def test_progress_groups_of_spark_are_known_by_their_commits(
    cluster: VirtualCluster, /
) -> None:
    await create(cluster, partitions=1, records=1)
    await commit(cluster, "consumers", {0: GroupOffset(0, "spark-progress-report")})
    await commit(cluster, "query", {0: GroupOffset(0, f"{PROGRESS} {format_hold(9)}")})
    await asyncio.sleep(60)
    assert series(cluster, PROGRESS_GROUPS) == {(): 1}
    ages = series(cluster, PROGRESS_AGE)
    assert ages.keys() == {("query",)}
    assert 60 <= ages["query",] < 61
