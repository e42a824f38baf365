"""Tests of clusters with nodes of two builds: they negotiate versions during a rolling upgrade, and
producers are affected only by the restarts."""

import asyncio

import pytest

from lograft.model.types import ReplicationMode
from lograft.simulation.cluster import SimulatedCluster
from lograft.wire.apis import Versions
from tests.simulation.test_mode_switch import Writer, check, create, mode_of
from tests.support.scenarios import run_in_simulated_cluster, scenario

#: Versions of an older build by API key, where they differ. BrokerHeartbeat is not included,
#: because the cluster's metadata.version, which every node supports, requires its newest version.
OLDER = {
    1: Versions(4, 17),  # Fetch
    24: Versions(0, 4),  # AddPartitionsToTxn
    27: Versions(1, 1),  # WriteTxnMarkers
    37: Versions(0, 2),  # CreatePartitions
}


@pytest.mark.parametrize("mode", ["isr", "raft"])
@pytest.mark.parametrize("seed", range(2))
def test_rolling_upgrade_while_records_are_produced(seed: int, mode: str) -> None:
    cluster = SimulatedCluster(nodes=3, seed=seed)
    for host in cluster.hosts.values():
        host.api_ranges = OLDER

    async def main() -> None:
        await cluster.start()
        await create(
            cluster.client(), min_insync_replicas="2", retention_ms="-1", replication_mode=mode
        )
        await cluster.wait_for(
            lambda: mode_of(cluster) is ReplicationMode[mode.upper()], seconds=30
        )
        writer = Writer(cluster.client("writer"))
        work = asyncio.ensure_future(writer.run())
        await writer.wait_for_more(cluster)
        for node_id, host in cluster.hosts.items():
            await cluster.stop(node_id)
            host.api_ranges = None
            await cluster.start(node_id)
            await writer.wait_for_more(cluster, 20)
        # A downgrade works the same way.
        await cluster.stop(2)
        cluster.hosts[2].api_ranges = OLDER
        await cluster.start(2)
        await writer.wait_for_more(cluster, 20)
        writer.is_stopped = True
        await work
        await asyncio.sleep(2)
        check(cluster, writer)

    cluster.run(main())


@scenario(run_in_simulated_cluster, nodes=3, seed=1)
async def test_incompatible_node_is_logged_and_the_others_continue(
    cluster: SimulatedCluster, /, caplog: pytest.LogCaptureFixture
) -> None:
    await cluster.start()
    await create(cluster.client(), min_insync_replicas="2", retention_ms="-1")
    writer = Writer(cluster.client("writer"))
    work = asyncio.ensure_future(writer.run())
    await writer.wait_for_more(cluster)
    # Votes without pre-votes, and fetches without directories: older than this build supports.
    await cluster.stop(3)
    cluster.hosts[3].api_ranges = {1: Versions(4, 16), 52: Versions(0, 1)}
    cluster.boot(3)
    await asyncio.sleep(10)
    await writer.wait_for_more(cluster)
    warnings = [text for text in caplog.messages if "retrying until that node is upgraded" in text]
    assert warnings
    # Once for each connection and API, although it is retried many times per second.
    assert len(warnings) < 40, len(warnings)
    cluster.kill(3)
    cluster.hosts[3].api_ranges = None
    await cluster.start(3)
    await writer.wait_for_more(cluster)
    writer.is_stopped = True
    await work
    await asyncio.sleep(2)
    check(cluster, writer)
