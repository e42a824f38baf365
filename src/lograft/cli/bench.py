"""`lograft bench`: a quick load against any cluster, through the client."""

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

#: Records that are sent one by one, each when the one before has come back.
ROUND_TRIPS: Final = 200
CHUNK: Final = 1_000
SILENCE_MS: Final = 30_000


@dataclass(frozen=True, slots=True, kw_only=True)
class BenchOptions:
    records: int
    size: int
    partitions: int
    replicas: int
    #: None: one of our own, deleted at the end.
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


def lines(result: Result) -> list[str]:
    rates = table(
        ["", "RECORDS/S", "MB/S", "SECONDS"],
        (
            (
                one.what,
                f"{one.records_per_second:,.0f}",
                f"{one.megabytes_per_second:.1f}",
                f"{one.seconds:.2f}",
            )
            for one in result.rates
        ),
    )
    latencies = table(
        ["", "MEDIAN MS", "99 % MS", "MAX MS"],
        (
            (one.what, f"{one.median_ms:.2f}", f"{one.p99_ms:.2f}", f"{one.max_ms:.2f}")
            for one in result.latencies
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
    """Into a topic of its own, unless one is named; that is deleted at the end."""
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
        places = [TopicPartition(topic, index) for index in range(count)]
        consumer.assign(places)
        for place, offset in (await consumer.end_offsets(places)).items():
            consumer.seek(place, offset)
        produced = await _produce(producer, topic, options, progress)
        consumed = await _consume(consumer, options, progress)
        async with Producer({**producing, "linger.ms": 0}) as prompt:
            acknowledged, arrived = await _round_trips(prompt, consumer, topic, options, progress)
    return Result((produced, consumed), (acknowledged, arrived))


async def _produce(
    producer: Producer, topic: str, options: BenchOptions, progress: Progress
) -> Rate:
    value = SystemRandomness().uuid().bytes * (options.size // 16 + 1)
    value = value[: options.size]
    began = _now()
    sent = 0
    while sent < options.records:
        count = min(CHUNK, options.records - sent)
        await producer.send_many(topic, [value] * count)
        sent += count
        progress(sent, "produced")
    await producer.flush()
    return Rate("produced", sent, _now() - began, sent * options.size)


async def _consume(consumer: Consumer, options: BenchOptions, progress: Progress) -> Rate:
    began = _now()
    got = 0
    while got < options.records:
        polled = await consumer.poll(timeout_ms=SILENCE_MS, max_records=10 * CHUNK)
        if not polled:
            raise TimeoutError(f"nothing came for {SILENCE_MS} ms after {got} records")
        got += sum(map(len, polled.values()))
        progress(options.records + got, "consumed")
    return Rate("consumed", got, _now() - began, got * options.size)


async def _round_trips(
    producer: Producer, consumer: Consumer, topic: str, options: BenchOptions, progress: Progress
) -> tuple[Latency, Latency]:
    acknowledged, arrived = [], []
    value = b"x" * options.size
    for number in range(ROUND_TRIPS):
        began = _now()
        polling = asyncio.ensure_future(consumer.poll(timeout_ms=SILENCE_MS))
        await producer.send(topic, value, partition=0)
        acknowledged.append(_now() - began)
        await polling
        arrived.append(_now() - began)
        progress(2 * options.records + number, "round trips")
    return _latency("acknowledged", acknowledged), _latency("at a waiting consumer", arrived)


def _latency(what: str, seconds: list[float]) -> Latency:
    ordered = sorted(1000 * one for one in seconds)
    return Latency(what, ordered[len(ordered) // 2], ordered[len(ordered) * 99 // 100], ordered[-1])


def _now() -> float:
    return SystemClock().mono_ns() / 1e9
