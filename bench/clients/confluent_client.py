"""confluent-kafka, the Python binding of librdkafka."""

import time
from typing import Any, Final

from confluent_kafka import OFFSET_BEGINNING, OFFSET_END, Consumer, Producer, TopicPartition

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

#: measured.md: with more, librdkafka is slower.
QUEUED_MESSAGES: Final = 100_000
CONSUMED_AT_ONCE: Final = 10_000


def _producer(order: Order, linger_ms: int) -> Any:
    return Producer(
        {
            "bootstrap.servers": order.servers,
            "linger.ms": linger_ms,
            "batch.size": BATCH_BYTES,
            "enable.idempotence": True,
            "queue.buffering.max.messages": QUEUED_MESSAGES,
        }
    )


def _consumer(order: Order, partitions: int, offset: int, wait_ms: int) -> Any:
    consumer = Consumer(
        {
            "bootstrap.servers": order.servers,
            "group.id": "bench",
            "enable.auto.commit": False,
            "fetch.wait.max.ms": wait_ms,
            # With the default of one second, a consumer that is faster than its queue mostly waits.
            "fetch.queue.backoff.ms": ROUND_WAIT_MS,
        }
    )
    consumer.assign([TopicPartition(order.topic, i, offset) for i in range(partitions)])
    return consumer


def produce(order: Order) -> Figures:
    values = order.values() * (STRIDE // 1_000)
    producer = _producer(order, LINGER_MS)

    def send(some: list[bytes]) -> None:
        for value in some:
            while True:
                try:
                    producer.produce(order.topic, value)
                    break
                except BufferError:
                    producer.poll(0.01)
            producer.poll(0)

    send(values[:WARM_UP])
    producer.flush(WAIT_SECONDS)
    meter = Meter(order.seconds)
    meter.start()
    while meter.goes_on():
        send(values)
        meter.count += len(values)
    assert producer.flush(WAIT_SECONDS) == 0
    return meter.stop()


def consume(order: Order) -> Figures:
    consumer = _consumer(order, PARTITIONS, OFFSET_BEGINNING, ROUND_WAIT_MS)
    rounds, meter = Rounds(order), Meter(order.seconds)
    rounds.is_over(len(consumer.consume(1, WAIT_SECONDS)))
    meter.start()
    while meter.goes_on():
        # Waits for all messages, or until the time is up.
        messages = consumer.consume(min(CONSUMED_AT_ONCE, rounds.left), WAIT_SECONDS)
        for message in messages:
            assert message.value()
        meter.count += len(messages)
        if rounds.is_over(len(messages)):
            for i in range(PARTITIONS):
                consumer.seek(TopicPartition(order.topic, i, OFFSET_BEGINNING))
    figures = meter.stop()
    consumer.close()
    return figures


def echo(order: Order) -> Figures:
    value = order.values()[0]
    producer, consumer = _producer(order, 0), _consumer(order, 1, OFFSET_END, 500)
    deadline = time.perf_counter() + WAIT_SECONDS
    while consumer.poll(0.1) is None:
        # Until the end offset is known, all messages are before it.
        assert time.perf_counter() < deadline
        producer.produce(order.topic, value, partition=0)
        producer.flush(WAIT_SECONDS)
    while consumer.poll(0.5) is not None:
        pass
    latencies: list[float] = []
    cpu = time.process_time()
    end = time.perf_counter() + order.seconds
    while time.perf_counter() < end:
        began = time.perf_counter()
        producer.produce(order.topic, value, partition=0)
        assert consumer.poll(WAIT_SECONDS) is not None
        latencies.append(time.perf_counter() - began)
        producer.poll(0)
    figures = percentiles(latencies, time.process_time() - cpu)
    consumer.close()
    return figures


CONFLUENT: Final = Client(produce, consume, echo)
