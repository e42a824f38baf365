"""Closing a producer: waiting calls fail, and callbacks that send again do not prevent the
close."""

import asyncio

import pytest

from lograft.client.errors import ClientError, Closed
from lograft.client.producer import Producer
from lograft.client.producing.deliveries import Delivery
from lograft.testing import Cluster, VirtualCluster
from tests.support.scenarios import scenario
from tests.unit.client.test_producer import play


@scenario(play, {"max.in.flight.requests.per.connection": 1})
async def test_close_completes_although_callbacks_send_again(
    cluster: VirtualCluster, producer: Producer, /
) -> None:
    rejected: list[ClientError] = []
    attempts = 0

    def send_again(delivery: Delivery) -> None:
        nonlocal attempts
        attempts += 1
        assert attempts < 100
        try:
            delivery.result()
        except ClientError:
            try:
                again = producer.send_nowait("t", b"again", partition=0)
            except ClientError as error:
                rejected.append(error)
            else:
                again.add_done_callback(send_again)

    await producer.send("t", b"before", partition=0)
    cluster.pause(1)
    producer.send_nowait("t", b"in flight", partition=0).add_done_callback(send_again)
    await asyncio.sleep(1)
    producer.send_nowait("t", b"waiting", partition=0).add_done_callback(send_again)
    await producer.close(timeout_ms=1_000)
    assert [type(error) for error in rejected] == [Closed, Closed]
    cluster.resume(1)


@scenario(play, {"buffer.memory": 1000, "batch.size": 200})
async def test_close_fails_calls_that_wait_for_space(
    cluster: VirtualCluster, producer: Producer, /
) -> None:
    await producer.send("t", b"before", partition=0)
    cluster.pause(1)
    waiting = [
        asyncio.ensure_future(producer.send("t", b"v" * 100, partition=0)) for _ in range(20)
    ]
    await asyncio.sleep(1)
    started = cluster.loop.time()
    await producer.close(timeout_ms=1_000)
    outcomes = await asyncio.gather(*waiting, return_exceptions=True)
    assert all(isinstance(outcome, ClientError) for outcome in outcomes)
    assert any(isinstance(outcome, Closed) for outcome in outcomes)
    assert cluster.loop.time() - started < 2
    cluster.resume(1)


@scenario()
async def test_space_offered_to_a_cancelled_call_goes_to_the_next() -> None:
    async with Cluster() as cluster:
        cluster.create_topic("t")
        servers = cluster.bootstrap_servers
        async with Producer(bootstrap_servers=servers, buffer_memory=1_500) as producer:
            await producer.prepare("t")
            taken = producer.send_nowait("t", b"v" * 800)
            cancelled = asyncio.ensure_future(producer.send("t", b"w" * 800))
            following = asyncio.ensure_future(producer.send("t", b"x" * 800))
            await asyncio.sleep(0)
            taken.add_done_callback(lambda _: cancelled.cancel())
            # The cancelled call may have been served already.
            assert (await following).offset in (1, 2)
            with pytest.raises(asyncio.CancelledError):
                await cancelled
