"""Lograft's own client under faults: a producer that sends, a consumer that reads, and the history
of both as the program that uses them sees it.

Retries are the client's business here: a send is one operation, however often it went out. The
sequence in the history is the program's order of sends, which an idempotent producer keeps.
"""

import asyncio
from collections.abc import Sequence
from random import Random
from typing import Any, Final

from campaigns.cluster_producer import TIMESTAMP_MS
from lograft.client.consumer import Consumer
from lograft.client.errors import ClientError, LogTruncated, OffsetOutOfRange
from lograft.client.producer import Producer
from lograft.client.producing.deliveries import Delivery
from lograft.client.types import TopicPartition
from lograft.model.errors import ErrorCode
from lograft.model.seams import Runtime
from lograft.simulation.checkers import key_of
from lograft.simulation.history import History
from lograft.simulation.node_workload import TopicPlan

#: No batch may be given up: what is not acknowledged in the end is a violation.
PATIENCE_MS: Final = 1_000_000
#: Of the checkers: which producer a record is of. Brokers' own ids are far below.
_FIRST_ID: Final = 1_000_000

Place = tuple[TopicPlan, int]


def tp_of(place: Place) -> str:
    return f"{place[0].name}-{place[1]}"


def draw_producer_settings(random: Random, *, idempotent: bool) -> dict[str, Any]:
    return {
        "enable.idempotence": idempotent,
        "acks": "all",
        "linger.ms": random.choice((0, 5, 100)),
        "batch.size": random.choice((0, 200, 16_384)),
        "compression.type": random.choice(("none", "none", "lz4")),
        "max.in.flight.requests.per.connection": random.choice((1, 5)),
        "request.timeout.ms": random.choice((1_000, 3_000, 30_000)),
        "retry.backoff.ms": random.choice((10, 100)),
        "retry.backoff.max.ms": 1_000,
        "max.block.ms": PATIENCE_MS,
        "delivery.timeout.ms": PATIENCE_MS,
    }


class CrashingProducer(Producer):
    """Ends with its simulated machine: a process that was killed runs no finalizers."""

    def __del__(self) -> None:
        pass


class CrashingConsumer(Consumer):
    def __del__(self) -> None:
        pass


class ProducerLoad:
    """Sends records to some partitions, each named after the producer and its number."""

    def __init__(
        self,
        number: int,
        places: Sequence[Place],
        *,
        history: History,
        random: Random,
        settings: dict[str, Any],
        pace_ms: tuple[int, ...],
    ) -> None:
        self._id = _FIRST_ID + number
        self.name = f"u{number}"
        self._places = places
        self._history = history
        self._random = random
        self._settings = settings
        self._pace_ms = pace_ms
        self._sent = 0
        self.pending = 0
        self._is_over = asyncio.Event()

    async def run(self, servers: str, runtime: Runtime) -> None:
        producer = CrashingProducer(
            {"bootstrap.servers": servers, **self._settings}, runtime=runtime
        )
        await producer.start()
        while not self._is_over.is_set():
            await asyncio.sleep(self._random.choice(self._pace_ms) / 1000)
            place = self._random.choice(self._places)
            for _ in range(self._random.choice((1, 1, 1, 2, 5))):
                await self._send(producer, place)

    def end(self) -> None:
        """Nothing new is sent; what was sent goes on."""
        self._is_over.set()

    async def _send(self, producer: Producer, place: Place) -> None:
        self._sent += 1
        number = self._sent
        topic, partition = place
        uid = f"{self.name}-{number}"
        asked: dict[str, Any] = {"tp": tp_of(place), "uid": uid, "acks": -1}
        if topic.is_compacted:
            asked["key"] = key_of(uid)
        if self._settings["enable.idempotence"]:
            asked |= {"pid": self._id, "seq": number}
        self._history.record(uid, "invoke", "send", **asked)
        self.pending += 1
        delivery = await producer.enqueue(
            topic.name,
            uid.encode(),
            key=key_of(uid).encode(),
            partition=partition,
            timestamp_ms=TIMESTAMP_MS + number,
        )
        delivery.add_done_callback(lambda done: self._ended(uid, done))

    def _ended(self, uid: str, delivery: Delivery) -> None:
        self.pending -= 1
        try:
            acknowledged = delivery.result()
        except ClientError as error:
            self._history.record(uid, "info", "send", error=str(error))
            return
        if acknowledged.offset < 0:
            # A repeat that the broker knows, but not where the first one lies.
            self._history.record(uid, "info", "send", error="acknowledged without an offset")
        else:
            self._history.record(uid, "ok", "send", offset=acknowledged.offset)


class ConsumerLoad:
    """Reads some partitions from their beginning, for ever."""

    def __init__(
        self,
        number: int,
        places: Sequence[Place],
        *,
        history: History,
        random: Random,
        isolation_level: int,
    ) -> None:
        self.name = f"r{number}"
        self._places = {TopicPartition(topic.name, index): topic for topic, index in places}
        self._history = history
        self._random = random
        self._isolation_level = isolation_level
        #: Behind the last record of each partition that it has got.
        self.positions = dict.fromkeys(self._places, 0)
        #: It has time between two polls until somebody waits for it.
        self.hurries = False

    def _settings(self) -> dict[str, Any]:
        random = self._random
        return {
            "isolation.level": ("read_uncommitted", "read_committed")[self._isolation_level],
            "auto.offset.reset": "none",
            "fetch.max.wait.ms": random.choice((50, 500)),
            "max.partition.fetch.bytes": random.choice((1, 500, 1 << 20)),
            "request.timeout.ms": random.choice((1_000, 3_000, 30_000)),
            "retry.backoff.max.ms": 1_000,
        }

    async def run(self, servers: str, runtime: Runtime) -> None:
        settings = {"bootstrap.servers": servers, **self._settings()}
        consumer = CrashingConsumer(settings, runtime=runtime)
        await consumer.start()
        consumer.assign(list(self._places))
        for place in self._places:
            consumer.seek(place, 0)
        while True:
            await self._poll(consumer)
            if not self.hurries:
                await asyncio.sleep(self._random.choice((0, 0.01, 0.2)))

    async def _poll(self, consumer: Consumer) -> None:
        for place, position in self.positions.items():
            self._history.record(
                f"{self.name}:{place}",
                "invoke",
                "poll",
                tp=str(place),
                offset=position,
                iso=self._isolation_level,
            )
        told: dict[TopicPartition, dict[str, Any]] = {}
        polled: dict[TopicPartition, Any] = {}
        try:
            polled = dict(
                await consumer.poll(timeout_ms=500, max_records=self._random.choice((1, 7, 500)))
            )
        except LogTruncated:
            told = {place: {"diverging": True} for place in self._places}
        except OffsetOutOfRange:
            told = {place: {"error": ErrorCode.OFFSET_OUT_OF_RANGE} for place in self._places}
        for place, position in self.positions.items():
            proc = f"{self.name}:{place}"
            if place in told:
                self._history.record(proc, "fail", "poll", **told[place])
                continue
            records = [[one.offset, one.value.decode()] for one in polled.get(place, ())]
            if records:
                self.positions[place] = records[-1][0] + 1
            # How far the log is, a consumer does not say: what it gives is all there is to judge.
            self._history.record(
                proc, "ok", "poll", records=records, hw=self.positions[place], log_start=position
            )
