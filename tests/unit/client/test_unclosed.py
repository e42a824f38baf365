"""A client that is garbage-collected without close() emits a ResourceWarning."""

import asyncio
import gc
import sys
from typing import Any

import pytest

from lograft.client.admin import Admin
from lograft.client.consumer import Consumer
from lograft.client.consuming.range_reader import RangeReader
from lograft.client.producer import Producer
from lograft.model.errors import InvalidConfig
from lograft.testing import Cluster, VirtualCluster
from tests.support.scenarios import run_in_virtual_cluster, scenario

NOWHERE = {"bootstrap.servers": "127.0.0.1:1"}


@scenario(run_in_virtual_cluster, nodes=1, seed=3)
async def test_unclosed_producer_warns_with_pending_records(cluster: VirtualCluster, /) -> None:
    servers = ",".join(map(str, cluster.bootstrap()))
    settings = {"bootstrap.servers": servers, "linger.ms": 10_000}
    producer = Producer(settings, runtime=cluster.client_runtime())
    await producer.start()
    await producer.prepare("t")
    for number in range(3):
        producer.send_nowait("t", b"%d" % number)
    clients = [producer]
    del producer
    with pytest.warns(ResourceWarning, match="unclosed producer with 3 pending records: use"):
        clients.clear()  # immediately: no task of the client refers to it


def test_producer_collected_after_its_loop_sends_nothing(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    unraisable: list[object] = []
    monkeypatch.setattr(sys, "unraisablehook", unraisable.append)
    clients: list[Producer] = []
    with Cluster(nodes=1) as cluster:
        cluster.create_topic("t")

        async def main() -> None:
            producer = Producer(bootstrap_servers=cluster.bootstrap_servers)
            clients.append(producer)
            await producer.start()
            await producer.prepare("t")
            cluster.kill(1)
            # It requests a producer id, which fails.
            producer.send_nowait("t", b"v")
            await asyncio.sleep(0.1)

        asyncio.run(main())
        with pytest.warns(ResourceWarning, match="unclosed producer with 1 pending record:"):
            clients.clear()
        gc.collect()
    assert unraisable == []
    assert "Task was destroyed" not in caplog.text


@pytest.mark.parametrize(
    ("client", "named"),
    [
        (Producer(NOWHERE), "unclosed producer with 0 pending records"),
        (Consumer(NOWHERE), "unclosed consumer:"),
        (Consumer(NOWHERE, group_id="billing"), "unclosed consumer of group 'billing'"),
        (Admin(NOWHERE), "unclosed admin client"),
        (RangeReader(NOWHERE), "unclosed range reader"),
    ],
    ids=["producer", "consumer", "member", "admin", "reader"],
)
def test_open_client_warns_and_closed_client_does_not(client: Any, named: str) -> None:
    async def main() -> None:
        await client.start()
        with pytest.warns(ResourceWarning, match=named):
            client.__del__()
        await client.close()

    asyncio.run(main())
    client.__del__()  # warnings are errors here


def test_clients_that_were_never_opened_do_not_warn() -> None:
    Producer(NOWHERE)
    Consumer(NOWHERE)
    with pytest.raises(InvalidConfig):
        Producer(NOWHERE, acks="some")
    gc.collect()
