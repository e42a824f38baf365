"""Runs scenarios of the admin client on a simulated cluster, in virtual time."""

from collections.abc import Awaitable, Callable
from typing import Any

from lograft.client.admin import Admin
from lograft.client.producer import Producer
from lograft.testing import VirtualCluster

Scenario = Callable[[VirtualCluster, Admin], Awaitable[None]]


def play(
    scenario: Scenario, settings: dict[str, Any] | None = None, *, nodes: int = 1, seed: int = 5
) -> None:
    async def main(cluster: VirtualCluster) -> None:
        runtime = cluster.client_runtime("admin")
        servers = ",".join(map(str, cluster.bootstrap()))
        async with Admin(
            {"bootstrap.servers": servers, **(settings or {})}, runtime=runtime
        ) as admin:
            await scenario(cluster, admin)

    VirtualCluster(nodes=nodes, seed=seed).play(main)


async def fill(cluster: VirtualCluster, topic: str, count: int, *, partition: int = 0) -> None:
    """Writes records with the values 0, 1, … and timestamps from 1,000 on."""
    servers = ",".join(map(str, cluster.bootstrap()))
    async with Producer(
        bootstrap_servers=servers, runtime=cluster.client_runtime("writer")
    ) as producer:
        for number in range(count):
            await producer.send(
                topic, b"%d" % number, partition=partition, timestamp_ms=1_000 + number
            )
