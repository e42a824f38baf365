"""A node reports each reason for which it is not ready, and no reason afterwards."""

import asyncio
from collections.abc import Callable

from lograft.client.consumer import Consumer
from lograft.model.health import UnreadyCause
from lograft.model.types import TopicPartition
from lograft.node import Node
from lograft.simulation.disk import DiskFault
from lograft.testing import VirtualCluster
from tests.support.scenarios import run_in_virtual_cluster, scenario


def causes_of(node: Node) -> set[UnreadyCause]:
    return {reason.cause for reason in node.find_unready_reasons()}


def message_of(node: Node) -> str:
    (reason,) = node.find_unready_reasons()
    return reason.message


def loaded_partitions(cluster: VirtualCluster) -> list[int]:
    node = cluster.nodes().get(1)
    return [] if node is None else node.broker.groups.loaded_partitions()


async def watch(cluster: VirtualCluster, is_over: Callable[[], bool]) -> list[UnreadyCause]:
    """Returns the successive causes of node 1 while its process runs."""
    seen: list[UnreadyCause] = []
    while not is_over():
        node = cluster.hosts[1].node
        for reason in [] if node is None else node.find_unready_reasons():
            if not seen or seen[-1] is not reason.cause:
                seen.append(reason.cause)
        await asyncio.sleep(0.0001)
    return seen


@scenario(run_in_virtual_cluster, nodes=3)
async def test_a_start_passes_through_its_reasons(cluster: VirtualCluster, /) -> None:
    client = cluster.test_client()
    await client.create_topic("t", partitions=5, replication_factor=3)
    assert cluster.node(1).find_unready_reasons() == []
    await cluster.stop(1)
    cluster.boot(1)
    host = cluster.hosts[1]
    seen = await watch(cluster, lambda: host.serving.is_set())
    of_start = {
        UnreadyCause.STARTING,
        UnreadyCause.NOT_REGISTERED,
        UnreadyCause.CATCHING_UP,
        UnreadyCause.RECOVERING_LOGS,
    }
    assert [cause for cause in seen if cause in of_start] == [
        UnreadyCause.STARTING,
        UnreadyCause.NOT_REGISTERED,
        UnreadyCause.CATCHING_UP,
        UnreadyCause.RECOVERING_LOGS,
        # Its heartbeats start when the logs are open.
        UnreadyCause.CATCHING_UP,
    ]
    await cluster.wait_for(lambda: not cluster.node(1).find_unready_reasons())


@scenario(run_in_virtual_cluster, nodes=3)
async def test_without_a_majority_the_controller_is_unknown(cluster: VirtualCluster, /) -> None:
    cluster.kill(2)
    cluster.kill(3)
    await cluster.wait_for(lambda: UnreadyCause.CONTROLLER_UNKNOWN in causes_of(cluster.node(1)))
    cluster.boot(2)
    await cluster.wait_serving(2)
    await cluster.wait_for(lambda: not causes_of(cluster.node(1)))


@scenario(run_in_virtual_cluster, nodes=2, roles=("controller", "broker"))
async def test_a_broker_that_was_fenced_is_not_ready(cluster: VirtualCluster, /) -> None:
    cluster.isolate(2)
    await cluster.wait_for(lambda: UnreadyCause.FENCED in causes_of(cluster.node(2)))
    messages = {reason.message for reason in cluster.node(2).find_unready_reasons()}
    assert any("accepted no heartbeat within broker.session" in text for text in messages)
    cluster.heal()
    seen = set()
    while causes_of(cluster.node(2)):
        seen |= {reason.message for reason in cluster.node(2).find_unready_reasons()}
        await asyncio.sleep(0.0001)
    assert any(text.startswith("the controller has fenced this broker: ") for text in seen)
    assert cluster.node(1).find_unready_reasons() == []


@scenario(run_in_virtual_cluster, nodes=1, properties={"log.dirs": "/data,/spare"})
async def test_an_offline_log_dir_is_a_reason_until_the_restart(cluster: VirtualCluster, /) -> None:
    life = cluster.hosts[1].machine.life
    assert life is not None
    life.disk.faults.append(DiskFault(operation="fsync", path_part="/spare"))
    await cluster.test_client().create_topic("t", partitions=4)
    await cluster.wait_for(lambda: causes_of(cluster.node(1)) == {UnreadyCause.LOG_DIR_OFFLINE})
    assert message_of(cluster.node(1)).startswith("log dir /spare is offline: replace")


@scenario(run_in_virtual_cluster, nodes=1, properties={"offsets.topic.replication.factor": "1"})
async def test_loading_coordinators_are_a_reason(cluster: VirtualCluster, /) -> None:
    client = cluster.test_client()
    await client.create_topic("t")
    async with Consumer(
        bootstrap_servers=str(cluster.bootstrap()[0]),
        runtime=cluster.client_runtime(),
        group_id="g",
    ) as consumer:
        consumer.assign([TopicPartition("t", 0)])
        await consumer.commit({TopicPartition("t", 0): 0})
    await cluster.stop(1)
    cluster.boot(1)
    seen = await watch(cluster, lambda: bool(loaded_partitions(cluster)))
    assert UnreadyCause.LOADING_COORDINATORS in seen
    await cluster.wait_for(lambda: not causes_of(cluster.node(1)))


@scenario(run_in_virtual_cluster, nodes=1)
async def test_a_node_that_stops_is_not_ready(cluster: VirtualCluster, /) -> None:
    node = cluster.node(1)
    await cluster.stop(1)
    assert causes_of(node) == {UnreadyCause.SHUTTING_DOWN}
