"""Gaps and duplicates among the sequence numbers of idempotent producers."""

from typing import Final

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

#: Sequences go round after so many.
_ROUND: Final = 1 << 31


def sequence_faults(headers: DataFrame) -> DataFrame:
    """A row for each producer in each partition: batches, records, bytes, gaps, duplicates. What
    counts is the highest number so far: a batch behind a duplicate is no jump."""
    by_producer = Window.partitionBy("topic", "partition", "producer_id", "producer_epoch")
    in_order = by_producer.orderBy("base_offset")
    so_far = in_order.rowsBetween(Window.unboundedPreceding, 0)
    before = in_order.rowsBetween(Window.unboundedPreceding, -1)
    # Of the whole batch: compaction takes records out of the middle, and keeps the first's number.
    length = F.col("last_offset") - F.col("base_offset") + 1
    base = F.col("base_sequence").cast("bigint")
    half = _ROUND // 2
    # From the end of the batch before to the beginning of this one, the short way round.
    distance = F.pmod(base - F.lag(base + length).over(in_order) + half, F.lit(_ROUND)) - half
    return (
        headers.filter("producer_id >= 0 and not is_control")
        .withColumn("_length", length)
        .withColumn("_step", length + F.coalesce(distance, F.lit(0)))
        # Numbers that do not go round, counted from the producer's first batch that is there.
        .withColumn("_end", F.sum("_step").over(so_far))
        .withColumn("_begin", F.col("_end") - F.col("_length"))
        .withColumn("_due", F.max("_end").over(before))
        .groupBy("topic", "partition", "producer_id", "producer_epoch")
        .agg(
            F.count("*").alias("batches"),
            F.sum("records").alias("records"),
            F.sum("size_bytes").alias("bytes"),
            F.count_if(F.col("_begin") > F.col("_due")).alias("gaps"),
            F.count_if(F.col("_begin") < F.col("_due")).alias("duplicates"),
        )
    )
