"""Lograft's client, with bulk methods for single records and with Arrow tables."""

import time
from collections.abc import Callable, Coroutine
from typing import Any, Final

import pyarrow as pa

from bench.clients.work import (
    BATCH_BYTES,
    LINGER_MS,
    PARTITIONS,
    ROUND_WAIT_MS,
    STRIDE,
    WAIT_SECONDS,
    WARM_UP,
    Client,
    Figures,
    Meter,
    Order,
    Rounds,
    Work,
    percentiles,
)
from lograft.client import Producer, TopicPartition
from lograft.client.consumer import Consumer
from lograft.runtime import event_loop

#: Number of rows in a table. The batches of the bulk methods are as large as a request may be.
ROWS: Final = 50_000
TABLE_BATCH_BYTES: Final = 900_000
WAIT_MS: Final = WAIT_SECONDS * 1000


def _run_in_loop(work: Callable[[Order], Coroutine[Any, Any, Figures]]) -> Work:
    return lambda order: event_loop.run(work(order))


def _producer(order: Order, **settings: Any) -> Producer:
    return Producer(
        {"bootstrap.servers": order.servers, "linger.ms": LINGER_MS, "batch.size": BATCH_BYTES},
        **settings,
    )


def _reader(order: Order, **settings: Any) -> Consumer:
    """The kernel chooses the size of the receive buffer, as for all other clients here. Lograft's
    default of 64 KiB, which is Kafka's, costs a quarter of the CPU time."""
    return Consumer(
        {
            "bootstrap.servers": order.servers,
            "fetch.max.wait.ms": ROUND_WAIT_MS,
            "receive.buffer.bytes": -1,
        },
        **settings,
    )


def _partitions(order: Order) -> list[TopicPartition]:
    return [TopicPartition(order.topic, i) for i in range(PARTITIONS)]


async def produce(order: Order) -> Figures:
    values = order.values() * (STRIDE // 1_000)
    async with _producer(order) as producer:
        await producer.send_many(order.topic, values[:WARM_UP])
        await producer.flush()
        meter = Meter(order.seconds)
        meter.start()
        while meter.goes_on():
            await producer.send_many(order.topic, values)
            meter.count += len(values)
        await producer.flush()
        return meter.stop()


async def produce_columns(order: Order) -> Figures:
    rows = max(1_000, min(ROWS, (5 << 20) // order.size))
    table = pa.table({"value": pa.array((order.values() * (rows // 1_000)), pa.binary())})
    async with _producer(order) as producer:
        await producer.send_arrow(order.topic, table.slice(0, WARM_UP))
        meter = Meter(order.seconds)
        meter.start()
        while meter.goes_on():
            await producer.enqueue_arrow(order.topic, table, batch_bytes=TABLE_BATCH_BYTES)
            meter.count += table.num_rows
        await producer.flush()
        return meter.stop()


async def consume(order: Order) -> Figures:
    async with _reader(order, max_poll_records=STRIDE) as consumer:
        consumer.assign(_partitions(order))
        consumer.seek_to_beginning()
        rounds, meter = Rounds(order), Meter(order.seconds)
        rounds.is_over(sum(map(len, (await consumer.poll(timeout_ms=WAIT_MS)).values())))
        meter.start()
        while meter.goes_on():
            count = 0
            for batch in (await consumer.poll(timeout_ms=WAIT_MS)).values():
                for record in batch:
                    assert record.value
                count += len(batch)
            meter.count += count
            if rounds.is_over(count):
                consumer.seek_to_beginning()
        return meter.stop()


async def consume_columns(order: Order) -> Figures:
    async with _reader(order) as consumer:
        consumer.assign(_partitions(order))
        consumer.seek_to_beginning()
        rounds, meter = Rounds(order), Meter(order.seconds)
        rounds.is_over((await consumer.fetch_arrow(timeout_ms=WAIT_MS)).num_rows)
        meter.start()
        while meter.goes_on():
            count = (await consumer.fetch_arrow(timeout_ms=WAIT_MS)).num_rows
            meter.count += count
            if rounds.is_over(count):
                consumer.seek_to_beginning()
        return meter.stop()


async def echo(order: Order) -> Figures:
    value = order.values()[0]
    latencies: list[float] = []
    async with (
        Producer(bootstrap_servers=order.servers, linger_ms=0) as producer,
        Consumer(bootstrap_servers=order.servers, auto_offset_reset="latest") as consumer,
    ):
        consumer.assign([TopicPartition(order.topic, 0)])
        await consumer.position(TopicPartition(order.topic, 0))
        await producer.send(order.topic, value, partition=0)
        assert await consumer.poll(timeout_ms=WAIT_MS)
        cpu = time.process_time()
        end = time.perf_counter() + order.seconds
        while time.perf_counter() < end:
            began = time.perf_counter()
            delivery = await producer.enqueue(order.topic, value, partition=0)
            assert await consumer.poll(timeout_ms=WAIT_MS)
            latencies.append(time.perf_counter() - began)
            await delivery
        return percentiles(latencies, time.process_time() - cpu)


LOGRAFT: Final = Client(_run_in_loop(produce), _run_in_loop(consume), _run_in_loop(echo))
LOGRAFT_ARROW: Final = Client(_run_in_loop(produce_columns), _run_in_loop(consume_columns))
