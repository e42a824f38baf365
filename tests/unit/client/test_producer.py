"""The producer on simulated clusters: order, duplicates, back-pressure, errors."""

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
from lograft.client.serializers import json_serializer
from lograft.client.types import Acknowledged
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
        ) as producer:
            await scenario(cluster, producer)

    VirtualCluster(nodes=nodes, seed=seed).play(main)


async def read_values(cluster: VirtualCluster, partition: int) -> list[bytes]:
    return await cluster.test_client("reader").read("t", partition)


@scenario(play, {"batch.size": 200})
async def test_records_are_appended_in_order_at_acknowledged_offsets(
    cluster: VirtualCluster, producer: Producer, /
) -> None:
    values = [b"%d" % i for i in range(500)]
    deliveries = [await producer.enqueue("t", value, partition=1) for value in values]
    offsets = [(await delivery).offset for delivery in deliveries]
    assert offsets == list(range(500))
    assert await read_values(cluster, 1) == values


@scenario(play)
async def test_keys_text_partition_and_timestamp_are_sent(
    cluster: VirtualCluster, producer: Producer, /
) -> None:
    partitions = {(await producer.send("t", "v", key=f"key{i % 3}")).partition for i in range(12)}
    assert partitions <= {0, 1}
    acknowledged = await producer.send("t", b"x", partition=0, timestamp_ms=77)
    assert acknowledged[1:] == (0, acknowledged.offset, 77, -1)
    assert "all in-sync replicas" in acknowledged.meaning


@scenario(play, {"request.timeout.ms": 3000}, nodes=3)
async def test_leader_failures_neither_lose_nor_duplicate_records(
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
    assert await read_values(cluster, 0) == [b"%d" % i for i in range(300)]


@scenario(play, {"batch.size": 100, "linger.ms": 1, "request.timeout.ms": 2000})
async def test_lost_response_causes_no_duplicate(
    cluster: VirtualCluster, producer: Producer, /
) -> None:
    await producer.send("t", b"before", partition=0)
    deliveries = [await producer.enqueue("t", b"%d" % i, partition=0) for i in range(40)]
    # The broker has received the requests and cannot respond: the client retries later.
    await asyncio.sleep(0.004)
    cluster.pause(1)
    await asyncio.sleep(5)
    cluster.resume(1)
    for delivery in deliveries:
        await delivery
    assert await read_values(cluster, 0) == [b"before", *(b"%d" % i for i in range(40))]


@scenario(play, {"buffer.memory": 2000})
async def test_full_buffer_blocks_send_and_rejects_send_nowait(
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
async def test_large_record_that_waits_for_space_is_not_overtaken(
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
    assert await read_values(cluster, 0) == called


@scenario(play, {"buffer.memory": 2000})
async def test_cancelled_wait_for_space_unblocks_the_next(
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
    assert not small.done(), "there is space for it, but the large record is first"
    large.cancel()
    delivery = await small
    producer.send_nowait("t", b"n", partition=0)
    cluster.resume(1)
    assert ((await filling).offset, (await delivery).offset) == (0, 1)


@scenario(play, {"buffer.memory": 1000, "max.block.ms": 2000})
async def test_wait_for_space_times_out(cluster: VirtualCluster, producer: Producer, /) -> None:
    await producer.prepare("t")
    cluster.pause(1)
    with pytest.raises(TimedOut, match=r"\(buffer.memory=1000\) within max.block.ms"):
        await producer.send_many("t", [b"v" * 100] * 100)
    cluster.resume(1)


@scenario(play, {"delivery.timeout.ms": 10000, "request.timeout.ms": 2000, "linger.ms": 0})
async def test_record_not_acknowledged_within_delivery_timeout_fails(
    cluster: VirtualCluster, producer: Producer, /
) -> None:
    await producer.send("t", b"before", partition=0)
    cluster.kill(1)
    before_ms = cluster.loop.time()
    with pytest.raises(TimedOut, match=r"delivery.timeout.ms"):
        await producer.send("t", b"lost", partition=0)
    assert 9 < cluster.loop.time() - before_ms < 13
    await cluster.start(1)
    # The gap in the sequences that the failed record may have left does not block later ones.
    await producer.send("t", b"after", partition=0)
    assert (await read_values(cluster, 0))[-1] == b"after"


@scenario(play, {"linger.ms": 100})
async def test_batch_too_large_for_the_topic_is_split(
    cluster: VirtualCluster, producer: Producer, /
) -> None:
    admin = cluster.test_client("second")
    await admin.create_topic("small", configs={"max.message.bytes": "600"})
    values = [b"%03d" % i * 30 for i in range(20)]
    deliveries = [await producer.enqueue("small", value) for value in values]
    assert [(await delivery).offset for delivery in deliveries] == list(range(20))
    with pytest.raises(RecordTooLarge):
        await producer.send("small", b"v" * 700)
    await producer.send("small", b"after")
    assert await cluster.test_client("reader").read("small", 0) == [*values, b"after"]


@scenario(play, {"linger.ms": 100})
async def test_rejected_records_and_others_of_their_batch_fail_differently(
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
    assert [acknowledged.offset for acknowledged in sent] == [0, 1]
    with pytest.raises(RecordRejected, match="requires a key"):
        await producer.send("compacted", b"v")


@scenario(play, {"max.request.size": 1000})
async def test_record_larger_than_max_request_size_is_rejected_immediately(
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
    """Does not return the record from on_send."""

    def on_send(self, record: Outgoing) -> Any:
        return None


def test_interceptors_are_called_and_their_failures_ignored() -> None:
    tagging = Tagging()

    async def scenario(cluster: VirtualCluster, producer: Producer) -> None:
        await producer.send("t", b"hello", partition=0)
        assert await read_values(cluster, 0) == [b"hello!"]
        ((acknowledged, error),) = tagging.seen
        assert acknowledged is not None
        assert (acknowledged.offset, error) == (0, None)

    play(scenario, {"interceptor.classes": [Broken(), Forgetful(), tagging]})


@scenario(play, {"acks": "0"})
async def test_acks_0_returns_no_offset(cluster: VirtualCluster, producer: Producer, /) -> None:
    acknowledged = await producer.send("t", b"v", partition=0)
    assert (acknowledged.offset, acknowledged.acks) == (-1, 0)
    assert "did not confirm" in acknowledged.meaning
    while not await read_values(cluster, 0):
        await asyncio.sleep(0.1)


@scenario(play, {"linger.ms": 0})
async def test_without_linger_first_record_is_sent_immediately_and_others_gather(
    cluster: VirtualCluster, producer: Producer, /
) -> None:
    await producer.send("t", b"before", partition=0)
    before = producer.metrics().value("batch-send-total")
    first = producer.send_nowait("t", b"first", partition=0)
    assert producer.metrics().value("batch-send-total") == before + 1
    others = [producer.send_nowait("t", b"%d" % i, partition=0) for i in range(10)]
    assert producer.metrics().value("batch-send-total") == before + 1
    assert [(await delivery).offset for delivery in (first, *others)] == list(range(1, 12))
    assert producer.metrics().value("batch-send-total") == before + 2


@pytest.mark.parametrize("acks", ["0", "all"])
def test_records_sent_by_callbacks_keep_their_order(acks: str) -> None:
    """Callbacks run while the sender processes responses."""
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
        while len(values := await read_values(cluster, 0)) < count:
            await asyncio.sleep(0.1)
        assert values == sent

    play(scenario, {"linger.ms": 0, "acks": acks, "batch.size": 100, "request.timeout.ms": 1_000})


@scenario(play, {"linger.ms": 10000})
async def test_close_sends_buffered_records_and_rejects_new_ones(
    cluster: VirtualCluster, producer: Producer, /
) -> None:
    deliveries = await producer.send_many("t", [b"%d" % i for i in range(50)])
    await producer.close()
    assert all(delivery.done() for delivery in deliveries)
    with pytest.raises(WrongUse, match="closed"):
        await producer.send("t", b"late")


def test_exception_of_callback_is_logged(
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
        # Called immediately if the delivery is done.
        delivery.add_done_callback(on_done)
        assert (await producer.send("t", b"after", partition=0)).offset == 3

    play(scenario)
    assert called == [0, 1, 2, 2]
    reported = [entry for entry in caplog.records if "delivery callback" in entry.message]
    assert len(reported) == 4


@scenario(play, {"max.in.flight.requests.per.connection": 1, "request.timeout.ms": 60000})
async def test_close_fails_records_not_acknowledged_within_its_timeout(
    cluster: VirtualCluster, producer: Producer, /
) -> None:
    await producer.send("t", b"before", partition=0)
    cluster.pause(1)
    sent = await producer.enqueue("t", b"sent", partition=0)
    await asyncio.sleep(1)
    waiting = await producer.enqueue("t", b"waiting", partition=0)
    started = cluster.loop.time()
    await producer.close(timeout_ms=2_000)
    assert 1.9 < cluster.loop.time() - started < 2.5
    for delivery in (sent, waiting):
        with pytest.raises(TimedOut, match="was not acknowledged within 2000 ms"):
            delivery.result()
    await producer.close()
    cluster.resume(1)


@scenario(play, {"value.serializer": json_serializer})
async def test_serializer_failure_affects_only_its_record(
    cluster: VirtualCluster, producer: Producer, /
) -> None:
    with pytest.raises(SerializationFailed, match=r"the value for topic 't' cannot be"):
        await producer.send("t", {1, 2}, partition=0)
    await producer.send("t", {"a": [1, None]}, partition=0)
    await producer.send("t", None, partition=0)
    assert await read_values(cluster, 0) == [b'{"a":[1,null]}', b""]


@scenario(play, {"batch.size": 700, "buffer.memory": 9000})
async def test_send_many_keeps_the_order_of_mixed_values(
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
    assert [acknowledged.offset for acknowledged in await deliveries] == list(range(600))
    expected = [value.encode() if isinstance(value, str) else value for value in values]
    assert await cluster.test_client("reader").read("one", 0) == expected


@scenario(play)
async def test_send_many_with_keys_uses_one_partition_per_key(
    cluster: VirtualCluster, producer: Producer, /
) -> None:
    keys = [b"key%d" % (number % 5) for number in range(50)]
    deliveries = await producer.send_many("t", [b"v"] * 50, keys=keys)
    partitions: dict[bytes, set[int]] = {}
    for key, acknowledged in zip(keys, await deliveries, strict=True):
        partitions.setdefault(key, set()).add(acknowledged.partition)
    assert all(len(of_key) == 1 for of_key in partitions.values())
    with pytest.raises(ValueError, match="longer"):
        await producer.send_many("t", [b"v"] * 3, keys=keys[:2])


@scenario(play, {"delivery.timeout.ms": 3000, "request.timeout.ms": 1000})
async def test_timeout_of_unsent_record_contains_connection_error(
    cluster: VirtualCluster, producer: Producer, /
) -> None:
    await producer.send("t", b"before", partition=0)
    cluster.kill(1)
    with pytest.raises(TimedOut, match=r"0 attempts; last error: .*connect failed"):
        await producer.send("t", b"not sent", partition=0)
    cluster.boot(1)
