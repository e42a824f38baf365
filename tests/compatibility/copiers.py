"""Copies a topic in transactions that contain records and offsets, with librdkafka and aiokafka.

    copy(Order(bootstrap, source, target, count, group))

A copier runs until its offsets show that all records are copied. After an error it aborts the
transaction and returns to the committed offsets, so each record is copied exactly once, regardless
of failures.
"""

import asyncio
import time
from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple

import aiokafka
import aiokafka.errors
from confluent_kafka import Consumer, KafkaException, Message, Producer, TopicPartition

from tests.compatibility.members import PROTOCOLS

ANSWER_SECONDS_MAX: Final = 30.0
#: The copier cannot continue.
COPY_SECONDS_MAX: Final = 60.0
RECORDS_PER_TRANSACTION: Final = 10
HEARTBEAT_MS: Final = 300


class Order(NamedTuple):
    bootstrap: str
    #: Also the transactional id.
    source: str
    target: str
    records: int
    group: str


class Confluent:
    """Its transactional producer determines how each error is handled."""

    def __init__(self, order: Order, how: Mapping[str, Any]) -> None:
        bootstrap, source = order.bootstrap, order.source
        self._source, self._target, self._count = source, order.target, order.records
        self._done: dict[int, int] = {}
        self._producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": source})
        self._consumer = Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": order.group,
                "enable.auto.commit": False,
                "auto.offset.reset": "earliest",
                "isolation.level": "read_committed",
                **how,
            }
        )

    def run(self) -> None:
        deadline = time.monotonic() + COPY_SECONDS_MAX
        insist(lambda: self._producer.init_transactions(ANSWER_SECONDS_MAX))
        self._consumer.subscribe([self._source])
        try:
            while sum(self._done.values()) < self._count:
                assert time.monotonic() < deadline, self._done
                read = self._consumer.consume(RECORDS_PER_TRANSACTION, 0.2)
                batch = [message for message in read if message.error() is None]
                if batch:
                    self._copy(batch)
        finally:
            self._consumer.close()

    def _copy(self, batch: list[Message]) -> None:
        self._producer.begin_transaction()
        ends = {message.partition(): message.offset() + 1 for message in batch}  # type: ignore[operator]
        try:
            for message in batch:
                self._producer.produce(self._target, message.value())
            at = [TopicPartition(self._source, number, end) for number, end in ends.items()]  # type: ignore[arg-type]
            group = self._consumer.consumer_group_metadata()
            insist(
                lambda: self._producer.send_offsets_to_transaction(at, group, ANSWER_SECONDS_MAX)
            )
            insist(lambda: self._producer.commit_transaction(ANSWER_SECONDS_MAX))
        except KafkaException as raised:
            if not raised.args[0].txn_requires_abort():
                raise
            insist(lambda: self._producer.abort_transaction(ANSWER_SECONDS_MAX))
            self._go_back()
        else:
            self._done |= ends  # type: ignore[arg-type]

    def _go_back(self) -> None:
        owned = self._consumer.assignment()
        for each in self._consumer.committed(owned, ANSWER_SECONDS_MAX) if owned else ():
            self._consumer.seek(TopicPartition(each.topic, each.partition, max(each.offset, 0)))


def insist(act: Callable[[], object]) -> None:
    """Retries as long as librdkafka reports a retriable error."""
    deadline = time.monotonic() + COPY_SECONDS_MAX
    while True:
        try:
            act()
        except KafkaException as raised:
            if not raised.args[0].retriable() or time.monotonic() > deadline:
                raise
        else:
            return


def copy_with_confluent(protocol: str) -> Callable[[Order], None]:
    return lambda order: Confluent(order, PROTOCOLS[protocol]).run()


def copy_with_aiokafka(order: Order) -> None:
    asyncio.run(asyncio.wait_for(_copy_with_aiokafka(order), COPY_SECONDS_MAX))


async def _copy_with_aiokafka(order: Order) -> None:
    bootstrap, source, target, count, group = order
    consumer = aiokafka.AIOKafkaConsumer(
        source,
        bootstrap_servers=bootstrap,
        group_id=group,
        enable_auto_commit=False,
        auto_offset_reset="earliest",
        isolation_level="read_committed",
        heartbeat_interval_ms=HEARTBEAT_MS,
    )
    producer = aiokafka.AIOKafkaProducer(bootstrap_servers=bootstrap, transactional_id=source)
    done: dict[Any, int] = {}
    async with consumer, producer:
        while sum(done.values()) < count:
            batch = await consumer.getmany(timeout_ms=200, max_records=RECORDS_PER_TRANSACTION)
            if not batch:
                continue
            ends = {at: records[-1].offset + 1 for at, records in batch.items()}
            try:
                async with producer.transaction():
                    for records in batch.values():
                        for record in records:
                            await producer.send(target, record.value)
                    await producer.send_offsets_to_transaction(ends, group)
            except aiokafka.errors.KafkaError:
                await consumer.seek_to_committed()
            else:
                done |= ends
