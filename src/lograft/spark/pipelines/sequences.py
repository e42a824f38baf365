"""Gaps and duplicates among the sequence numbers of idempotent producers."""

from typing import Final

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

#: Sequences go round after so many.
_ROUND: Final = 1 << 31


def sequence_faults(headers: DataFrame) -> DataFrame:
    """A row for each producer in each partition: batches, records, bytes, gaps, duplicates."""
    by_producer = Window.partitionBy("topic", "partition", "producer_id", "producer_epoch")
    in_order = by_producer.orderBy("base_offset")
    # Of the whole batch: compaction takes records out of the middle, and keeps the first's number.
    last = (F.col("base_sequence") + F.col("last_offset") - F.col("base_offset")) % _ROUND
    numbered = headers.filter("producer_id >= 0 and not is_control").withColumn("_last", last)
    before = F.lag("_last").over(in_order)
    distance = (F.col("base_sequence").cast("bigint") - before - 1 + _ROUND) % _ROUND
    judged = numbered.withColumn("_distance", distance)
    half = _ROUND // 2
    return judged.groupBy("topic", "partition", "producer_id", "producer_epoch").agg(
        F.count("*").alias("batches"),
        F.sum("records").alias("records"),
        F.sum("size_bytes").alias("bytes"),
        F.sum(F.expr(f"cast(_distance > 0 and _distance < {half} as int)")).alias("gaps"),
        F.sum(F.expr(f"cast(_distance >= {half} as int)")).alias("duplicates"),
    )
