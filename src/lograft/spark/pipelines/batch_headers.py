"""Reads the headers of record batches into a DataFrame."""

import asyncio
from collections.abc import Iterator
from typing import Final

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from lograft.client import RangeReader
from lograft.spark.batch_reader import BatchReader
from lograft.spark.options import ReadOptions
from lograft.spark.ranges import RangePartition

_RANGE: Final = "topic string, partition int, start bigint, end bigint"
HEADER: Final = {
    "topic": ("string", pa.string()),
    "partition": ("int", pa.int32()),
    "base_offset": ("bigint", pa.int64()),
    "last_offset": ("bigint", pa.int64()),
    "records": ("int", pa.int32()),
    "size_bytes": ("int", pa.int32()),
    "producer_id": ("bigint", pa.int64()),
    "producer_epoch": ("int", pa.int32()),
    "base_sequence": ("int", pa.int32()),
    "is_control": ("boolean", pa.bool_()),
}
#: Rows per Arrow batch sent to Spark.
_BATCH_ROWS: Final = 10_000


def headers_of(spark: SparkSession, options: ReadOptions) -> DataFrame:
    planned = BatchReader(options).partitions()
    rows = [part.range[:4] for part in planned if isinstance(part, RangePartition)]
    ranges = spark.createDataFrame(rows, _RANGE).repartition(max(1, len(rows)))
    settings = dict(options.client)

    def scan(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for row in batch.to_pylist():
                yield from _scan(settings, row["topic"], row["partition"], row["start"], row["end"])

    schema = ", ".join(f"{name} {kind}" for name, (kind, _) in HEADER.items())
    return ranges.mapInArrow(scan, schema)


def _scan(
    settings: dict[str, str], topic: str, partition: int, start: int, end: int
) -> Iterator[pa.RecordBatch]:
    async def read() -> list[tuple[object, ...]]:
        async with RangeReader(settings) as reader:
            return [
                (
                    topic,
                    partition,
                    header.base_offset,
                    header.last_offset,
                    header.record_count,
                    header.size_bytes,
                    header.producer_id,
                    header.producer_epoch,
                    header.base_sequence,
                    header.is_control,
                )
                async for header in reader.read_headers(topic, partition, start=start, end=end)
            ]

    headers = asyncio.run(read())
    for start_row in range(0, len(headers), _BATCH_ROWS):
        columns = zip(*headers[start_row : start_row + _BATCH_ROWS], strict=True)
        arrays = [
            pa.array(column, kind)
            for column, (_, kind) in zip(columns, HEADER.values(), strict=True)
        ]
        yield pa.RecordBatch.from_arrays(arrays, names=list(HEADER))
