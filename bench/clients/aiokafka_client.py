"""aiokafka, on the same event loop as Lograft's client."""

import asyncio
import time
from collections.abc import Callable, Coroutine
from typing import Any, Final

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition

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
from lograft.runtime import event_loop


def _run_in_loop(work: Callable[[Order], Coroutine[Any, Any, Figures]]) -> Work:
    return lambda order: event_loop.run(work(order))


def _producer(order: Order, linger_ms: int) -> Any:
    return AIOKafkaProducer(
        bootstrap_servers=order.servers,
        linger_ms=linger_ms,
        max_batch_size=BATCH_BYTES,
        acks="all",
        enable_idempotence=True,
    )


async def produce(order: Order) -> Figures:
    values = order.values() * (STRIDE // 1_000)
    producer = _producer(order, LINGER_MS)
    await producer.start()
    try:
        for value in values[:WARM_UP]:
            await producer.send(order.topic, value)
        await producer.flush()
        meter = Meter(order.seconds)
        meter.start()
        while meter.goes_on():
            for value in values:
                await producer.send(order.topic, value)
            meter.count += len(values)
        await producer.flush()
        return meter.stop()
    finally:
        await producer.stop()


async def consume(order: Order) -> Figures:
    consumer = AIOKafkaConsumer(
        bootstrap_servers=order.servers,
        enable_auto_commit=False,
        fetch_max_wait_ms=ROUND_WAIT_MS,
    )
    await consumer.start()
    try:
        partitions = [TopicPartition(order.topic, i) for i in range(PARTITIONS)]
        consumer.assign(partitions)
        await consumer.seek_to_beginning(*partitions)
        await consumer.getone()
        rounds, meter = Rounds(order), Meter(order.seconds)
        rounds.is_over(1)
        meter.start()
        while meter.goes_on():
            found = await consumer.getmany(timeout_ms=WAIT_SECONDS * 1000, max_records=STRIDE)
            count = 0
            for batch in found.values():
                for record in batch:
                    assert record.value
                count += len(batch)
            meter.count += count
            if rounds.is_over(count):
                await consumer.seek_to_beginning(*partitions)
        return meter.stop()
    finally:
        await consumer.stop()


async def echo(order: Order) -> Figures:
    value = order.values()[0]
    latencies: list[float] = []
    producer = _producer(order, 0)
    consumer = AIOKafkaConsumer(bootstrap_servers=order.servers, enable_auto_commit=False)
    await producer.start()
    await consumer.start()
    try:
        place = TopicPartition(order.topic, 0)
        consumer.assign([place])
        await consumer.seek_to_end(place)
        await consumer.position(place)
        await producer.send_and_wait(order.topic, value, partition=0)
        await consumer.getone()
        cpu = time.process_time()
        end = time.perf_counter() + order.seconds
        while time.perf_counter() < end:
            began = time.perf_counter()
            delivery = await producer.send(order.topic, value, partition=0)
            async with asyncio.timeout(WAIT_SECONDS):
                await consumer.getone()
            latencies.append(time.perf_counter() - began)
            await delivery
        return percentiles(latencies, time.process_time() - cpu)
    finally:
        await producer.stop()
        await consumer.stop()


AIOKAFKA: Final = Client(_run_in_loop(produce), _run_in_loop(consume), _run_in_loop(echo))
