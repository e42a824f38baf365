"""Exactly once: tasks stage, the driver publishes, and a batch that comes again is known.

A *slot* is one task number of one query. It has a transactional id, and a group of the same name
whose committed offset is the number of the slot's next batch. A task takes its slot (which fences
and undoes whatever was left in it), looks whether the batch is in, and if not writes rows and the
batch's number in one transaction that it leaves open. The driver ends the transactions of all
tasks. Why nothing is lost or doubled: docs/decisions/0012-spark-sink.md.
"""

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

#: Groups whose names begin so hold numbers of batches.
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
    """How many rows wait for the driver, and where. None: there is nothing to publish, as there
    are no rows or they have been published before."""
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
        # From here on nobody but us can publish anything in this slot: what it tells will stay.
        await _take(producer, options)
        if await _next_batch(options, slot) > batch_id:
            return 0, None
        await producer.begin_transaction()
        rows = await send_all(producer, options, batches)
        # Any partition that exists will do: whoever looks for the number looks at all of them.
        topic, _ = next(by_topic(first, options.topic))
        await producer.send_offsets({TopicPartition(topic, 0): batch_id + 1}, slot.name)
        return rows, await producer.prepare_transaction()


async def _take(producer: Producer, options: WriteOptions) -> None:
    try:
        await producer.init_transactions()
    except BrokerError as error:
        if error.code != ErrorCode.INVALID_TRANSACTION_TIMEOUT:
            raise
        raise InvalidConfig(
            f"stagingTimeout is {options.staging_timeout_ms} ms, but must not be above the brokers'"
            " transaction.max.timeout.ms"
        ) from None


async def _next_batch(options: WriteOptions, slot: Slot) -> int:
    """Nothing of the slot is open, so what is committed is all there is."""
    async with Admin(_connection_settings(options)) as admin:
        committed = await admin.list_group_offsets(slot.name)
    return max((one.offset for one in committed.values()), default=0)


def publish(options: WriteOptions, transactions: list[PreparedTransaction]) -> None:
    """Raises ProducerFenced when one of them was taken over or has waited too long: the batch has
    to come again, and then finds what had been published."""
    settings = _connection_settings(options)
    asyncio.run(complete_transactions(settings, transactions, commits=True))


def discard(options: WriteOptions, transactions: list[PreparedTransaction]) -> None:
    settings = _connection_settings(options)
    asyncio.run(complete_transactions(settings, transactions, commits=False))


def _connection_settings(options: WriteOptions) -> dict[str, str]:
    """Those of the producer's settings that every client has."""
    shared = ClientSettings.setting_names()
    return {name: value for name, value in options.client.items() if name in shared}
