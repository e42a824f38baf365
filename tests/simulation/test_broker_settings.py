"""Tests of broker settings that involve the controller."""

import pytest

from lograft.model.seams import Address
from lograft.simulation.cluster import SimulatedCluster
from lograft.simulation.routing import ClusterClient
from lograft.wire.messages.create_topics import (
    CreatableTopic,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from lograft.wire.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from tests.simulation.test_mode_switch import create, state_of
from tests.support.scenarios import run_in_simulated_cluster, scenario

BROKER = 4
INVALID_REPLICATION_FACTOR = 38


async def create_wide(client: ClusterClient, name: str, *, replicas: int = 1) -> int:
    topic = CreatableTopic(name=name, num_partitions=12, replication_factor=replicas)
    request = CreateTopicsRequest(topics=[topic], timeout_ms=10_000)
    response = await client.request(request, 7, CreateTopicsResponse, timeout_ms=20_000)
    return response.topics[0].error_code


async def cordon(client: ClusterClient, broker_id: int, value: str) -> None:
    setting = AlterableConfig(name="cordoned.log.dirs", config_operation=0, value=value)
    resource = AlterConfigsResource(
        resource_type=BROKER, resource_name=str(broker_id), configs=[setting]
    )
    request = IncrementalAlterConfigsRequest(resources=[resource])
    response = await client.request_to(
        Address(f"n{broker_id}", 9092),
        request,
        1,
        IncrementalAlterConfigsResponse,
        timeout_ms=20_000,
    )
    assert response.responses[0].error_code == 0, response


@scenario(run_in_simulated_cluster, nodes=3, seed=1)
async def test_broker_with_cordoned_log_dirs_gets_no_new_replicas(
    cluster: SimulatedCluster, /
) -> None:
    await cluster.start()
    client = cluster.client()

    def brokers_of(name: str) -> set[int]:
        topic = cluster.image.topic(name)
        assert topic is not None
        return {broker for each in topic.partitions.values() for broker in each.replicas}

    await cordon(client, 2, "*")
    await cluster.wait_for(lambda: not cluster.image.brokers[2].takes_replicas, seconds=10)
    assert await create_wide(client, "a") == 0
    assert brokers_of("a") == {1, 3}
    assert await create_wide(client, "b", replicas=3) == INVALID_REPLICATION_FACTOR
    # A new registration contains the setting as well.
    await cluster.stop(2)
    await cluster.start(2)
    await cluster.wait_for(lambda: not cluster.image.brokers[2].takes_replicas, seconds=10)
    await cordon(client, 2, "")
    await cluster.wait_for(lambda: cluster.image.brokers[2].takes_replicas, seconds=10)
    assert await create_wide(client, "c") == 0
    assert brokers_of("c") == {1, 2, 3}


@pytest.mark.parametrize("is_enabled", [True, False])
def test_leaders_move_before_shutdown_only_if_it_is_controlled(is_enabled: bool) -> None:
    properties = {"controlled.shutdown.enable": str(is_enabled).lower()}
    cluster = SimulatedCluster(nodes=3, seed=2, properties=properties)

    async def main() -> None:
        await cluster.start()
        await create(cluster.client(), min_insync_replicas="2")
        leader = state_of(cluster).leader
        await cluster.stop(leader)
        assert (state_of(cluster).leader != leader) is is_enabled
        # Without it, the controller detects that the process has exited.
        await cluster.wait_for(lambda: state_of(cluster).leader not in (leader, -1), seconds=30)

    cluster.run(main())
