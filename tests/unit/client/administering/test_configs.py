"""Settings through controllers, as with `kafka-configs --bootstrap-controller`."""

import pytest

from lograft.client.admin import (
    Admin,
    ConfigChange,
    ConfigResource,
    ConfigSource,
    ResourceKind,
    broker_resource,
)
from lograft.client.errors import BrokerMissing, UnsupportedByBroker, WrongUse
from lograft.testing import VirtualCluster
from tests.support.scenarios import run_in_virtual_cluster, scenario

#: Nodes 4 and 5 are only brokers.
ROLES = ("controller", "controller", "controller", "broker", "broker")
CONTROLLERS = "n1:9093,n2:9093,n3:9093"
NAME = "log.cleaner.threads"


@scenario(run_in_virtual_cluster, nodes=5, seed=4, roles=ROLES)
async def test_the_active_controller_alters_the_settings_of_brokers(
    cluster: VirtualCluster, /
) -> None:
    runtime = cluster.client_runtime("admin")
    controllers = Admin(
        bootstrap_controllers=CONTROLLERS,
        runtime=runtime,
    )
    brokers = Admin(bootstrap_servers=",".join(map(str, cluster.bootstrap())), runtime=runtime)
    async with controllers, brokers:
        await controllers.alter_configs(
            {
                broker_resource(5): [ConfigChange(NAME, "3")],
                broker_resource(): [ConfigChange(NAME, "4")],
            }
        )
        for broker, value, source in (
            (4, "4", ConfigSource.ALL_BROKERS),
            (5, "3", ConfigSource.BROKER),
        ):
            resource = broker_resource(broker)
            configs = await brokers.describe_configs([resource], names=[NAME])
            entry = configs[resource][NAME]
            assert (entry.value, entry.source) == (value, source)
        # Each controller describes itself.
        own = [broker_resource(node) for node in (1, 2, 3)]
        described = await controllers.describe_configs([*own, broker_resource()])
        assert [described[resource]["node.id"].value for resource in own] == ["1", "2", "3"]
        assert described[broker_resource()][NAME].value == "4"
        with pytest.raises(
            BrokerMissing, match="no controller 5 in the cluster now; known controllers: 1, 2, 3"
        ):
            await controllers.describe_configs([broker_resource(5)])
        loggers = ConfigResource(ResourceKind.BROKER_LOGGER, "2")
        assert "root" in (await controllers.describe_configs([loggers]))[loggers]
        with pytest.raises(UnsupportedByBroker, match="controllers do not serve this request"):
            await controllers.list_topics()


@pytest.mark.parametrize("kind", [ResourceKind.BROKER, ResourceKind.BROKER_LOGGER])
@pytest.mark.parametrize("name", ["abc", "1.5", "9" * 11])
@scenario(run_in_virtual_cluster, nodes=1, seed=4)
async def test_a_name_that_is_not_a_broker_id_is_rejected(
    cluster: VirtualCluster, /, kind: ResourceKind, name: str
) -> None:
    resource = ConfigResource(kind, name)
    servers = ",".join(map(str, cluster.bootstrap()))
    async with Admin(bootstrap_servers=servers, runtime=cluster.client_runtime()) as admin:
        with pytest.raises(WrongUse, match="is not a broker id"):
            await admin.describe_configs([resource])
        with pytest.raises(WrongUse, match="is not a broker id"):
            await admin.alter_configs({resource: [ConfigChange(NAME, "3")]})
