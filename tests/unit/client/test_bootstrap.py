"""client.dns.lookup: the bootstrap addresses of a client, with a fake name service."""

import asyncio
from typing import Any

import pytest

from lograft.client.bootstrap import Bootstrap
from lograft.client.client_settings import ClientSettings
from lograft.client.errors import ConnectionFailed
from lograft.client.network import Network
from lograft.model.errors import InvalidConfig
from lograft.model.seams import Address
from lograft.net.name_resolution import SystemResolver
from lograft.testing import VirtualCluster
from lograft.wire.messages.describe_cluster import DescribeClusterRequest, DescribeClusterResponse
from tests.support.scenarios import run_in_virtual_cluster, scenario

CANONICAL = {"client.dns.lookup": "resolve_canonical_bootstrap_servers_only"}


class NameService:
    """Returns canonical names by alias, and counts the lookups."""

    def __init__(self, **names: list[str]) -> None:
        self._names = names
        self.lookups = 0

    async def canonical_names(self, host: str) -> list[str]:
        self.lookups += 1
        if host not in self._names:
            raise OSError(f"no address for {host}")
        return self._names[host]


def settings_of(servers: str, **more: Any) -> ClientSettings:
    return ClientSettings.read({"bootstrap.servers": servers, **more})


def addresses(settings: ClientSettings, names: NameService) -> list[str]:
    found = asyncio.run(Bootstrap(settings, names).addresses())
    return [str(address) for address in found]


def test_alias_is_replaced_by_canonical_names() -> None:
    names = NameService(kafka=["n1", "n2"], other=["n2", "n3"])
    servers = "kafka:9092,other:9092,gone:1"
    assert addresses(settings_of(servers, **CANONICAL), names) == ["n1:9092", "n2:9092", "n3:9092"]


def test_servers_are_not_resolved_by_default() -> None:
    names = NameService(kafka=["n1"])
    assert addresses(settings_of("kafka:9092"), names) == ["kafka:9092"]
    explicit = settings_of("kafka:9092", **{"client.dns.lookup": "use_all_dns_ips"})
    assert addresses(explicit, names) == ["kafka:9092"]
    assert names.lookups == 0


def test_error_names_server_that_cannot_be_resolved() -> None:
    with pytest.raises(ConnectionFailed, match="gone:1: resolve failed: no address for gone"):
        addresses(settings_of("gone:1", **CANONICAL), NameService())


def test_unknown_value_is_rejected() -> None:
    with pytest.raises(InvalidConfig, match="use_all_dns_ips, resolve_canonical"):
        settings_of("kafka:1", **{"client.dns.lookup": "default"})


@scenario(run_in_virtual_cluster, nodes=1, seed=5)
async def test_client_connects_through_an_alias(cluster: VirtualCluster, /) -> None:
    (address,) = cluster.bootstrap()
    names = NameService(alias=[address.host])
    settings = settings_of(f"alias:{address.port}", **CANONICAL)
    network = Network(cluster.client_runtime(), settings, resolver=names)
    for _ in range(2):
        response = await network.request(DescribeClusterRequest(), DescribeClusterResponse)
        assert [broker.broker_id for broker in response.brokers] == [1]
    assert names.lookups == 1
    network.rebootstrap()  # resolves the names again
    await network.connect_any()
    assert names.lookups == 2
    network.close()


@scenario()
async def test_system_resolver_resolves_loopback() -> None:
    """The canonical name, which depends on the machine, resolves to the address."""
    (name,) = await SystemResolver().canonical_names("127.0.0.1")
    found = await asyncio.get_running_loop().getaddrinfo(name, None)
    assert "127.0.0.1" in {raw[0] for *_, raw in found}


def test_ip_address_is_used_unchanged() -> None:
    assert settings_of("127.0.0.1:9").bootstrap_addresses() == [Address("127.0.0.1", 9)]
