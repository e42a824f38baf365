"""Exactly-once writes: tasks stage their rows, the driver publishes them, repeated batches are
skipped.

A *slot* is one task number of one query. It has a transactional ID, and a group of the same name
whose committed offset is the ID of the slot's next batch. A task acquires its slot, which fences
the previous owner and aborts its open transaction, and checks whether the batch was already
published. If not, it writes its rows and the next batch ID in one transaction, which stays open.
The driver completes the transactions of all tasks. docs/decisions/0012-spark-sink.md explains why
no record is lost or duplicated."""

import asyncio
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain
from typing import Final

import pyarrow as pa

from lograft.client import (
    Admin,
    BrokerError,
    ClientSettings,
    PreparedTransaction,
    Producer,
    complete_transactions,
)
from lograft.model.errors import ErrorCode, InvalidConfig
from lograft.model.types import TopicPartition
from lograft.spark.options import WriteOptions
from lograft.spark.rows import by_topic
from lograft.spark.sending import BULK, send_all

#: Prefix of the groups whose committed offsets are batch IDs.
SLOT_PREFIX: Final = "spark-sink-"


@dataclass(frozen=True, slots=True)
class Slot:
    query: str
    task: int

    @property
    def name(self) -> str:
        return f"{SLOT_PREFIX}{self.query}-{self.task}"


def stage(
    options: WriteOptions, slot: Slot, batch_id: int, batches: Iterator[pa.RecordBatch]
) -> tuple[int, PreparedTransaction | None]:
    """Returns the number of staged rows and their transaction, or None instead of a transaction if
    there is nothing to publish: no rows, or rows that were published before."""
    first = next(batches, None)
    while first is not None and first.num_rows == 0:
        first = next(batches, None)
    if first is None:
        return 0, None
    return asyncio.run(_stage(options, slot, batch_id, chain([first], batches), first))


async def _stage(
    options: WriteOptions,
    slot: Slot,
    batch_id: int,
    batches: Iterator[pa.RecordBatch],
    first: pa.RecordBatch,
) -> tuple[int, PreparedTransaction | None]:
    settings = BULK | dict(options.client)
    settings["transactional.id"] = slot.name
    settings["transaction.timeout.ms"] = str(options.staging_timeout_ms)
    async with Producer(settings) as producer:
        # From here on, no other producer can publish in this slot: the next batch ID is stable.
        await _acquire(producer, options)
        if await _next_batch(options, slot) > batch_id:
            return 0, None
        await producer.begin_transaction()
        rows = await send_all(producer, options, batches)
        # Any existing partition will do: `_next_batch` reads all of them.
        topic, _ = next(by_topic(first, options.topic))
        await producer.send_offsets({TopicPartition(topic, 0): batch_id + 1}, slot.name)
        return rows, await producer.prepare_transaction()


async def _acquire(producer: Producer, options: WriteOptions) -> None:
    try:
        await producer.init_transactions()
    except BrokerError as error:
        if error.code != ErrorCode.INVALID_TRANSACTION_TIMEOUT:
            raise
        raise InvalidConfig(
            f"stagingTimeout is {options.staging_timeout_ms} ms, but must not exceed the brokers'"
            " transaction.max.timeout.ms"
        ) from None


async def _next_batch(options: WriteOptions, slot: Slot) -> int:
    """Returns the slot's next batch ID. The slot has no open transaction, so the committed offset
    is final."""
    async with Admin(_connection_settings(options)) as admin:
        committed = await admin.list_group_offsets(slot.name)
    return max((commit.offset for commit in committed.values()), default=0)


def publish(options: WriteOptions, transactions: list[PreparedTransaction]) -> None:
    """Commits the transactions. Raises ProducerFenced if one was fenced or has timed out: Spark
    then has to repeat the batch, which skips the slots that were published."""
    settings = _connection_settings(options)
    asyncio.run(complete_transactions(settings, transactions, commits=True))


def discard(options: WriteOptions, transactions: list[PreparedTransaction]) -> None:
    settings = _connection_settings(options)
    asyncio.run(complete_transactions(settings, transactions, commits=False))


def _connection_settings(options: WriteOptions) -> dict[str, str]:
    """Returns the producer settings that are common to all clients."""
    shared = ClientSettings.setting_names()
    return {name: value for name, value in options.client.items() if name in shared}
