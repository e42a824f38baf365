"""What a stalled producer or consumer waits for, according to the cluster."""

from lograft.cli.stall_watch import find_missing_leaders, find_reason
from lograft.client.admin import Admin, NewTopic
from lograft.client.producing.settings import ProducerSettings
from lograft.testing import VirtualCluster
from tests.support.scenarios import scenario
from tests.unit.client.administering.admin_scenarios import play

SETTINGS = ProducerSettings.read({"bootstrap.servers": "localhost:9092"})
TIMEOUT = "; giving up after 120 s (delivery.timeout.ms)"


@scenario(play, nodes=3)
async def test_leader_that_the_metadata_still_contains_is_named(
    cluster: VirtualCluster, admin: Admin, /
) -> None:
    """Without a majority of the quorum no other leader is elected."""
    await admin.create_topics(
        [NewTopic("t", assignment={0: [2, 1, 3], 1: [1, 2, 3], 2: [2, 3, 1]})]
    )
    for node in (2, 3):
        cluster.kill(node)
    reason = await find_reason(admin, SETTINGS, "t")
    assert reason.startswith("waiting for broker 2, the leader of t-0, t-2: ")
    assert "connection refused" in reason
    assert reason.endswith(TIMEOUT)


@scenario(play, nodes=3)
async def test_partition_without_a_leader_is_named(
    cluster: VirtualCluster, admin: Admin, /
) -> None:
    await admin.create_topics([NewTopic("t", assignment={0: [2], 1: [1]})])
    cluster.kill(2)
    await cluster.wait_for(lambda: cluster.image.brokers[2].fenced)
    reason = await find_reason(admin, SETTINGS, "t")
    assert reason == "waiting for a leader of t-0: start broker 2" + TIMEOUT


@scenario(play, nodes=3)
async def test_partition_below_min_insync_replicas_is_named(
    cluster: VirtualCluster, admin: Admin, /
) -> None:
    """A partition with fewer replicas than min.insync.replicas needs all of them, as in Kafka."""
    configs = {"min.insync.replicas": "2"}
    single = NewTopic("single", assignment={0: [1]}, configs=configs)
    await admin.create_topics([single, NewTopic("t", assignment={0: [1, 2]}, configs=configs)])
    for topic in ("single", "t"):
        reason = await find_reason(admin, SETTINGS, topic)
        assert reason == f"waiting for acknowledgements from {topic}" + TIMEOUT
    cluster.kill(2)
    await cluster.wait_for(lambda: cluster.image.brokers[2].fenced)
    reason = await find_reason(admin, SETTINGS, "t")
    assert reason == (
        "waiting for replicas of t-0: fewer than min.insync.replicas=2 are in sync" + TIMEOUT
    )


@scenario(play, nodes=3)
async def test_only_partitions_without_a_leader_that_are_read_are_named(
    cluster: VirtualCluster, admin: Admin, /
) -> None:
    await admin.create_topics([NewTopic("t", assignment={0: [2], 1: [1], 2: [2]})])
    assert await find_missing_leaders(admin, "t", ()) == ""
    cluster.kill(2)
    await cluster.wait_for(lambda: cluster.image.brokers[2].fenced)
    found = [await find_missing_leaders(admin, "t", read) for read in ((), (0, 1), (1,))]
    assert found == [
        "waiting for a leader of t-0, t-2: start broker 2",
        "waiting for a leader of t-0: start broker 2",
        "",
    ]
