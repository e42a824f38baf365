"""One task's part of a read: a range of a partition as Arrow batches for Spark.

A task is a synchronous generator in a process of its own, so the event loop runs while a batch is
awaited, and the next fetch is under way while Spark takes the last one.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from typing import Final
from uuid import UUID

import pyarrow as pa
from pyspark.sql.datasource import InputPartition

from lograft.client import DataLost, RangeReader, StartLost
from lograft.spark.options import ReadOptions
from lograft.spark.planning import Range
from lograft.spark.schema import to_spark

LOGGER: Final = logging.getLogger(__name__)

#: Tasks read large parts: fewer, larger fetches than a consumer's that waits for news.
_FETCH_BYTES: Final = str(8 << 20)
_BULK: Final = {
    "max.partition.fetch.bytes": _FETCH_BYTES,
    "fetch.max.bytes": str(64 << 20),
    "receive.buffer.bytes": "-1",
}


@dataclass(frozen=True, repr=False)
class RangePartition(InputPartition):
    """A range as Spark hands it to a task."""

    range: Range

    def __repr__(self) -> str:
        return f"RangePartition({self.range})"


def read_range(options: ReadOptions, wanted: Range) -> Iterator[pa.RecordBatch]:
    """Raises DataLost where records of the range are gone, unless failOnDataLoss is false: then
    what is left is read, and the log says what was not there."""
    settings = {**_BULK, "default.api.timeout.ms": str(options.poll_timeout_ms), **options.client}
    with asyncio.Runner() as runner:
        reader = RangeReader(settings)
        runner.run(reader.__aenter__())
        try:
            yield from _batches(runner, reader, options, wanted)
        finally:
            runner.run(reader.__aexit__(None, None, None))


def _batches(
    runner: asyncio.Runner, reader: RangeReader, options: ReadOptions, wanted: Range
) -> Iterator[pa.RecordBatch]:
    start: int | None = wanted.start
    topic_id: UUID | None = wanted.topic_id
    while start is not None and start < wanted.end:
        batches = reader.read(
            wanted.topic,
            wanted.partition,
            start=start,
            end=wanted.end,
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
            LOGGER.warning("%s; failOnDataLoss is false, so the query goes on", lost)
            start = lost.log_start if isinstance(lost, StartLost) else None


async def _next(batches: AsyncIterator[pa.RecordBatch]) -> pa.RecordBatch | None:
    return await anext(batches, None)
