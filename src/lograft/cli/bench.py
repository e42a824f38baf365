"""`lograft bench`: measures the throughput and latency of a cluster with the Python client."""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from lograft.cli.output import table
from lograft.cli.progress import Progress, progress_bar
from lograft.client.admin import Admin, NewTopic, TopicPartition
from lograft.client.consumer import Consumer
from lograft.client.producer import Producer
from lograft.runtime.clock import SystemClock
from lograft.runtime.randomness import SystemRandomness

#: Records sent one at a time to measure latency; each waits for the previous one to be consumed.
ROUND_TRIPS: Final = 200
CHUNK: Final = 1_000
POLL_TIMEOUT_MS: Final = 30_000


@dataclass(frozen=True, slots=True, kw_only=True)
class BenchOptions:
    records: int
    size: int
    partitions: int
    replicas: int
    #: None: a temporary topic, deleted at the end.
    topic: str | None = None


@dataclass(frozen=True, slots=True)
class Rate:
    what: str
    records: int
    seconds: float
    bytes: int

    @property
    def records_per_second(self) -> float:
        return self.records / self.seconds if self.seconds else 0.0

    @property
    def megabytes_per_second(self) -> float:
        return self.bytes / 1e6 / self.seconds if self.seconds else 0.0


@dataclass(frozen=True, slots=True)
class Latency:
    what: str
    median_ms: float
    p99_ms: float
    max_ms: float


@dataclass(frozen=True, slots=True)
class Result:
    rates: tuple[Rate, ...]
    latencies: tuple[Latency, ...]


def result_lines(result: Result) -> list[str]:
    rates = table(
        ["", "RECORDS/S", "MB/S", "SECONDS"],
        (
            (
                rate.what,
                f"{rate.records_per_second:,.0f}",
                f"{rate.megabytes_per_second:.1f}",
                f"{rate.seconds:.2f}",
            )
            for rate in result.rates
        ),
    )
    latencies = table(
        ["", "MEDIAN MS", "P99 MS", "MAX MS"],
        (
            (
                latency.what,
                f"{latency.median_ms:.2f}",
                f"{latency.p99_ms:.2f}",
                f"{latency.max_ms:.2f}",
            )
            for latency in result.latencies
        ),
    )
    return [*rates, "", *latencies]


async def bench(
    admin: Admin,
    options: BenchOptions,
    *,
    producing: Mapping[str, Any],
    consuming: Mapping[str, Any],
) -> Result:
    """Runs the benchmark in `options.topic`, or in a temporary topic that is deleted at the end."""
    topic = options.topic
    if topic is None:
        topic = f"lograft-bench-{SystemRandomness().uuid().hex[:12]}"
        await admin.create_topics([NewTopic(topic, options.partitions, options.replicas)])
    try:
        with progress_bar("measuring", 2 * options.records + ROUND_TRIPS) as progress:
            return await _measure(topic, options, producing, consuming, progress)
    finally:
        if options.topic is None:
            await admin.delete_topics([topic])


async def _measure(
    topic: str,
    options: BenchOptions,
    producing: Mapping[str, Any],
    consuming: Mapping[str, Any],
    progress: Progress,
) -> Result:
    async with Producer(producing) as producer, Consumer(consuming) as consumer:
        count = await producer.prepare(topic)
        partitions = [TopicPartition(topic, index) for index in range(count)]
        consumer.assign(partitions)
        for partition, offset in (await consumer.end_offsets(partitions)).items():
            consumer.seek(partition, offset)
        produced = await _produce(producer, topic, options, progress)
        consumed = await _consume(consumer, options, progress)
        async with Producer({**producing, "linger.ms": 0}) as prompt:
            acknowledged, received = await _round_trips(prompt, consumer, topic, options, progress)
    return Result((produced, consumed), (acknowledged, received))


async def _produce(
    producer: Producer, topic: str, options: BenchOptions, progress: Progress
) -> Rate:
    value = SystemRandomness().uuid().bytes * (options.size // 16 + 1)
    value = value[: options.size]
    start = _now()
    sent = 0
    while sent < options.records:
        count = min(CHUNK, options.records - sent)
        await producer.send_many(topic, [value] * count)
        sent += count
        progress(sent, "produced")
    await producer.flush()
    return Rate("produced", sent, _now() - start, sent * options.size)


async def _consume(consumer: Consumer, options: BenchOptions, progress: Progress) -> Rate:
    start = _now()
    consumed = 0
    while consumed < options.records:
        polled = await consumer.poll(timeout_ms=POLL_TIMEOUT_MS, max_records=10 * CHUNK)
        if not polled:
            raise TimeoutError(f"no records for {POLL_TIMEOUT_MS} ms after {consumed} records")
        consumed += sum(map(len, polled.values()))
        progress(options.records + consumed, "consumed")
    return Rate("consumed", consumed, _now() - start, consumed * options.size)


async def _round_trips(
    producer: Producer, consumer: Consumer, topic: str, options: BenchOptions, progress: Progress
) -> tuple[Latency, Latency]:
    acknowledged, received = [], []
    value = b"x" * options.size
    for number in range(ROUND_TRIPS):
        start = _now()
        polling = asyncio.ensure_future(consumer.poll(timeout_ms=POLL_TIMEOUT_MS))
        await producer.send(topic, value, partition=0)
        acknowledged.append(_now() - start)
        await polling
        received.append(_now() - start)
        progress(2 * options.records + number, "round trips")
    return _latency_of("acknowledged", acknowledged), _latency_of("end to end", received)


def _latency_of(what: str, seconds: list[float]) -> Latency:
    ordered = sorted(1000 * second for second in seconds)
    return Latency(what, ordered[len(ordered) // 2], ordered[len(ordered) * 99 // 100], ordered[-1])


def _now() -> float:
    return SystemClock().mono_ns() / 1e9
