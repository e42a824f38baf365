"""A client that is dropped without close() warns, like an unclosed file."""

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
async def test_a_producer_names_its_pending_records(cluster: VirtualCluster, /) -> None:
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
        clients.clear()  # at once: nothing that the client runs holds on to it


def test_a_producer_that_is_dropped_after_its_loop_asks_for_nothing_more(
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
            # It asks for a producer id, which it cannot get.
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
        (Admin(NOWHERE), "unclosed administrator"),
        (RangeReader(NOWHERE), "unclosed range reader"),
    ],
    ids=["producer", "consumer", "member", "admin", "reader"],
)
def test_an_open_client_warns_and_a_closed_one_does_not(client: Any, named: str) -> None:
    async def main() -> None:
        await client.start()
        with pytest.warns(ResourceWarning, match=named):
            client.__del__()
        await client.close()

    asyncio.run(main())
    client.__del__()  # warnings are errors here


def test_clients_that_were_never_open_say_nothing() -> None:
    Producer(NOWHERE)
    Consumer(NOWHERE)
    with pytest.raises(InvalidConfig):
        Producer(NOWHERE, acks="some")
    gc.collect()
