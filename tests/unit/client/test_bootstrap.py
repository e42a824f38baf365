"""client.dns.lookup: where a client begins, with a name service of its own."""

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
    """Names of addresses, by alias; counts the questions."""

    def __init__(self, **names: list[str]) -> None:
        self._names = names
        self.questions = 0

    async def canonical_names(self, host: str) -> list[str]:
        self.questions += 1
        if host not in self._names:
            raise OSError(f"no address for {host}")
        return self._names[host]


def settings_of(servers: str, **more: Any) -> ClientSettings:
    return ClientSettings.read({"bootstrap.servers": servers, **more})


def addresses(settings: ClientSettings, names: NameService) -> list[str]:
    found = asyncio.run(Bootstrap(settings, names).addresses())
    return [str(one) for one in found]


def test_an_alias_stands_for_the_canonical_names_of_its_addresses() -> None:
    names = NameService(kafka=["n1", "n2"], other=["n2", "n3"])
    servers = "kafka:9092,other:9092,gone:1"
    assert addresses(settings_of(servers, **CANONICAL), names) == ["n1:9092", "n2:9092", "n3:9092"]


def test_by_default_servers_are_taken_as_they_are_written() -> None:
    names = NameService(kafka=["n1"])
    assert addresses(settings_of("kafka:9092"), names) == ["kafka:9092"]
    explicit = settings_of("kafka:9092", **{"client.dns.lookup": "use_all_dns_ips"})
    assert addresses(explicit, names) == ["kafka:9092"]
    assert names.questions == 0


def test_servers_without_an_address_are_named() -> None:
    with pytest.raises(ConnectionFailed, match="gone:1: resolve failed: no address for gone"):
        addresses(settings_of("gone:1", **CANONICAL), NameService())


def test_other_values_are_rejected() -> None:
    with pytest.raises(InvalidConfig, match="use_all_dns_ips, resolve_canonical"):
        settings_of("kafka:1", **{"client.dns.lookup": "default"})


@scenario(run_in_virtual_cluster, nodes=1, seed=5)
async def test_a_client_reaches_the_cluster_through_an_alias(cluster: VirtualCluster, /) -> None:
    (address,) = cluster.bootstrap()
    names = NameService(alias=[address.host])
    settings = settings_of(f"alias:{address.port}", **CANONICAL)
    network = Network(cluster.client_runtime(), settings, resolver=names)
    for _ in range(2):
        answer = await network.request(DescribeClusterRequest(), DescribeClusterResponse)
        assert [one.broker_id for one in answer.brokers] == [1]
    assert names.questions == 1
    network.rebootstrap()  # a client that bootstraps again resolves again
    await network.connect_any()
    assert names.questions == 2
    network.close()


@scenario()
async def test_the_system_resolves_loopback() -> None:
    """Whatever this machine calls it, the name leads to the address."""
    (name,) = await SystemResolver().canonical_names("127.0.0.1")
    found = await asyncio.get_running_loop().getaddrinfo(name, None)
    assert "127.0.0.1" in {raw[0] for *_, raw in found}


def test_an_address_is_its_own_server() -> None:
    assert settings_of("127.0.0.1:9").bootstrap_addresses() == [Address("127.0.0.1", 9)]
