"""The producer on simulated clusters: order, no duplicates, back-pressure, failures that speak."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from lograft.client.errors import (
    BatchRejected,
    BufferFull,
    ClientError,
    RecordRejected,
    RecordTooLarge,
    SerializationFailed,
    TimedOut,
    WrongUse,
)
from lograft.client.producer import Producer
from lograft.client.producing.deliveries import Delivery
from lograft.client.producing.interceptors import Outgoing
from lograft.client.producing.sender import BATCHES_SENT
from lograft.client.serializers import json_serializer
from lograft.client.types import Acknowledged
from lograft.model.metrics import value_of
from lograft.testing import VirtualCluster
from tests.support.scenarios import scenario

Scenario = Callable[[VirtualCluster, Producer], Awaitable[None]]


def play(
    scenario: Scenario, settings: dict[str, Any] | None = None, *, nodes: int = 1, seed: int = 3
) -> None:
    async def main(cluster: VirtualCluster) -> None:
        admin = cluster.test_client("admin")
        await admin.create_topic("t", partitions=2, replication_factor=nodes)
        servers = ",".join(map(str, cluster.bootstrap()))
        runtime = cluster.client_runtime()
        async with Producer(
            {"bootstrap.servers": servers, **(settings or {})}, runtime=runtime
        ) as one:
            await scenario(cluster, one)

    VirtualCluster(nodes=nodes, seed=seed).play(main)


async def stored(cluster: VirtualCluster, partition: int) -> list[bytes]:
    return await cluster.test_client("reader").read("t", partition)


@scenario(play, {"batch.size": 200})
async def test_records_arrive_in_order_at_the_offsets_that_were_told(
    cluster: VirtualCluster, producer: Producer, /
) -> None:
    values = [b"%d" % i for i in range(500)]
    deliveries = [await producer.enqueue("t", value, partition=1) for value in values]
    offsets = [(await delivery).offset for delivery in deliveries]
    assert offsets == list(range(500))
    assert await stored(cluster, 1) == values


@scenario(play)
async def test_keys_and_text_and_a_partition_of_ones_own(
    cluster: VirtualCluster, producer: Producer, /
) -> None:
    places = {(await producer.send("t", "v", key=f"key{i % 3}")).partition for i in range(12)}
    assert places <= {0, 1}
    one = await producer.send("t", b"x", partition=0, timestamp_ms=77)
    assert (one.partition, one.timestamp_ms, one.acks) == (0, 77, -1)
    assert "every replica" in one.meaning


@scenario(play, {"request.timeout.ms": 3000}, nodes=3)
async def test_leaders_die_and_nothing_is_lost_or_twice(
    cluster: VirtualCluster, producer: Producer, /
) -> None:
    deliveries = []
    for i in range(300):
        deliveries.append(await producer.enqueue("t", b"%d" % i, partition=0))
        if i in (80, 190):
            victim = cluster.leader_of("t", 0)
            cluster.kill(victim)
            cluster.loop.call_later_ns(3_000_000_000, cluster.boot, victim)
        await asyncio.sleep(0.05)
    offsets = [(await delivery).offset for delivery in deliveries]
    assert offsets == sorted(set(offsets))
    assert await stored(cluster, 0) == [b"%d" % i for i in range(300)]


@scenario(play, {"batch.size": 100, "linger.ms": 1, "request.timeout.ms": 2000})
async def test_an_answer_that_is_lost_leads_to_no_duplicate(
    cluster: VirtualCluster, producer: Producer, /
) -> None:
    await producer.send("t", b"before", partition=0)
    deliveries = [await producer.enqueue("t", b"%d" % i, partition=0) for i in range(40)]
    # The broker has got the requests, and cannot answer: the client tries again elsewhen.
    await asyncio.sleep(0.004)
    cluster.pause(1)
    await asyncio.sleep(5)
    cluster.resume(1)
    for delivery in deliveries:
        await delivery
    assert await stored(cluster, 0) == [b"before", *(b"%d" % i for i in range(40))]


@scenario(play, {"buffer.memory": 2000})
async def test_a_full_buffer_holds_send_back_and_refuses_send_nowait(
    cluster: VirtualCluster, producer: Producer, /
) -> None:
    await producer.prepare("t")
    cluster.pause(1)
    taken = 0
    while taken < 100:
        try:
            producer.send_nowait("t", b"v" * 100)
        except BufferFull:
            break
        taken += 1
    assert 5 < taken < 20
    waiting = asyncio.ensure_future(producer.send("t", b"w" * 100))
    await asyncio.sleep(5)
    assert not waiting.done()
    cluster.resume(1)
    assert (await waiting).offset >= 0


@pytest.mark.parametrize("seed", range(4))
@scenario(play, {"buffer.memory": 2000, "batch.size": 300})
async def test_a_large_record_that_waits_for_room_is_not_overtaken_by_small_ones(
    cluster: VirtualCluster, producer: Producer, /, seed: int
) -> None:
    called: list[bytes] = []

    async def send(number: int) -> None:
        value = b"%03d" % number + b"v" * (1_400 if number % 5 == 2 else 100)
        called.append(value)
        await producer.send("t", value, partition=0)

    await producer.prepare("t")
    cluster.pause(1)
    async with asyncio.TaskGroup() as tasks:
        for number in range(40):
            tasks.create_task(send(number))
        await asyncio.sleep(1)
        cluster.resume(1)
    assert await stored(cluster, 0) == called


@scenario(play, {"buffer.memory": 2000})
async def test_who_gives_up_waiting_for_room_leaves_it_to_the_next(
    cluster: VirtualCluster, producer: Producer, /
) -> None:
    await producer.prepare("t")
    cluster.pause(1)
    filling = await producer.enqueue("t", b"f" * 1_500, partition=0)
    large = asyncio.ensure_future(producer.enqueue("t", b"l" * 1_500, partition=0))
    await asyncio.sleep(1)
    small = asyncio.ensure_future(producer.enqueue("t", b"s", partition=0))
    await asyncio.sleep(1)
    with pytest.raises(BufferFull):
        producer.send_nowait("t", b"n", partition=0)
    assert not small.done(), "there is room for it, but the large one came first"
    large.cancel()
    delivery = await small
    producer.send_nowait("t", b"n", partition=0)
    cluster.resume(1)
    assert ((await filling).offset, (await delivery).offset) == (0, 1)


@scenario(play, {"buffer.memory": 1000, "max.block.ms": 2000})
async def test_no_room_in_time_is_said(cluster: VirtualCluster, producer: Producer, /) -> None:
    await producer.prepare("t")
    cluster.pause(1)
    with pytest.raises(TimedOut, match=r"\(buffer.memory=1000\) within max.block.ms"):
        await producer.send_many("t", [b"v" * 100] * 100)
    cluster.resume(1)


@scenario(play, {"delivery.timeout.ms": 10000, "request.timeout.ms": 2000, "linger.ms": 0})
async def test_what_is_not_acknowledged_in_time_fails_with_its_reason(
    cluster: VirtualCluster, producer: Producer, /
) -> None:
    await producer.send("t", b"before", partition=0)
    cluster.kill(1)
    before_ms = cluster.loop.time()
    with pytest.raises(TimedOut, match=r"delivery.timeout.ms"):
        await producer.send("t", b"lost", partition=0)
    assert 9 < cluster.loop.time() - before_ms < 13
    await cluster.start(1)
    # The hole that the lost one may have left does not stop those who come after.
    await producer.send("t", b"after", partition=0)
    assert (await stored(cluster, 0))[-1] == b"after"


@scenario(play, {"linger.ms": 100})
async def test_a_batch_too_large_for_the_topic_goes_in_parts(
    cluster: VirtualCluster, producer: Producer, /
) -> None:
    admin = cluster.test_client("second")
    await admin.create_topic("small", configs={"max.message.bytes": "600"})
    values = [b"%03d" % i * 30 for i in range(20)]
    deliveries = [await producer.enqueue("small", value) for value in values]
    assert [(await one).offset for one in deliveries] == list(range(20))
    with pytest.raises(RecordTooLarge):
        await producer.send("small", b"v" * 700)
    await producer.send("small", b"after")
    assert await cluster.test_client("reader").read("small", 0) == [*values, b"after"]


@scenario(play, {"linger.ms": 100})
async def test_only_the_rejected_records_of_a_batch_fail_as_rejected(
    cluster: VirtualCluster, producer: Producer, /
) -> None:
    admin = cluster.test_client("second")
    await admin.create_topic("compacted", configs={"cleanup.policy": "compact"})
    keys = ["a", None, "b", None]
    deliveries = [await producer.enqueue("compacted", b"v", key=key) for key in keys]
    errors = await asyncio.gather(*deliveries, return_exceptions=True)
    assert [type(error) for error in errors] == [
        BatchRejected,
        RecordRejected,
        BatchRejected,
        RecordRejected,
    ]
    assert "record 3 of its batch: a compacted topic requires a key" in str(errors[3])
    sent = [await producer.send("compacted", b"v", key=key) for key in keys if key]
    assert [one.offset for one in sent] == [0, 1]
    with pytest.raises(RecordRejected, match="requires a key"):
        await producer.send("compacted", b"v")


@scenario(play, {"max.request.size": 1000})
async def test_a_record_that_can_never_be_sent_is_refused_at_once(
    cluster: VirtualCluster, producer: Producer, /
) -> None:
    with pytest.raises(ClientError, match=r"more than max.request.size \(1000\)"):
        await producer.send("t", b"v" * 2_000)


class Tagging:
    def __init__(self) -> None:
        self.seen: list[tuple[Acknowledged | None, Exception | None]] = []

    def on_send(self, record: Outgoing) -> Outgoing:
        return record._replace(value=record.value + b"!")

    def on_acknowledgement(
        self, acknowledged: Acknowledged | None, error: Exception | None
    ) -> None:
        self.seen.append((acknowledged, error))


class Broken:
    def on_send(self, record: Outgoing) -> Outgoing:
        raise RuntimeError("on purpose")

    def on_acknowledgement(
        self, acknowledged: Acknowledged | None, error: Exception | None
    ) -> None:
        raise RuntimeError("on purpose")


class Forgetful(Broken):
    """Forgets to return what it was given."""

    def on_send(self, record: Outgoing) -> Any:
        return None


def test_interceptors_see_everything_and_break_nothing() -> None:
    tagging = Tagging()

    async def scenario(cluster: VirtualCluster, producer: Producer) -> None:
        await producer.send("t", b"hello", partition=0)
        assert await stored(cluster, 0) == [b"hello!"]
        assert [(one[0].offset if one[0] else None, one[1]) for one in tagging.seen] == [(0, None)]

    play(scenario, {"interceptor.classes": [Broken(), Forgetful(), tagging]})


@scenario(play, {"acks": "0"})
async def test_acks_0_promises_nothing_and_says_so(
    cluster: VirtualCluster, producer: Producer, /
) -> None:
    one = await producer.send("t", b"v", partition=0)
    assert (one.offset, one.acks) == (-1, 0)
    assert "nobody" in one.meaning
    while not await stored(cluster, 0):
        await asyncio.sleep(0.1)


@scenario(play, {"linger.ms": 0})
async def test_without_linger_the_first_record_goes_at_once_and_the_others_gather(
    cluster: VirtualCluster, producer: Producer, /
) -> None:
    await producer.send("t", b"before", partition=0)
    before = value_of(producer, BATCHES_SENT)
    first = producer.send_nowait("t", b"first", partition=0)
    assert value_of(producer, BATCHES_SENT) == before + 1
    others = [producer.send_nowait("t", b"%d" % i, partition=0) for i in range(10)]
    assert value_of(producer, BATCHES_SENT) == before + 1
    assert [(await one).offset for one in (first, *others)] == list(range(1, 12))
    assert value_of(producer, BATCHES_SENT) == before + 2


@pytest.mark.parametrize("acks", ["0", "all"])
def test_what_a_callback_sends_comes_after_what_was_sent_before_it(acks: str) -> None:
    """Callbacks run while the sender is at work."""
    count = 200

    async def scenario(cluster: VirtualCluster, producer: Producer) -> None:
        await producer.prepare("t")
        sent: list[bytes] = []

        def send(_delivery: Delivery | None = None) -> None:
            for _ in range(2 if len(sent) % 5 else 3):
                if len(sent) < count:
                    sent.append(b"%d" % len(sent))
                    producer.send_nowait("t", sent[-1], partition=0).add_done_callback(send)

        send()
        cluster.loop.call_later_ns(200_000_000, cluster.pause, 1)
        cluster.loop.call_later_ns(3_000_000_000, cluster.resume, 1)
        while len(sent) < count:
            await asyncio.sleep(0.1)
        await producer.flush()
        while len(found := await stored(cluster, 0)) < count:
            await asyncio.sleep(0.1)
        assert found == sent

    play(scenario, {"linger.ms": 0, "acks": acks, "batch.size": 100, "request.timeout.ms": 1_000})


@scenario(play, {"linger.ms": 10000})
async def test_closing_drains_and_then_refuses(
    cluster: VirtualCluster, producer: Producer, /
) -> None:
    deliveries = await producer.send_many("t", [b"%d" % i for i in range(50)])
    await producer.close()
    assert all(one.done() for one in deliveries)
    with pytest.raises(WrongUse, match="closed"):
        await producer.send("t", b"late")


def test_a_callback_that_raises_is_reported_and_breaks_nothing(
    caplog: pytest.LogCaptureFixture,
) -> None:
    called: list[int] = []

    def on_done(delivery: Delivery) -> None:
        called.append(delivery.result().offset)
        raise RuntimeError("on purpose")

    async def scenario(cluster: VirtualCluster, producer: Producer) -> None:
        for number in range(3):
            delivery = await producer.enqueue("t", b"%d" % number, partition=0)
            delivery.add_done_callback(on_done)
        await producer.flush()
        # At once where the fate is known, and no better there.
        delivery.add_done_callback(on_done)
        assert (await producer.send("t", b"after", partition=0)).offset == 3

    play(scenario)
    assert called == [0, 1, 2, 2]
    reported = [one for one in caplog.records if "delivery callback" in one.message]
    assert len(reported) == 4


@scenario(play, {"max.in.flight.requests.per.connection": 1, "request.timeout.ms": 60000})
async def test_closing_fails_what_is_not_acknowledged_in_time(
    cluster: VirtualCluster, producer: Producer, /
) -> None:
    await producer.send("t", b"before", partition=0)
    cluster.pause(1)
    sent = await producer.enqueue("t", b"sent", partition=0)
    await asyncio.sleep(1)
    waiting = await producer.enqueue("t", b"waiting", partition=0)
    began = cluster.loop.time()
    await producer.close(timeout_ms=2_000)
    assert 1.9 < cluster.loop.time() - began < 2.5
    for one in (sent, waiting):
        with pytest.raises(TimedOut, match="was not acknowledged within 2000 ms"):
            one.result()
    await producer.close()
    cluster.resume(1)


@scenario(play, {"value.serializer": json_serializer})
async def test_a_serializer_that_raises_fails_its_record_only(
    cluster: VirtualCluster, producer: Producer, /
) -> None:
    with pytest.raises(SerializationFailed, match=r"the value for topic 't' cannot be"):
        await producer.send("t", {1, 2}, partition=0)
    await producer.send("t", {"a": [1, None]}, partition=0)
    await producer.send("t", None, partition=0)
    assert await stored(cluster, 0) == [b'{"a":[1,null]}', b""]


@scenario(play, {"batch.size": 700, "buffer.memory": 9000})
async def test_many_values_of_all_kinds_keep_their_order(
    cluster: VirtualCluster, producer: Producer, /
) -> None:
    await cluster.test_client("second").create_topic("one", partitions=1)
    values: list[bytes | str] = [
        f"{number}" if number % 7 == 3 else b"%d" % number * (number % 40 + 1)
        for number in range(600)
    ]
    values[300] = b"large" * 1_000  # larger than a batch
    generated = (value for value in values)
    deliveries = await producer.send_many("one", generated)
    assert [one.offset for one in await deliveries] == list(range(600))
    expected = [value.encode() if isinstance(value, str) else value for value in values]
    assert await cluster.test_client("reader").read("one", 0) == expected


@scenario(play)
async def test_many_values_with_keys_go_where_their_keys_say(
    cluster: VirtualCluster, producer: Producer, /
) -> None:
    keys = [b"key%d" % (number % 5) for number in range(50)]
    deliveries = await producer.send_many("t", [b"v"] * 50, keys=keys)
    places: dict[bytes, set[int]] = {}
    for key, one in zip(keys, await deliveries, strict=True):
        places.setdefault(key, set()).add(one.partition)
    assert all(len(found) == 1 for found in places.values())
    with pytest.raises(ValueError, match="longer"):
        await producer.send_many("t", [b"v"] * 3, keys=keys[:2])


@scenario(play, {"delivery.timeout.ms": 3000, "request.timeout.ms": 1000})
async def test_records_that_reach_nobody_say_why_when_their_time_is_up(
    cluster: VirtualCluster, producer: Producer, /
) -> None:
    await producer.send("t", b"before", partition=0)
    cluster.kill(1)
    with pytest.raises(TimedOut, match=r"0 attempts; last error: .*connect failed"):
        await producer.send("t", b"nobody is there", partition=0)
    cluster.boot(1)
