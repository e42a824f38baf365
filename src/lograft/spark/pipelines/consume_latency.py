"""Measures the time from a record's timestamp until a group committed it.

The log does not contain when records were read, only when they were committed, in
`__consumer_offsets`, as far as compaction has kept those commits. The result is therefore an upper
bound, and covers only records after a group's first known commit: the group may never have read
those before it.
"""

from collections.abc import Iterator
from typing import Final

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from lograft.client import parse_offset_commit
from lograft.model.types import OFFSETS_TOPIC
from lograft.spark.pipelines.settings import Source
from lograft.spark.staging import SLOT_PREFIX

#: `commit_offset` is the offset of the commit record; all commits of a group are in one partition.
_COMMIT: Final = (
    "group string, topic string, partition int, committed bigint, at_ms bigint,"
    " commit_offset bigint"
)
_ARROW: Final = pa.schema(
    [
        ("group", pa.string()),
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("committed", pa.int64()),
        ("at_ms", pa.int64()),
        ("commit_offset", pa.int64()),
    ]
)
_GROUP_PARTITION: Final = ("group", "topic", "partition")
QUANTILES: Final = (0.5, 0.9, 0.99)


def commits_of(spark: SparkSession, source: Source) -> DataFrame:
    """Returns all commits for the source's topics that are still in the log."""
    options = source.options() | {"subscribe": OFFSETS_TOPIC, "columns": "key,value,offset"}
    records = spark.read.format("lograft").options(**options).load()
    found = records.mapInArrow(_commits, _COMMIT)
    # The groups of Lograft's sink commit batch IDs, not offsets.
    is_reader = ~F.col("group").startswith(SLOT_PREFIX)
    return found.filter(F.col("topic").isin(*source.topics) & is_reader)


def _commits(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        found: list[tuple[object, ...]] = []
        for record in batch.to_pylist():
            commit = parse_offset_commit(record["key"], record["value"])
            if commit is not None:
                found.append((*commit, record["offset"]))
        columns = zip(*found, strict=True) if found else ([],) * len(_ARROW)
        arrays = [
            pa.array(column, kind) for column, kind in zip(columns, _ARROW.types, strict=True)
        ]
        yield pa.RecordBatch.from_arrays(arrays, schema=_ARROW)


def consume_latencies(measured: DataFrame, commits: DataFrame) -> DataFrame:
    """Returns a row for each group and topic: number of records, and quantiles of the latency in
    ms. `measured` has the topic, partition, offset and timestamp of the records."""
    firsts = commits.groupBy(*_GROUP_PARTITION).agg(
        F.min_by("committed", "commit_offset").alias("first")
    )
    records = (
        measured.join(F.broadcast(firsts), ["topic", "partition"])
        .filter("offset >= first")
        .select(*_GROUP_PARTITION, "offset", F.unix_millis("timestamp").alias("produced_ms"))
        .withColumn("at_ms", F.lit(None).cast("bigint"))
    )
    # A commit is placed at the offset of the last record that it covers.
    covering = commits.select(
        *_GROUP_PARTITION,
        (F.col("committed") - 1).alias("offset"),
        F.lit(None).cast("bigint").alias("produced_ms"),
        "at_ms",
    )
    first_commit = F.expr(
        "min(at_ms) over (partition by group, topic, partition order by offset desc"
        " range between unbounded preceding and current row)"
    )
    latencies = (
        records.unionByName(covering)
        .withColumn("committed_ms", first_commit)
        .filter("produced_ms is not null and committed_ms is not null")
        .withColumn("latency_ms", F.expr("committed_ms - produced_ms"))
    )
    return latencies.groupBy("group", "topic").agg(
        F.count("*").alias("records"),
        *(F.expr(f"percentile_approx(latency_ms, {quantile})") for quantile in QUANTILES),
        F.max("latency_ms"),
    )
