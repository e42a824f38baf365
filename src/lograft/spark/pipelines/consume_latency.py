"""How long it took from a record's own time until a group had committed it as read.

When records were read is nowhere written; when they were committed is, in `__consumer_offsets`, as
far as compaction has left it. So what is told here is an upper bound, and only of records behind
the first commit that is known of a group: what was before that it may never have read.
"""

from collections.abc import Iterator
from typing import Final

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from lograft.client.consuming.commit_records import read_commit
from lograft.model.types import OFFSETS_TOPIC
from lograft.spark.pipelines.settings import Source
from lograft.spark.staging import SLOT_PREFIX

#: `place`: where the commit itself lies; those of one group lie in one partition.
_COMMIT: Final = (
    "group string, topic string, partition int, committed bigint, at_ms bigint, place bigint"
)
_ARROW: Final = pa.schema(
    [
        ("group", pa.string()),
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("committed", pa.int64()),
        ("at_ms", pa.int64()),
        ("place", pa.int64()),
    ]
)
_PLACE: Final = ("group", "topic", "partition")
QUANTILES: Final = (0.5, 0.9, 0.99)


def commits_of(spark: SparkSession, source: Source) -> DataFrame:
    """Every commit of the source's topics that the log still has."""
    options = source.options() | {"subscribe": OFFSETS_TOPIC, "columns": "key,value,offset"}
    records = spark.read.format("lograft").options(**options).load()
    found = records.mapInArrow(_commits, _COMMIT)
    # What those of our sink commit are numbers of batches, not offsets.
    is_reader = ~F.col("group").startswith(SLOT_PREFIX)
    return found.filter(F.col("topic").isin(*source.topics) & is_reader)


def _commits(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        found: list[tuple[object, ...]] = []
        for record in batch.to_pylist():
            commit = read_commit(record["key"], record["value"])
            if commit is not None:
                found.append((*commit, record["offset"]))
        columns = zip(*found, strict=True) if found else ([],) * len(_ARROW)
        arrays = [
            pa.array(column, kind) for column, kind in zip(columns, _ARROW.types, strict=True)
        ]
        yield pa.RecordBatch.from_arrays(arrays, schema=_ARROW)


def consume_latencies(measured: DataFrame, commits: DataFrame) -> DataFrame:
    """A row for each group and topic: records, and quantiles of milliseconds. `measured` has topic,
    partition, offset and timestamp of records."""
    firsts = commits.groupBy(*_PLACE).agg(F.min_by("committed", "place").alias("first"))
    records = (
        measured.join(F.broadcast(firsts), ["topic", "partition"])
        .filter("offset >= first")
        .select(*_PLACE, "offset", F.unix_millis("timestamp").alias("made_ms"))
        .withColumn("at_ms", F.lit(None).cast("bigint"))
    )
    # A commit stands at the last record that it covers.
    covering = commits.select(
        *_PLACE,
        (F.col("committed") - 1).alias("offset"),
        F.lit(None).cast("bigint").alias("made_ms"),
        "at_ms",
    )
    first_commit = F.expr(
        "min(at_ms) over (partition by group, topic, partition order by offset desc"
        " range between unbounded preceding and current row)"
    )
    waited = (
        records.unionByName(covering)
        .withColumn("committed_ms", first_commit)
        .filter("made_ms is not null and committed_ms is not null")
        .withColumn("waited", F.expr("committed_ms - made_ms"))
    )
    return waited.groupBy("group", "topic").agg(
        F.count("*").alias("records"),
        *(F.expr(f"percentile_approx(waited, {one})") for one in QUANTILES),
        F.max("waited"),
    )
