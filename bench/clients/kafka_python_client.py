"""kafka-python 3, with its thread for input and output."""

import time
from typing import Any, Final

from kafka import KafkaConsumer, KafkaProducer, TopicPartition

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
    percentiles,
)


def _producer(order: Order, linger_ms: int) -> Any:
    return KafkaProducer(
        bootstrap_servers=order.servers,
        linger_ms=linger_ms,
        batch_size=BATCH_BYTES,
        acks="all",
        enable_idempotence=True,
    )


def produce(order: Order) -> Figures:
    values = order.values() * (STRIDE // 1_000)
    producer = _producer(order, LINGER_MS)
    for value in values[:WARM_UP]:
        producer.send(order.topic, value)
    producer.flush(WAIT_SECONDS)
    meter = Meter(order.seconds)
    meter.start()
    while meter.goes_on():
        for value in values:
            producer.send(order.topic, value)
        meter.count += len(values)
    producer.flush(WAIT_SECONDS)
    figures = meter.stop()
    producer.close()
    return figures


def consume(order: Order) -> Figures:
    consumer = KafkaConsumer(
        bootstrap_servers=order.servers,
        enable_auto_commit=False,
        max_poll_records=STRIDE,
        fetch_max_wait_ms=ROUND_WAIT_MS,
    )
    partitions = [TopicPartition(order.topic, i) for i in range(PARTITIONS)]
    consumer.assign(partitions)
    consumer.seek_to_beginning(*partitions)
    rounds, meter = Rounds(order), Meter(order.seconds)
    rounds.is_over(sum(map(len, consumer.poll(WAIT_SECONDS * 1000).values())))
    meter.start()
    while meter.goes_on():
        count = 0
        for batch in consumer.poll(WAIT_SECONDS * 1000).values():
            for record in batch:
                assert record.value
            count += len(batch)
        meter.count += count
        if rounds.is_over(count):
            consumer.seek_to_beginning(*partitions)
    figures = meter.stop()
    consumer.close()
    return figures


def echo(order: Order) -> Figures:
    value = order.values()[0]
    producer = _producer(order, 0)
    consumer = KafkaConsumer(bootstrap_servers=order.servers, enable_auto_commit=False)
    place = TopicPartition(order.topic, 0)
    consumer.assign([place])
    consumer.seek_to_end(place)
    consumer.position(place)
    producer.send(order.topic, value, partition=0).get(WAIT_SECONDS)
    assert consumer.poll(WAIT_SECONDS * 1000)
    latencies: list[float] = []
    cpu = time.process_time()
    end = time.perf_counter() + order.seconds
    while time.perf_counter() < end:
        began = time.perf_counter()
        delivery = producer.send(order.topic, value, partition=0)
        assert consumer.poll(WAIT_SECONDS * 1000)
        latencies.append(time.perf_counter() - began)
        delivery.get(WAIT_SECONDS)
    figures = percentiles(latencies, time.process_time() - cpu)
    consumer.close()
    producer.close()
    return figures


KAFKA_PYTHON: Final = Client(produce, consume, echo)
