"""`lograft produce`: partitions that a record names are checked before anything waits for them; a
signal ends the command within seconds and tells what was not delivered."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from lograft.cli.input_lines import in_turns
from lograft.cli.line_producer import INTERRUPTED_SECONDS, Line, Places, Unacknowledged, produce
from lograft.cli.stall_watch import StallWatch
from lograft.client.admin import Admin, NewTopic
from lograft.client.producer import Producer
from lograft.model.errors import InvalidInput
from lograft.testing import VirtualCluster
from tests.support.scenarios import run_in_virtual_cluster, scenario

GROWING = {
    "auto.create.topics.enable": "true",
    "auto.create.partitions.enable": "true",
    "auto.create.partitions.max": "9",
    "num.partitions": "2",
}


@scenario(run_in_virtual_cluster, nodes=1, seed=3, properties=GROWING)
async def test_partitions_are_there_or_come_on_demand_or_are_refused(
    cluster: VirtualCluster, /
) -> None:
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


async def _forever(texts: list[str]) -> AsyncIterator[str]:
    """Lines of a program that goes on running."""
    for text in texts:
        yield text
    await asyncio.Event().wait()


@pytest.mark.parametrize("goes_on", [True, False])
def test_a_signal_bounds_the_wait_and_names_the_records_that_are_not_delivered(
    goes_on: bool,
) -> None:
    said: list[str] = []
    acknowledged: list[int] = []

    async def explain() -> str:
        return "waiting for a leader"

    async def main(cluster: VirtualCluster) -> None:
        servers = ",".join(map(str, cluster.bootstrap()))
        async with (
            Admin(bootstrap_servers=servers, runtime=cluster.client_runtime("admin")) as admin,
            Producer(bootstrap_servers=servers, runtime=cluster.client_runtime("p")) as producer,
        ):
            await admin.create_topics([NewTopic("t", assignment={0: [1], 1: [2]})])
            await producer.send("t", b"v", partition=0)
            await producer.send("t", b"v", partition=1)
            cluster.kill(2)
            lines = ["0", "1", "1"]
            sending = asyncio.ensure_future(
                produce(
                    producer,
                    "t",
                    _forever(lines) if goes_on else in_turns(lines),
                    lambda text, _number: Line(None, b"v", (), int(text), None),
                    acknowledged=lambda one: acknowledged.append(one.partition),
                    watch=StallWatch(producer, explain, said.append),
                )
            )
            await asyncio.sleep(3)
            sending.cancel()
            loop = asyncio.get_running_loop()
            before = loop.time()
            with pytest.raises(Unacknowledged, match="2 of 3 records not acknowledged"):
                await sending
            assert loop.time() - before < INTERRUPTED_SECONDS + 1

    VirtualCluster(nodes=3, seed=3).play(main)
    assert acknowledged == [0]
    assert said[0] == "waiting for a leader"
    assert said[1].startswith("interrupted: waiting up to 5 s for the acknowledgements of 2 rec")


@scenario(run_in_virtual_cluster, nodes=1, seed=3)
async def test_a_signal_without_records_on_their_way_ends_at_once(
    cluster: VirtualCluster, /
) -> None:
    async def explain() -> str:
        return "waiting"

    servers = ",".join(map(str, cluster.bootstrap()))
    async with Producer(bootstrap_servers=servers, runtime=cluster.client_runtime()) as one:
        await cluster.test_client("admin").create_topic("t", partitions=1)
        sending = asyncio.ensure_future(
            produce(
                one,
                "t",
                _forever(["v"]),
                lambda text, _number: Line(None, text.encode(), (), None, None),
                watch=StallWatch(one, explain, pytest.fail),
            )
        )
        await asyncio.sleep(3)
        sending.cancel()
        with pytest.raises(asyncio.CancelledError):
            await sending
