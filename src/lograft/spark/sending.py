"""Sends the rows of a sink's task at least once; the task completes when all are acknowledged."""

import asyncio
from collections.abc import Iterator
from typing import Final

import pyarrow as pa

from lograft.client import Producer
from lograft.spark.options import WriteOptions
from lograft.spark.rows import by_topic

#: Tasks send columnar batches, as large as brokers accept by default.
_BATCH_BYTES: Final = 1 << 20
BULK: Final = {"max.request.size": str(4 << 20), "buffer.memory": str(64 << 20)}


def send_rows(options: WriteOptions, batches: Iterator[pa.RecordBatch]) -> int:
    """Sends the rows and returns their number when all are acknowledged."""

    async def send() -> int:
        async with Producer(BULK | dict(options.client)) as producer:
            return await send_all(producer, options, batches)

    return asyncio.run(send())


async def send_all(
    producer: Producer, options: WriteOptions, batches: Iterator[pa.RecordBatch]
) -> int:
    rows = 0
    deliveries = []
    for batch in batches:
        for topic, records in by_topic(batch, options.topic):
            deliveries.append(
                await producer.enqueue_arrow(topic, records, batch_bytes=_BATCH_BYTES)
            )
        rows += batch.num_rows
    for delivery in deliveries:
        await delivery
    return rows
