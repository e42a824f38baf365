"""The headers of record batches as a table: who wrote what, as the log has it."""

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
#: Headers of a batch of rows on the way to Spark.
_ROWS: Final = 10_000


def headers_of(spark: SparkSession, options: ReadOptions) -> DataFrame:
    planned = BatchReader(options).partitions()
    rows = [one.range[:4] for one in planned if isinstance(one, RangePartition)]
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
                    one.base_offset,
                    one.last_offset,
                    one.record_count,
                    one.size_bytes,
                    one.producer_id,
                    one.producer_epoch,
                    one.base_sequence,
                    one.is_control,
                )
                async for one in reader.read_headers(topic, partition, start=start, end=end)
            ]

    found = asyncio.run(read())
    for at in range(0, len(found), _ROWS):
        columns = zip(*found[at : at + _ROWS], strict=True)
        arrays = [
            pa.array(column, kind)
            for column, (_, kind) in zip(columns, HEADER.values(), strict=True)
        ]
        yield pa.RecordBatch.from_arrays(arrays, names=list(HEADER))
