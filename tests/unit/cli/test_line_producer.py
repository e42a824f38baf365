"""`lograft produce`: explicit partitions are checked before a record is sent; a signal stops the
command within seconds, and records that were not delivered are reported."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from lograft.cli.input_lines import yield_in_turns
from lograft.cli.line_producer import (
    INTERRUPTED_SECONDS,
    Line,
    PartitionCheck,
    Unacknowledged,
    produce,
)
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
async def test_partitions_exist_or_are_created_on_demand_or_are_rejected(
    cluster: VirtualCluster, /
) -> None:
    servers = ",".join(map(str, cluster.bootstrap()))
    runtime = cluster.client_runtime()
    async with Admin(bootstrap_servers=servers, runtime=runtime) as admin:
        fresh = PartitionCheck(admin, "auto")
        await fresh.check(5)  # Sending there may create the topic.
        async with Producer(bootstrap_servers=servers, runtime=runtime) as producer:
            await producer.send("auto", b"v")
        await fresh.check(8)
        with pytest.raises(
            InvalidInput,
            match=r"partition 9 does not .* up to 9 on demand \(auto.create.partitions.max\),",
        ):
            await fresh.check(9)
        await admin.create_topics([NewTopic("fixed", partitions=2)])
        fixed = PartitionCheck(admin, "fixed")
        await fixed.check(1)
        for missing in (2, -1):
            with pytest.raises(
                InvalidInput, match=f"partition {missing} does not exist: .* has 2 part"
            ):
                await fixed.check(missing)
        await admin.create_partitions({"fixed": 3})
        await fixed.check(2)


async def _lines_without_end(texts: list[str]) -> AsyncIterator[str]:
    """Yields the lines of a program that keeps running."""
    for text in texts:
        yield text
    await asyncio.Event().wait()


@pytest.mark.parametrize("has_more_lines", [True, False])
def test_a_signal_limits_the_wait_and_reports_undelivered_records(
    has_more_lines: bool,
) -> None:
    messages: list[str] = []
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
                    _lines_without_end(lines) if has_more_lines else yield_in_turns(lines),
                    lambda text, _number: Line(None, b"v", (), int(text), None),
                    on_acknowledged=lambda record: acknowledged.append(record.partition),
                    watch=StallWatch(lambda: 0, explain, messages.append),
                )
            )
            await asyncio.sleep(3)
            sending.cancel()
            loop = asyncio.get_running_loop()
            start = loop.time()
            with pytest.raises(Unacknowledged, match="2 of 3 records not acknowledged"):
                await sending
            assert loop.time() - start < INTERRUPTED_SECONDS + 1

    VirtualCluster(nodes=3, seed=3).play(main)
    assert acknowledged == [0]
    assert messages[0] == "waiting for a leader"
    assert messages[1].startswith(
        "interrupted: waiting up to 5 s for the acknowledgements of 2 rec"
    )


@scenario(run_in_virtual_cluster, nodes=1, seed=3)
async def test_a_signal_stops_immediately_without_records_in_flight(
    cluster: VirtualCluster, /
) -> None:
    async def explain() -> str:
        return "waiting"

    servers = ",".join(map(str, cluster.bootstrap()))
    async with Producer(bootstrap_servers=servers, runtime=cluster.client_runtime()) as producer:
        await cluster.test_client("admin").create_topic("t", partitions=1)
        sending = asyncio.ensure_future(
            produce(
                producer,
                "t",
                _lines_without_end(["v"]),
                lambda text, _number: Line(None, text.encode(), (), None, None),
                watch=StallWatch(lambda: None, explain, pytest.fail),
            )
        )
        await asyncio.sleep(3)
        sending.cancel()
        with pytest.raises(asyncio.CancelledError):
            await sending
