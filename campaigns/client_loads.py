"""Workloads for Lograft's own client: producers and consumers that record what an application sees.

The client retries internally, so a send is one operation regardless of its number of attempts. The
sequence number in the history is the program order of the sends, which an idempotent producer
keeps."""

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

#: The client must not give up any batch: an unacknowledged send at the end is a violation.
TIMEOUT_MS: Final = 1_000_000
#: First producer ID in the histories, far above the IDs that brokers assign.
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
        "max.block.ms": TIMEOUT_MS,
        "delivery.timeout.ms": TIMEOUT_MS,
    }


class CrashingProducer(Producer):
    """Has no finalizer, because a killed process runs none."""

    def __del__(self) -> None:
        pass


class CrashingConsumer(Consumer):
    def __del__(self) -> None:
        pass


class ProducerLoad:
    """Sends records to some partitions; a uid consists of the producer's name and a number."""

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
        """Stops sending; pending sends continue."""
        self._is_over.set()

    async def _send(self, producer: Producer, place: Place) -> None:
        self._sent += 1
        number = self._sent
        topic, partition = place
        uid = f"{self.name}-{number}"
        arguments: dict[str, Any] = {"tp": tp_of(place), "uid": uid, "acks": -1}
        if topic.is_compacted:
            arguments["key"] = key_of(uid)
        if self._settings["enable.idempotence"]:
            arguments |= {"pid": self._id, "seq": number}
        self._history.record(uid, "invoke", "send", **arguments)
        self.pending += 1
        delivery = await producer.enqueue(
            topic.name,
            uid.encode(),
            key=key_of(uid).encode(),
            partition=partition,
            timestamp_ms=TIMESTAMP_MS + number,
        )
        delivery.add_done_callback(lambda done: self._on_delivery(uid, done))

    def _on_delivery(self, uid: str, delivery: Delivery) -> None:
        self.pending -= 1
        try:
            acknowledged = delivery.result()
        except ClientError as error:
            self._history.record(uid, "info", "send", error=str(error))
            return
        if acknowledged.offset < 0:
            # A duplicate whose original offset the broker does not know any longer.
            self._history.record(uid, "info", "send", error="acknowledged without an offset")
        else:
            self._history.record(uid, "ok", "send", offset=acknowledged.offset)


class ConsumerLoad:
    """Reads some partitions from their beginning, forever."""

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
        #: Offset after the last record received from each partition.
        self.positions = dict.fromkeys(self._places, 0)
        #: Whether to poll without pauses, because the run waits for this consumer.
        self.is_hurried = False

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
            if not self.is_hurried:
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
        errors: dict[TopicPartition, dict[str, Any]] = {}
        polled: dict[TopicPartition, Any] = {}
        try:
            polled = dict(
                await consumer.poll(timeout_ms=500, max_records=self._random.choice((1, 7, 500)))
            )
        except LogTruncated:
            errors = {place: {"diverging": True} for place in self._places}
        except OffsetOutOfRange:
            errors = {place: {"error": ErrorCode.OFFSET_OUT_OF_RANGE} for place in self._places}
        for place, position in self.positions.items():
            proc = f"{self.name}:{place}"
            if place in errors:
                self._history.record(proc, "fail", "poll", **errors[place])
                continue
            records = [[record.offset, record.value.decode()] for record in polled.get(place, ())]
            if records:
                self.positions[place] = records[-1][0] + 1
            # A consumer does not report the log end offset; only the records can be checked.
            self._history.record(
                proc, "ok", "poll", records=records, hw=self.positions[place], log_start=position
            )
