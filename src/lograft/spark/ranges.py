"""Reads a task's range of a partition as Arrow batches for Spark.

A task is a synchronous generator in its own process, so the event loop runs only while a batch is
awaited; the next fetch is already in flight while Spark processes the previous batch.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from typing import Final
from uuid import UUID

import pyarrow as pa
from pyspark.sql.datasource import InputPartition

from lograft.client import DataLost, RangeReader, RangeStartDeleted
from lograft.spark.options import ReadOptions
from lograft.spark.planning import Range
from lograft.spark.schema import to_spark

LOGGER: Final = logging.getLogger(__name__)

#: Tasks read large ranges, so they use fewer and larger fetches than a consumer.
_FETCH_BYTES: Final = str(8 << 20)
_BULK: Final = {
    "max.partition.fetch.bytes": _FETCH_BYTES,
    "fetch.max.bytes": str(64 << 20),
    "receive.buffer.bytes": "-1",
}


@dataclass(frozen=True, repr=False)
class RangePartition(InputPartition):
    """A range in the form that Spark passes to a task."""

    range: Range

    def __repr__(self) -> str:
        return f"RangePartition({self.range})"


def read_range(options: ReadOptions, requested: Range) -> Iterator[pa.RecordBatch]:
    """Reads a range. Raises DataLost if records of the range were deleted, unless failOnDataLoss is
    false: then the remaining records are read and the loss is logged."""
    settings = {**_BULK, "default.api.timeout.ms": str(options.poll_timeout_ms), **options.client}
    with asyncio.Runner() as runner:
        reader = RangeReader(settings)
        runner.run(reader.__aenter__())
        try:
            yield from _batches(runner, reader, options, requested)
        finally:
            runner.run(reader.__aexit__(None, None, None))


def _batches(
    runner: asyncio.Runner, reader: RangeReader, options: ReadOptions, requested: Range
) -> Iterator[pa.RecordBatch]:
    start: int | None = requested.start
    topic_id: UUID | None = requested.topic_id
    while start is not None and start < requested.end:
        batches = reader.read(
            requested.topic,
            requested.partition,
            start=start,
            end=requested.end,
            topic_id=topic_id,
            with_headers=options.with_headers,
        )
        try:
            while (batch := runner.run(_next(batches))) is not None:
                yield to_spark(batch, options.columns)
            return
        except DataLost as lost:
            if options.fails_on_data_loss:
                raise
            LOGGER.warning("%s; failOnDataLoss is false, so the query continues", lost)
            start = lost.log_start if isinstance(lost, RangeStartDeleted) else None


async def _next(batches: AsyncIterator[pa.RecordBatch]) -> pa.RecordBatch | None:
    return await anext(batches, None)
