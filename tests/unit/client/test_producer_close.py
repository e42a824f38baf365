"""The end of a producer: who waits hears of it, who sends again does not keep it from ending."""

import asyncio

import pytest

from lograft.client.errors import ClientError, Closed
from lograft.client.producer import Producer
from lograft.client.producing.deliveries import Delivery
from lograft.testing import Cluster, VirtualCluster
from tests.support.scenarios import scenario
from tests.unit.client.test_producer import play


@scenario(play, {"max.in.flight.requests.per.connection": 1})
async def test_closing_ends_though_a_callback_sends_again_what_has_failed(
    cluster: VirtualCluster, producer: Producer, /
) -> None:
    refused: list[ClientError] = []
    tries = 0

    def send_again(delivery: Delivery) -> None:
        nonlocal tries
        tries += 1
        assert tries < 100
        try:
            delivery.result()
        except ClientError:
            try:
                again = producer.send_nowait("t", b"again", partition=0)
            except ClientError as error:
                refused.append(error)
            else:
                again.add_done_callback(send_again)

    await producer.send("t", b"before", partition=0)
    cluster.pause(1)
    producer.send_nowait("t", b"in flight", partition=0).add_done_callback(send_again)
    await asyncio.sleep(1)
    producer.send_nowait("t", b"waiting", partition=0).add_done_callback(send_again)
    await producer.close(timeout_ms=1_000)
    assert [type(error) for error in refused] == [Closed, Closed]
    cluster.resume(1)


@scenario(play, {"buffer.memory": 1000, "batch.size": 200})
async def test_who_waits_for_room_hears_that_the_producer_is_closed(
    cluster: VirtualCluster, producer: Producer, /
) -> None:
    await producer.send("t", b"before", partition=0)
    cluster.pause(1)
    waiting = [
        asyncio.ensure_future(producer.send("t", b"v" * 100, partition=0)) for _ in range(20)
    ]
    await asyncio.sleep(1)
    began = cluster.loop.time()
    await producer.close(timeout_ms=1_000)
    outcomes = await asyncio.gather(*waiting, return_exceptions=True)
    assert all(isinstance(outcome, ClientError) for outcome in outcomes)
    assert any(isinstance(outcome, Closed) for outcome in outcomes)
    assert cluster.loop.time() - began < 2
    cluster.resume(1)


@scenario()
async def test_room_that_is_offered_to_one_who_gives_up_is_the_next_ones() -> None:
    async with Cluster() as cluster:
        cluster.create_topic("t")
        servers = cluster.bootstrap_servers
        async with Producer(bootstrap_servers=servers, buffer_memory=1_500) as producer:
            await producer.prepare("t")
            taken = producer.send_nowait("t", b"v" * 800)
            gives_up = asyncio.ensure_future(producer.send("t", b"w" * 800))
            following = asyncio.ensure_future(producer.send("t", b"x" * 800))
            await asyncio.sleep(0)
            taken.add_done_callback(lambda _: gives_up.cancel())
            # Who gives up in this very moment may have been served already.
            assert (await following).offset in (1, 2)
            with pytest.raises(asyncio.CancelledError):
                await gives_up
