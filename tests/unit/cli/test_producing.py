"""Partitions that a record names are checked before anything waits for them."""

import pytest

from lograft.cli.producing import Places
from lograft.client.admin import Admin, NewTopic
from lograft.client.producer import Producer
from lograft.model.errors import InvalidInput
from lograft.testing import VirtualCluster

GROWING = {
    "auto.create.topics.enable": "true",
    "auto.create.partitions.enable": "true",
    "auto.create.partitions.max": "9",
    "num.partitions": "2",
}


def test_partitions_are_there_or_come_on_demand_or_are_refused() -> None:
    async def main(cluster: VirtualCluster) -> None:
        servers = ",".join(map(str, cluster.bootstrap()))
        runtime = cluster.client_runtime()
        async with Admin(bootstrap_servers=servers, runtime=runtime) as admin:
            fresh = Places(admin, "auto")
            await fresh.check(5)  # Sending there may create the topic.
            async with Producer(bootstrap_servers=servers, runtime=runtime) as producer:
                await producer.send("auto", b"v")
            await fresh.check(8)
            with pytest.raises(
                InvalidInput,
                match=r"grows to 9 on demand \(auto.create.partitions.max\), .* 9$",
            ):
                await fresh.check(9)
            await admin.create_topics([NewTopic("fixed", partitions=2)])
            fixed = Places(admin, "fixed")
            await fixed.check(1)
            for beyond in (2, -1):
                with pytest.raises(InvalidInput, match=f"has 2 partitions, .* {beyond}$"):
                    await fixed.check(beyond)
            await admin.create_partitions({"fixed": 3})
            await fixed.check(2)

    VirtualCluster(nodes=1, seed=3, properties=GROWING).play(main)
